//! What send queues and receive queues have in common: a cyclic ring, a doorbell record, and a state (PRM "Work
//! Queues").

use super::objects::ObjRef;
use super::page_list::PageList;
use crate::dma::{Bus, Iova, Stream};
use crate::prm::values::WqState;

/// Whether MODIFY_SQ and MODIFY_RQ may take a queue from `from` to `to`. A queue is reset or put into error from
/// anywhere; it becomes ready from reset, or stays ready while other fields change.
pub fn may_change(from: WqState, to: WqState) -> bool {
    let known = |state| matches!(state, WqState::RST | WqState::RDY | WqState::ERR);
    match (from, to) {
        (WqState::RST | WqState::RDY, WqState::RDY) => true,
        (from, WqState::RST | WqState::ERR) => known(from),
        _ => false,
    }
}

/// A cyclic ring of work queue entries and where the driver counts what it posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkQueue {
    /// The ring's memory.
    pub buffer: PageList,
    /// log2 of the number of entries.
    pub log_size: u32,
    /// log2 of the bytes of an entry.
    pub log_stride: u32,
    /// The doorbell record: the word of a receive queue is first, that of a send queue second.
    pub record: Iova,
    /// The user memory objects that hold the ring and the record.
    pub umems: Vec<ObjRef>,
}

impl WorkQueue {
    /// What it is charged for beyond the queue's context.
    pub fn extra(&self) -> u64 {
        8 * self.buffer.pages() as u64
    }

    /// Where the entry that counter `counter` stands for begins in the buffer.
    pub fn offset(&self, counter: u16) -> u64 {
        let mask = (1u64 << self.log_size) - 1;
        (u64::from(counter) & mask) << self.log_stride
    }

    /// Bytes of the ring.
    pub fn len(&self) -> u64 {
        1 << (self.log_size + self.log_stride)
    }

    /// Whether the ring has no entries; it always has some.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// How many entries a receive queue's driver has posted in all, modulo 2^16; `None` if the record cannot be read.
    pub fn posted_receives(&self, stream: Stream, bus: &mut Bus) -> Option<u16> {
        bus.load_dbrec(stream, self.record).ok().map(|word| word as u16)
    }

    /// How many basic blocks a send queue's driver has posted in all, modulo 2^16; `None` if the record cannot be
    /// read.
    pub fn posted_sends(&self, stream: Stream, bus: &mut Bus) -> Option<u16> {
        let at = self.record.checked_add(4)?;
        bus.load_dbrec(stream, at).ok().map(|word| word as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_change_state_only_as_the_prm_allows() {
        use WqState as S;
        let allowed = [
            (S::RST, S::RST),
            (S::RST, S::RDY),
            (S::RST, S::ERR),
            (S::RDY, S::RST),
            (S::RDY, S::RDY),
            (S::RDY, S::ERR),
            (S::ERR, S::RST),
            (S::ERR, S::ERR),
        ];
        for from in 0..16 {
            for to in 0..16 {
                let expected = allowed.contains(&(WqState(from), WqState(to)));
                assert_eq!(may_change(WqState(from), WqState(to)), expected, "{from} -> {to}");
            }
        }
    }

    #[test]
    fn counters_wrap_around_the_ring() {
        let buffer = PageList::parse(&0x1000u64.to_be_bytes(), 12, 0, 256).expect("a legal list");
        let wq = WorkQueue { buffer, log_size: 2, log_stride: 6, record: Iova(0), umems: Vec::new() };
        assert_eq!((wq.offset(0), wq.offset(3), wq.offset(4), wq.offset(0xffff)), (0, 192, 0, 192));
        assert_eq!(wq.len(), 256);
    }
}
