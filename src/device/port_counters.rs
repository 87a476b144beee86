//! What a port counts: frames by direction, kind, size and priority, and link events.
//!
//! Octets include the four bytes of the frame check sequence, as on the wire. Errors of a physical layer cannot
//! happen here; their counters stay 0 because nothing counts, not because nothing looks.

/// Bytes of the frame check sequence, which frames in memory do not carry.
const FCS: u64 = 4;
/// Upper bounds of the size histogram, FCS included (RFC 2819, continued for jumbo frames).
pub const SIZE_BOUNDS: [u64; 10] = [64, 127, 255, 511, 1023, 1518, 2047, 4095, 8191, 10239];

macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl $name {
            /// What was counted after `base` was taken.
            pub fn since(&self, base: &$name) -> $name {
                $name { $($field: self.$field.wrapping_sub(base.$field),)* }
            }
        }
    };
}

counters! {
    /// One direction of a port.
    pub struct Direction {
        /// Unicast frames.
        pub unicast,
        /// Multicast frames.
        pub multicast,
        /// Broadcast frames.
        pub broadcast,
        /// Octets of all frames, FCS included.
        pub octets,
        /// Frames dropped for want of room.
        pub discards,
        /// Frames dropped for an error.
        pub errors,
        /// Pause frames among the multicast ones.
        pub pause,
    }
}

impl Direction {
    /// All good frames.
    pub fn frames(&self) -> u64 {
        self.unicast + self.multicast + self.broadcast
    }
}

counters! {
    /// Frames and octets of one priority.
    pub struct Priority {
        /// Frames sent.
        pub tx_frames,
        /// Octets sent.
        pub tx_octets,
        /// Frames received.
        pub rx_frames,
        /// Octets received.
        pub rx_octets,
    }
}

/// Kind of a frame by its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// To one station.
    Unicast,
    /// To a group.
    Multicast,
    /// To all stations.
    Broadcast,
}

impl Cast {
    /// The kind of a frame that starts with its destination address.
    pub fn of(frame: &[u8]) -> Cast {
        match frame.first_chunk::<6>() {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Cast::Broadcast,
            Some([first, ..]) if first & 1 != 0 => Cast::Multicast,
            _ => Cast::Unicast,
        }
    }
}

/// Everything a port counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Sent.
    pub tx: Direction,
    /// Received.
    pub rx: Direction,
    /// Received frames by size; see [`SIZE_BOUNDS`].
    pub rx_sizes: [u64; SIZE_BOUNDS.len()],
    /// By IEEE 802.1Q priority; untagged frames have priority 0.
    pub priorities: [Priority; 8],
    /// How often the link went down.
    pub link_down_events: u64,
}

/// IEEE 802.1Q priority of a frame.
fn priority(frame: &[u8]) -> usize {
    match frame.get(12..15) {
        Some([0x81, 0x00, tci]) => usize::from(tci >> 5),
        _ => 0,
    }
}

/// MAC control frames with the pause opcode (IEEE 802.3 annex 31B).
fn is_pause(frame: &[u8]) -> bool {
    frame.get(12..16) == Some(&[0x88, 0x08, 0x00, 0x01])
}

impl PortCounters {
    /// Counts a frame that left through the port; `frame` is without FCS.
    pub fn transmitted(&mut self, frame: &[u8]) {
        let octets = frame.len() as u64 + FCS;
        count(&mut self.tx, frame, octets);
        let slot = &mut self.priorities[priority(frame)];
        slot.tx_frames += 1;
        slot.tx_octets += octets;
    }

    /// Counts a frame that came in through the port; `frame` is without FCS.
    pub fn received(&mut self, frame: &[u8]) {
        let octets = frame.len() as u64 + FCS;
        count(&mut self.rx, frame, octets);
        if let Some(bin) = SIZE_BOUNDS.iter().position(|bound| octets <= *bound) {
            self.rx_sizes[bin] += 1;
        }
        let slot = &mut self.priorities[priority(frame)];
        slot.rx_frames += 1;
        slot.rx_octets += octets;
    }

    /// What was counted after `base` was taken.
    pub fn since(&self, base: &PortCounters) -> PortCounters {
        PortCounters {
            tx: self.tx.since(&base.tx),
            rx: self.rx.since(&base.rx),
            rx_sizes: std::array::from_fn(|i| self.rx_sizes[i].wrapping_sub(base.rx_sizes[i])),
            priorities: std::array::from_fn(|i| self.priorities[i].since(&base.priorities[i])),
            link_down_events: self.link_down_events.wrapping_sub(base.link_down_events),
        }
    }
}

fn count(direction: &mut Direction, frame: &[u8], octets: u64) {
    direction.octets += octets;
    match Cast::of(frame) {
        Cast::Unicast => direction.unicast += 1,
        Cast::Multicast => direction.multicast += 1,
        Cast::Broadcast => direction.broadcast += 1,
    }
    if is_pause(frame) {
        direction.pause += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(destination: [u8; 6], rest: &[u8], len: usize) -> Vec<u8> {
        let mut frame = destination.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1]);
        frame.extend(rest);
        frame.resize(len, 0);
        frame
    }

    #[test]
    fn frames_are_counted_by_kind_size_and_priority() {
        let mut counters = PortCounters::default();
        counters.transmitted(&frame([2, 0, 0, 0, 0, 2], &[8, 0], 60));
        counters.transmitted(&frame([0x33, 0x33, 0, 0, 0, 1], &[0x81, 0, 0xa0, 5], 100));
        counters.received(&frame([0xff; 6], &[8, 6], 60));
        counters.received(&frame([1, 0x80, 0xc2, 0, 0, 1], &[0x88, 8, 0, 1], 9014));
        assert_eq!((counters.tx.unicast, counters.tx.multicast, counters.tx.octets), (1, 1, 64 + 104));
        assert_eq!((counters.rx.broadcast, counters.rx.multicast, counters.rx.pause), (1, 1, 1));
        assert_eq!((counters.rx_sizes[0], counters.rx_sizes[9]), (1, 1));
        assert_eq!((counters.priorities[5].tx_frames, counters.priorities[5].tx_octets), (1, 104));
        assert_eq!(counters.priorities[0].tx_frames, 1);
        assert_eq!(counters.tx.frames(), 2);
    }

    #[test]
    fn a_frame_beyond_the_last_bin_is_counted_but_not_binned() {
        let mut counters = PortCounters::default();
        counters.received(&frame([2, 0, 0, 0, 0, 2], &[8, 0], 10236));
        assert_eq!((counters.rx.unicast, counters.rx_sizes.iter().sum::<u64>()), (1, 0));
    }

    #[test]
    fn a_short_frame_does_not_confuse_the_counters() {
        let mut counters = PortCounters::default();
        counters.transmitted(&[]);
        counters.received(&[0xff; 5]);
        assert_eq!((counters.tx.unicast, counters.rx.unicast), (1, 1));
    }

    #[test]
    fn differences_leave_out_what_came_before() {
        let mut counters = PortCounters::default();
        counters.transmitted(&frame([2; 6], &[8, 0], 60));
        let base = counters;
        counters.transmitted(&frame([2; 6], &[8, 0], 60));
        assert_eq!(counters.since(&base).tx.octets, 64);
        assert_eq!(counters.since(&base).priorities[0].tx_frames, 1);
    }
}
