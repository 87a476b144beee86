//! User access regions: the doorbell pages of BAR 0 (PRM "User Access Region"; kernel `drivers/.../uar.c`,
//! `include/linux/mlx5/{cq,doorbell}.h`).
//!
//! A page decodes to [`Doorbell`]s; what they do belongs to the queues. How a doorbell comes, as a message or in memory
//! that is polled ([`super::poll`]), makes no difference to them.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::objects::{Kind, ObjRef};

/// Bytes of one page.
pub const PAGE: u64 = 4096;
/// The first page that is given out; those before hold registers and the MSI-X structures.
pub const FIRST: u32 = 16;
/// Offset in BAR 0 of the first byte behind all pages.
pub const END: u64 = 4096 * PAGE;

const CQ_ARM: u64 = 0x20;
const EQ_ARM: u64 = 0x40;
const EQ_UPDATE: u64 = 0x48;
/// First BlueFlame register; the rest of the page is BlueFlame registers.
const BLUE_FLAME: u64 = 0x800;
/// A BlueFlame burst carries at least one 64-byte work queue basic block.
const WQEBB: usize = 64;

/// Offsets of the registers of a page.
pub const REGISTERS: [u64; 11] = [CQ_ARM, EQ_ARM, EQ_UPDATE, 0x800, 0x900, 0xa00, 0xb00, 0xc00, 0xd00, 0xe00, 0xf00];

/// What a register is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Event queues.
    Eq,
    /// Completion queues.
    Cq,
    /// Queue pairs and send queues.
    Send,
}

impl Class {
    fn users(self) -> RangeInclusive<ObjRef> {
        let range = |first, last| ObjRef { kind: first, id: 0 }..=ObjRef { kind: last, id: u32::MAX };
        match self {
            Class::Eq => range(Kind::Eq, Kind::Eq),
            Class::Cq => range(Kind::Cq, Kind::Cq),
            // Objects of the kinds between these have no doorbells.
            Class::Send => range(Kind::Qp, Kind::Sq),
        }
    }
}

/// A look at every user of a class, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pass {
    /// The users from here on are left; `None` if no pass is under way.
    from: Option<ObjRef>,
    /// The register was written again meanwhile.
    again: bool,
}

/// A user access region, allocated by its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uar {
    /// Halves of doorbells that came through this page: those of other owners must not complete them.
    pub halves: Partial,
    /// The queues whose doorbells come through this page.
    pub users: BTreeSet<ObjRef>,
    cqs: Pass,
    sends: Pass,
}

impl super::objects::Charged for Uar {}

impl Uar {
    /// Whether only one queue of `class` uses the page.
    pub fn is_alone(&self, class: Class) -> bool {
        self.users.range(class.users()).nth(1).is_none()
    }

    /// Begins a pass over the users of `class`. Whether none of any class was under way before.
    pub fn begin_pass(&mut self, class: Class) -> bool {
        let idle = self.cqs.from.is_none() && self.sends.from.is_none();
        let pass = if class == Class::Cq { &mut self.cqs } else { &mut self.sends };
        match pass.from {
            Some(_) => pass.again = true,
            None => pass.from = Some(*class.users().start()),
        }
        idle
    }

    /// The next queue to look at, and whether passes are still under way.
    pub fn next_of_pass(&mut self) -> (Option<ObjRef>, bool) {
        let class = if self.cqs.from.is_some() { Class::Cq } else { Class::Send };
        let pass = if class == Class::Cq { &mut self.cqs } else { &mut self.sends };
        let Some(from) = pass.from else { return (None, false) };
        let user = self.users.range(from..=*class.users().end()).next().copied();
        pass.from = match user {
            Some(user) => Some(ObjRef { id: user.id.saturating_add(1), ..user }),
            None => std::mem::take(&mut pass.again).then_some(*class.users().start()),
        };
        (user, self.cqs.from.is_some() || self.sends.from.is_some())
    }
}

/// A decoded doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// Asks for an event on the next completion of a CQ.
    CqArm {
        /// The CQ.
        cqn: u32,
        /// The request, as it also stands in the doorbell record.
        word: u32,
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

impl Doorbell {
    /// What it is about.
    pub fn class(self) -> Class {
        match self {
            Doorbell::CqArm { .. } => Class::Cq,
            Doorbell::Eq { .. } => Class::Eq,
            Doorbell::Send { .. } => Class::Send,
        }
    }
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
        EQ_ARM | EQ_UPDATE => Some(eq(first, offset == EQ_ARM)),
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

/// Decodes what was found in one of the [`REGISTERS`].
pub fn polled(register: u64, bytes: [u8; 8]) -> Doorbell {
    let [first, second] = [0, 4].map(|at| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
    match register {
        CQ_ARM => cq_arm(first, second),
        EQ_ARM | EQ_UPDATE => eq(first, register == EQ_ARM),
        _ => send(first, second, false),
    }
}

fn cq_arm(first: u32, second: u32) -> Doorbell {
    Doorbell::CqArm { cqn: second & 0xff_ffff, word: first }
}

fn eq(word: u32, arm: bool) -> Doorbell {
    Doorbell::Eq { eqn: word >> 24, ci: word & 0xff_ffff, arm }
}

fn send(first: u32, second: u32, blue_flame: bool) -> Doorbell {
    Doorbell::Send { qpn: second >> 8, index: (first >> 8) as u16, blue_flame }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cq_arm_is_decoded_whole_and_in_halves() {
        let expected = Doorbell::CqArm { cqn: 0x1234, word: 0x2100_abcd };
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
