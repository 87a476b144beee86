//! Ethernet link modes as PTYS names them (kernel `include/linux/mlx5/port.h:mlx5e_link_mode`, speeds from
//! `port.c:mlx5e_link_info`).
//!
//! PTYS has two sets of mode bits: the legacy one ends at 100 Gb/s, the extended one has modes per lane speed. The
//! port has four lanes; optical modes are left out, the port has no module.

/// One link mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkMode {
    /// Its bit in the `eth_proto` or `ext_eth_proto` fields.
    pub bit: u32,
    /// Speed in Mb/s.
    pub mbps: u32,
    /// Lanes used.
    pub lanes: u32,
}

const fn mode(bit: u32, mbps: u32, lanes: u32) -> LinkMode {
    LinkMode { bit, mbps, lanes }
}

/// Copper and backplane modes of the legacy set.
pub static LEGACY: &[LinkMode] = &[
    mode(4, 10_000, 1),
    mode(12, 10_000, 1),
    mode(6, 40_000, 4),
    mode(7, 40_000, 4),
    mode(27, 25_000, 1),
    mode(28, 25_000, 1),
    mode(30, 50_000, 2),
    mode(31, 50_000, 2),
    mode(20, 100_000, 4),
    mode(22, 100_000, 4),
];

/// Modes of the extended set that four lanes can carry.
pub static EXTENDED: &[LinkMode] = &[
    mode(4, 10_000, 1),
    mode(5, 40_000, 4),
    mode(6, 25_000, 1),
    mode(7, 50_000, 2),
    mode(8, 50_000, 1),
    mode(9, 100_000, 4),
    mode(10, 100_000, 2),
    mode(11, 100_000, 1),
    mode(12, 200_000, 4),
    mode(13, 200_000, 2),
    mode(14, 200_000, 1),
    mode(16, 400_000, 4),
    mode(17, 400_000, 2),
    mode(20, 800_000, 4),
];

/// The bits of all modes of `set` up to a speed.
pub fn up_to(set: &[LinkMode], mbps: u32) -> u32 {
    set.iter().filter(|mode| mode.mbps <= mbps).fold(0, |mask, mode| mask | 1 << mode.bit)
}

/// The mode that a link comes up with: the fastest in `mask`, and of those the widest.
pub fn best(set: &[LinkMode], mask: u32) -> Option<LinkMode> {
    let mut best: Option<LinkMode> = None;
    for mode in set.iter().filter(|mode| mask >> mode.bit & 1 != 0) {
        if best.is_none_or(|b| (mode.mbps, mode.lanes) > (b.mbps, b.lanes)) {
            best = Some(*mode);
        }
    }
    best
}

/// The bits of `to` whose speed a mode of `mask` in `from` has.
pub fn translate(from: &[LinkMode], mask: u32, to: &[LinkMode]) -> u32 {
    let selected = |mbps| from.iter().any(|mode| mask >> mode.bit & 1 != 0 && mode.mbps == mbps);
    to.iter().filter(|mode| selected(mode.mbps)).fold(0, |bits, mode| bits | 1 << mode.bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_and_then_the_widest_mode_wins() {
        assert_eq!(best(LEGACY, up_to(LEGACY, 100_000)).map(|m| m.bit), Some(20));
        assert_eq!(best(LEGACY, 1 << 4 | 1 << 28).map(|m| m.bit), Some(28));
        assert_eq!(best(EXTENDED, up_to(EXTENDED, 400_000)), Some(mode(16, 400_000, 4)));
        assert_eq!(best(EXTENDED, 1 << 10 | 1 << 11), Some(mode(10, 100_000, 2)));
        assert_eq!(best(LEGACY, 0), None);
    }

    #[test]
    fn each_bit_is_used_once_in_a_set() {
        for set in [LEGACY, EXTENDED] {
            assert_eq!(up_to(set, u32::MAX).count_ones() as usize, set.len());
        }
    }

    #[test]
    fn modes_translate_by_speed() {
        assert_eq!(translate(EXTENDED, 1 << 11 | 1 << 16, LEGACY), 1 << 20 | 1 << 22);
    }
}
