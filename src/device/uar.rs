//! User access regions: the doorbell pages of BAR 0 (PRM "User Access Region"; kernel `drivers/.../uar.c`,
//! `include/linux/mlx5/{cq,doorbell}.h`).
//!
//! A page decodes to [`Doorbell`]s; what they do belongs to the queues.

/// Bytes of one page.
pub const PAGE: u64 = 4096;

const CQ_ARM: u64 = 0x20;
const EQ_ARM: u64 = 0x40;
const EQ_UPDATE: u64 = 0x48;
/// First BlueFlame register; the rest of the page is BlueFlame registers.
const BLUE_FLAME: u64 = 0x800;
/// A BlueFlame burst carries at least one 64-byte work queue basic block.
const WQEBB: usize = 64;

/// A user access region, allocated by its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uar {
    /// Halves of doorbells that came through this page: those of other owners must not complete them.
    pub halves: Partial,
}

impl super::objects::Charged for Uar {}

/// A decoded doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// Asks for an event on the next completion of a CQ.
    CqArm {
        /// The CQ.
        cqn: u32,
        /// Sequence number of the request, 2 bits.
        sn: u8,
        /// Only solicited completions and errors.
        solicited: bool,
        /// Consumer index the request was made at, 24 bits.
        ci: u32,
    },
    /// Moves the consumer index of an EQ and perhaps arms it.
    Eq {
        /// The EQ.
        eqn: u32,
        /// Consumer index, 24 bits.
        ci: u32,
        /// Ask for an interrupt on the next event.
        arm: bool,
    },
    /// Work was posted to a send queue.
    Send {
        /// The queue pair or send queue.
        qpn: u32,
        /// Index of the first posted WQE, in basic blocks, 16 bits.
        index: u16,
        /// Whether the store carried at least the WQE's first basic block (BlueFlame).
        blue_flame: bool,
    },
}

/// The half of a CQ arm doorbell that came as its own 32-bit store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    cq_arm: Option<u32>,
    send: Option<u32>,
}

fn word(data: &[u8], index: usize) -> Option<u32> {
    data.get(4 * index..4 * index + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// Decodes a store of `data` at `offset` of a page. 64-bit doorbells may arrive as two 32-bit stores in ascending
/// order; `partial` keeps the first half.
pub fn decode(offset: u64, data: &[u8], partial: &mut Partial) -> Option<Doorbell> {
    let first = word(data, 0)?;
    match offset {
        CQ_ARM => match word(data, 1) {
            Some(second) => Some(cq_arm(first, second)),
            None => {
                partial.cq_arm = Some(first);
                None
            }
        },
        0x24 => partial.cq_arm.take().map(|half| cq_arm(half, first)),
        EQ_ARM | EQ_UPDATE => Some(Doorbell::Eq { eqn: first >> 24, ci: first & 0xff_ffff, arm: offset == EQ_ARM }),
        BLUE_FLAME..PAGE if offset % 8 == 0 => match word(data, 1) {
            Some(second) => Some(send(first, second, data.len() >= WQEBB)),
            None => {
                partial.send = Some(first);
                None
            }
        },
        BLUE_FLAME..PAGE if offset % 8 == 4 => partial.send.take().map(|half| send(half, first, false)),
        _ => None,
    }
}

fn cq_arm(first: u32, second: u32) -> Doorbell {
    Doorbell::CqArm {
        cqn: second & 0xff_ffff,
        sn: (first >> 28 & 3) as u8,
        solicited: first >> 24 & 1 != 0,
        ci: first & 0xff_ffff,
    }
}

fn send(first: u32, second: u32, blue_flame: bool) -> Doorbell {
    Doorbell::Send { qpn: second >> 8, index: (first >> 8) as u16, blue_flame }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cq_arm_is_decoded_whole_and_in_halves() {
        let expected = Doorbell::CqArm { cqn: 0x1234, sn: 2, solicited: true, ci: 0xabcd };
        let bytes = [0x21, 0x00, 0xab, 0xcd, 0x00, 0x00, 0x12, 0x34];
        let mut partial = Partial::default();
        assert_eq!(decode(0x20, &bytes, &mut partial), Some(expected));
        assert_eq!(decode(0x20, &bytes[..4], &mut partial), None);
        assert_eq!(decode(0x24, &bytes[4..], &mut partial), Some(expected));
        assert_eq!(decode(0x24, &bytes[4..], &mut partial), None);
    }

    #[test]
    fn an_eq_doorbell_tells_arming_from_updating() {
        let bytes = [0x07, 0x00, 0x01, 0x02];
        let mut partial = Partial::default();
        assert_eq!(decode(0x40, &bytes, &mut partial), Some(Doorbell::Eq { eqn: 7, ci: 0x102, arm: true }));
        assert_eq!(decode(0x48, &bytes, &mut partial), Some(Doorbell::Eq { eqn: 7, ci: 0x102, arm: false }));
    }

    #[test]
    fn a_send_doorbell_is_found_in_every_blue_flame_register() {
        let mut bytes = vec![0x00, 0x00, 0x05, 0x0a, 0x00, 0x01, 0x02, 0x03];
        let mut partial = Partial::default();
        let ring = |blue_flame| Some(Doorbell::Send { qpn: 0x102, index: 5, blue_flame });
        assert_eq!(decode(0x800, &bytes, &mut partial), ring(false));
        assert_eq!(decode(0xb00, &bytes, &mut partial), ring(false));
        bytes.resize(64, 0);
        assert_eq!(decode(0x900, &bytes, &mut partial), ring(true));
    }

    #[test]
    fn nothing_else_in_the_page_is_a_doorbell() {
        let mut partial = Partial::default();
        for offset in (0..0x800).filter(|o| ![0x20, 0x24, 0x40, 0x48].contains(o)) {
            assert_eq!(decode(offset, &[0; 8], &mut partial), None, "{offset:#x}");
        }
        assert_eq!(decode(0x20, &[1, 2], &mut partial), None);
        assert_eq!(decode(0x801, &[0; 8], &mut partial), None);
    }
}
