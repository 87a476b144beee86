use super::super::{Fence, Range};
use super::*;
use crate::dma::bus::AtomicOp;
use crate::dma::map::DmaError;
use crate::dma::order::Profile;
use crate::dma::{Iova, KeyOrder};

/// 64 KiB from address 0 on.
#[derive(Clone)]
pub(in crate::dma::order) struct Ram {
    pub bytes: Vec<u8>,
    pub samples: Vec<(Choice, Vec<u8>)>,
    pub signals: Vec<u32>,
}

impl Ram {
    pub fn new() -> Ram {
        Ram { bytes: vec![0; 0x10000], samples: Vec::new(), signals: Vec::new() }
    }

    fn range(&self, at: Iova, len: usize) -> Result<std::ops::Range<usize>, DmaError> {
        let from = at.0 as usize;
        if from + len > self.bytes.len() { Err(DmaError::Unmapped { at }) } else { Ok(from..from + len) }
    }
}

impl Memory for Ram {
    fn read(&mut self, at: Iova, buf: &mut [u8]) -> Result<(), DmaError> {
        let range = self.range(at, buf.len())?;
        buf.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, at: Iova, bytes: &[u8]) -> Result<(), DmaError> {
        let range = self.range(at, bytes.len())?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }

    fn update_u64(&mut self, at: Iova, op: AtomicOp) -> Result<u64, DmaError> {
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        let old = u64::from_le_bytes(word);
        self.write(at, &op.apply(old).to_le_bytes())?;
        Ok(old)
    }

    fn signal(&mut self, vector: u32) {
        self.signals.push(vector);
    }

    fn sampled(&mut self, choice: Choice, bytes: &[u8]) {
        self.samples.push((choice, bytes.to_vec()));
    }
}

const Q: Stream = Stream::Responder(7);
const RELAXED: KeyOrder = KeyOrder { relaxed_write: true, relaxed_read: false, relaxed_read_after_write: true };

fn at(at: u64, len: u32) -> Range {
    Range { at: Iova(at), len }
}

fn choice(txn: u64, part: u16) -> Choice {
    Choice { txn: TxnId(txn), part }
}

fn write<'a>(ranges: &'a [Range], bytes: &'a [u8], order: KeyOrder) -> NewTxn<'a> {
    NewTxn { order, ..NewTxn::device(Kind::Write, Q, ranges, Payload::Bytes(bytes)) }
}

fn cqe<'a>(ranges: &'a [Range], bytes: &'a [u8]) -> NewTxn<'a> {
    NewTxn { chain: Some(3), ..NewTxn::device(Kind::Cqe, Q, ranges, Payload::Bytes(bytes)) }
}

#[test]
fn a_completion_is_enabled_when_all_parts_of_the_data_are_done_and_its_owner_comes_last() {
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    let mut ram = Ram::new();
    pool.issue(&write(&[at(0, 4), at(4, 4)], &[1; 8], RELAXED)).unwrap();
    pool.issue(&cqe(&[at(0x100, 3), at(0x103, 1)], &[1, 2, 3, 4])).unwrap();
    assert_eq!(pool.enabled(), [choice(1, 0), choice(1, 1)]);
    assert_eq!(pool.apply(choice(2, 0), &mut ram), Applied { finished: false, failed: true });
    assert_eq!(ram.bytes[0x100], 0);
    let mut fresh = Vec::new();
    assert!(!pool.apply_telling(choice(1, 1), &mut ram, &mut fresh).finished);
    assert_eq!((ram.bytes[0], ram.bytes[4], fresh.len()), (0, 1, 0));
    assert!(pool.apply_telling(choice(1, 0), &mut ram, &mut fresh).finished);
    assert_eq!(fresh, [choice(2, 0)]);
    fresh.clear();
    pool.apply_telling(choice(2, 0), &mut ram, &mut fresh);
    assert_eq!(fresh, [choice(2, 1)]);
    assert_eq!(ram.bytes[0x100..0x104], [1, 2, 3, 0]);
    assert!(pool.apply(choice(2, 1), &mut ram).finished);
    assert!(pool.is_empty() && pool.bytes() == 0 && pool.is_done(TxnId(2)) && !pool.is_done(TxnId(3)));
}

#[test]
fn a_copy_whose_source_has_gone_stores_nothing() {
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    let mut ram = Ram::new();
    ram.bytes[0x200..0x208].fill(0xee);
    let gone = [at(0, 4), at(0x10000, 4)];
    let read = NewTxn { order: RELAXED, ..NewTxn::device(Kind::Read, Q, &gone, Payload::Sample) };
    let id = pool.issue(&read).unwrap();
    let to = [at(0x200, 4), at(0x204, 4)];
    pool.issue(&NewTxn { order: RELAXED, ..NewTxn::device(Kind::Write, Q, &to, Payload::From(id)) }).unwrap();
    for (txn, part) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        pool.apply(choice(txn, part), &mut ram);
    }
    assert!(pool.is_empty());
    assert_eq!(ram.bytes[0x200..0x208], [0xee; 8]);
    assert_eq!(pool.failures(), 3, "the part that is gone, and both stores");
}

#[test]
fn a_copy_takes_the_bytes_that_the_read_found_when_it_was_applied() {
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    let mut ram = Ram::new();
    let source = Stream::Requester(6);
    let from = [at(0, 4), at(4, 4)];
    let read = NewTxn { order: RELAXED, ..NewTxn::device(Kind::Read, source, &from, Payload::Sample) };
    let id = pool.issue(&read).unwrap();
    let to = [at(0x200, 5), at(0x300, 3)];
    let copy = NewTxn { order: RELAXED, ..NewTxn::device(Kind::Write, Q, &to, Payload::From(id)) };
    pool.issue(&copy).unwrap();
    assert_eq!(pool.issue(&copy), Err(Refused::Malformed), "a read feeds one write");
    ram.bytes[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    pool.apply(choice(1, 1), &mut ram);
    ram.bytes[..8].fill(9);
    assert_eq!(pool.enabled(), [choice(1, 0)]);
    pool.apply(choice(1, 0), &mut ram);
    assert_eq!(pool.enabled(), [choice(2, 0), choice(2, 1)]);
    pool.apply(choice(2, 1), &mut ram);
    pool.apply(choice(2, 0), &mut ram);
    assert_eq!(ram.bytes[0x200..0x205], [9, 9, 9, 9, 5]);
    assert_eq!(ram.bytes[0x300..0x303], [6, 7, 8]);
    assert!(ram.samples.is_empty(), "the write takes them");
    assert_eq!(pool.issue(&copy), Err(Refused::Malformed), "the read is done");
}

#[test]
fn the_passing_write_decides_and_pcie_makes_a_strict_one_a_release() {
    for (profile, order, waits) in [
        (Profile::PcieUnordered, KeyOrder::default(), true),
        (Profile::PcieUnordered, RELAXED, false),
        (Profile::PcieStrong, RELAXED, true),
        (Profile::Cx10Unordered, KeyOrder::default(), false),
        (Profile::Cx10Unordered, RELAXED, false),
    ] {
        let mut pool = Pool::new(profile.rules());
        pool.issue(&write(&[at(0, 4)], &[1; 4], RELAXED)).unwrap();
        pool.issue(&write(&[at(8, 4)], &[1; 4], order)).unwrap();
        let ready = pool.get(TxnId(2)).unwrap().is_ready();
        assert_eq!(!ready, waits, "{profile:?} {order:?}");
    }
}

#[test]
fn strict_parts_ascend_on_pcie_only() {
    for (profile, first) in [(Profile::PcieStrong, 1), (Profile::PcieUnordered, 3), (Profile::Cx10Unordered, 3)] {
        let mut pool = Pool::new(profile.rules());
        pool.issue(&write(&[at(0, 4), at(4, 4), at(8, 4)], &[1; 12], RELAXED)).unwrap();
        assert_eq!(pool.enabled().len(), first, "{profile:?}");
    }
}

#[test]
fn a_strong_read_waits_in_its_scope() {
    use crate::dma::order::knobs::RawScope;
    for (scope, expected) in
        [(RawScope::Qp, [false, false, true]), (RawScope::Bytes, [false, true, true]), (RawScope::Function, [false; 3])]
    {
        let mut pool = Pool::new(Rules { raw_scope: scope, ..Profile::Cx10Unordered.rules() });
        pool.issue(&write(&[at(0, 8)], &[1; 8], RELAXED)).unwrap();
        let ranges = [[at(7, 4)], [at(8, 4)], [at(0, 4)]];
        for (ranges, stream) in ranges.iter().zip([Q, Q, Stream::Responder(8)]) {
            pool.issue(&NewTxn::device(Kind::Read, stream, ranges, Payload::Sample)).unwrap();
        }
        let ready: Vec<bool> = pool.pending().skip(1).map(|view| view.is_ready()).collect();
        assert_eq!(ready, expected, "{scope:?}");
    }
}

#[test]
fn a_horizon_covers_what_was_issued_before_it_and_crosses_domains() {
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    let mut ram = Ram::new();
    pool.issue(&write(&[at(0, 4)], &[1; 4], RELAXED)).unwrap();
    let horizon = pool.horizon(Q);
    pool.issue(&write(&[at(4, 4)], &[1; 4], RELAXED)).unwrap();
    let ranges = [at(8, 4)];
    let flag = NewTxn { after: [None, Some(horizon)], node: 1, ..cqe(&ranges, &[1; 4]) };
    let flag = NewTxn { stream: Stream::Requester(1), ..flag };
    pool.issue(&flag).unwrap();
    assert!(pool.is_pending(horizon) && !pool.get(TxnId(3)).unwrap().is_ready());
    pool.apply(choice(1, 0), &mut ram);
    assert!(!pool.is_pending(horizon) && pool.get(TxnId(3)).unwrap().is_ready());
}

#[test]
fn a_scope_is_closed_over_what_its_transactions_wait_for() {
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    let other = Stream::Responder(9);
    let ranges = [at(0x40, 4)];
    pool.issue(&NewTxn { keys: [5, 0], ..write(&[at(0, 4)], &[1; 4], RELAXED) }).unwrap();
    pool.issue(&NewTxn { stream: other, ..write(&ranges, &[1; 4], RELAXED) }).unwrap();
    pool.issue(&cqe(&[at(0x100, 4)], &[1; 4])).unwrap();
    let eqe = NewTxn { chain: Some(3), ..NewTxn::device(Kind::Eqe, Stream::Eq(4), &ranges, Payload::Bytes(&[1; 4])) };
    pool.issue(&eqe).unwrap();
    let msi = NewTxn { chain: Some(3), ..NewTxn::device(Kind::Msi, Stream::Eq(4), &[], Payload::Signal(2)) };
    pool.issue(&msi).unwrap();
    let ids = |scope| pool.closure(scope).iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(ids(Scope::All), [1, 2, 3, 4, 5]);
    assert_eq!(ids(Scope::Eq(4)), [1, 3, 4, 5]);
    assert_eq!(ids(Scope::Cq(3)), [1, 3, 4, 5]);
    assert_eq!(ids(Scope::Qp(7)), [1, 3]);
    assert_eq!(ids(Scope::Key(5)), [1]);
    assert_eq!(ids(Scope::Key(0)), [0u64; 0]);
    assert_eq!(ids(Scope::Range(Iova(0x43), 1)), [1, 2, 3, 4]);
    assert_eq!(ids(Scope::Range(Iova(0x44), 0xbc)), [0u64; 0]);
    assert_eq!(ids(Scope::Range(Iova(0), u64::MAX)), [1, 2, 3, 4]);
    assert_eq!(ids(Scope::Stream(other)), [2]);
    assert_eq!(pool.discard(), 5);
    assert!(pool.is_empty() && pool.bytes() == 0 && pool.enabled().is_empty());
}

#[test]
fn the_pool_is_bounded_and_numbers_go_on_after_it_was_full() {
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    let mut ram = Ram::new();
    let ranges = [at(0, 4)];
    let data = write(&ranges, &[1; 4], RELAXED);
    for _ in 0..MAX_TRANSACTIONS {
        pool.issue(&data).unwrap();
    }
    assert_eq!(pool.issue(&data), Err(Refused::Full));
    for id in (1..=MAX_TRANSACTIONS as u64).rev() {
        assert!(pool.apply(choice(id, 0), &mut ram).finished);
    }
    assert_eq!(pool.issue(&data), Ok(TxnId(257)));
    assert_eq!(pool.horizon(Q).seq, 257);
    let short = NewTxn { payload: Payload::Bytes(&[1; 3]), ..data };
    assert_eq!(pool.issue(&short), Err(Refused::Malformed));
    assert_eq!(
        pool.issue(&write(&vec![at(0, 1); MAX_PARTS + 1], &[0; MAX_PARTS + 1], RELAXED)),
        Err(Refused::Malformed)
    );
}

#[test]
fn an_atomic_is_one_step_and_by_read_and_write_two() {
    use crate::dma::order::knobs::AtomicMode;
    let ranges = [at(0x80, 8)];
    let add = AtomicOp::FetchAdd { add: 5, boundary: 0 };
    let atomic = |stream| NewTxn::device(Kind::Atomic, stream, &ranges, Payload::Atomic(add));
    let mut ram = Ram::new();
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    pool.issue(&atomic(Q)).unwrap();
    assert!(pool.apply(choice(1, 0), &mut ram).finished);
    assert_eq!(ram.bytes[0x80], 5);
    let mut pool = Pool::new(Rules { atomic: AtomicMode::Rmw, ..Profile::Cx10Unordered.rules() });
    pool.issue(&atomic(Q)).unwrap();
    pool.issue(&atomic(Stream::Responder(9))).unwrap();
    assert_eq!(pool.enabled(), [choice(1, 0)], "the other one waits: same bytes");
    pool.apply(choice(1, 0), &mut ram);
    ram.bytes[0x80] = 100;
    assert_eq!(pool.enabled(), [choice(1, 1)]);
    assert!(pool.apply(choice(1, 1), &mut ram).finished);
    assert_eq!(ram.bytes[0x80], 10, "the processor's store is lost");
    pool.apply(choice(2, 0), &mut ram);
    pool.apply(choice(2, 1), &mut ram);
    assert_eq!(ram.bytes[0x80], 15);
    let old: Vec<u8> = ram.samples.iter().map(|(_, bytes)| bytes[0]).collect();
    assert_eq!(old, [0, 5, 10]);
    assert_eq!((pool.bytes(), pool.failures()), (0, 0));
}

#[test]
fn what_memory_refuses_is_counted_and_nothing_waits_for_it_for_ever() {
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    let mut ram = Ram::new();
    pool.issue(&write(&[at(0x10_0000, 4)], &[1; 4], RELAXED)).unwrap();
    pool.issue(&NewTxn { fence: Fence::Strong, ..write(&[at(0, 4)], &[1; 4], RELAXED) }).unwrap();
    assert_eq!(pool.apply(choice(1, 0), &mut ram), Applied { finished: true, failed: true });
    assert!(pool.apply(choice(2, 0), &mut ram).finished);
    assert_eq!((pool.failures(), ram.bytes[0]), (1, 1));
}

#[test]
fn the_quick_test_never_hides_a_wait() {
    use crate::dma::order::knobs::{AtomicMode, Fence2, RawScope};
    let mut pairs = 0;
    for profile in Profile::ALL {
        for (scope, mode) in [(RawScope::Qp, AtomicMode::Man), (RawScope::Function, AtomicMode::Rmw)] {
            let rules = Rules { raw_scope: scope, atomic: mode, fence2: Fence2::Pr1780, ..profile.rules() };
            for (later, earlier) in Kind::ALL.iter().flat_map(|kind| Kind::ALL.map(|other| (*kind, other))) {
                for bits in 0..8 {
                    let access = |kind, stream| Access {
                        kind,
                        stream,
                        seq: 1,
                        chain: Some(1),
                        relaxed_write: bits & 1 != 0,
                        relaxed_read: bits & 2 != 0,
                        fence: Fence::None,
                        after: [None; 2],
                        node: 0,
                    };
                    let later = access(later, Q);
                    let earlier = access(earlier, if bits & 4 != 0 { Q } else { Stream::Responder(8) });
                    if must_wait(&later, &earlier, &rules, || true).is_some() {
                        assert!(concerns(&later, &rules).has(earlier.kind), "{later:?} {earlier:?}");
                        pairs += 1;
                    }
                }
            }
        }
    }
    assert!(pairs > 1000, "{pairs}");
}

#[test]
fn a_part_of_several_ranges_is_one_step() {
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    let mut ram = Ram::new();
    ram.bytes[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let (from, to) = ([at(0, 4), at(4, 4), at(8, 4)], [at(0x100, 6), at(0x200, 2), at(0x300, 4)]);
    let read = NewTxn { order: RELAXED, steps: &[1, 2], ..NewTxn::device(Kind::Read, Q, &from, Payload::Sample) };
    let id = pool.issue(&read).unwrap();
    let write = NewTxn::device(Kind::Write, Q, &to, Payload::From(id));
    pool.issue(&NewTxn { order: RELAXED, steps: &[2, 1], ..write }).unwrap();
    assert_eq!(pool.enabled(), [choice(1, 0), choice(1, 1)]);
    for part in [choice(1, 1), choice(1, 0), choice(2, 0)] {
        assert!(!pool.apply(part, &mut ram).failed);
    }
    assert_eq!((&ram.bytes[0x100..0x106], &ram.bytes[0x200..0x202]), (&[1, 2, 3, 4, 5, 6][..], &[7, 8][..]));
    assert_eq!(ram.bytes[0x300..0x304], [0; 4], "the other part is pending");
    assert!(pool.apply(choice(2, 1), &mut ram).finished);
    assert_eq!(ram.bytes[0x300..0x304], [9, 10, 11, 12]);
    assert_eq!(pool.issue(&NewTxn { steps: &[1, 1], ..read }), Err(Refused::Malformed), "a range of no part");
}

#[test]
fn large_buffers_are_used_again_and_few_are_kept() {
    let mut pool = Pool::new(Profile::Cx10Unordered.rules());
    let mut ram = Ram::new();
    let ranges = [at(0, 0x8000)];
    let read = NewTxn { order: RELAXED, ..NewTxn::device(Kind::Read, Q, &ranges, Payload::Sample) };
    for round in 0..3 {
        for count in 0..200 {
            pool.issue(&read).unwrap();
            pool.apply(choice(round * 400 + 2 * count + 1, 0), &mut ram);
            pool.issue(&write(&[at(0, 4)], &[1; 4], RELAXED)).unwrap();
            pool.apply(choice(round * 400 + 2 * count + 2, 0), &mut ram);
        }
        assert_eq!((pool.spare.len(), pool.spare_bytes), (1, 0x8000), "one was enough");
    }
    for _ in 0..200 {
        pool.issue(&read).unwrap();
    }
    assert_eq!(pool.discard(), 200);
    assert_eq!((pool.spare.len(), pool.spare_bytes), (SPARE_BYTES / 0x8000, SPARE_BYTES));
}

#[test]
fn an_atomic_whose_first_half_fails_stores_nothing() {
    use crate::dma::order::knobs::AtomicMode;
    let mut pool = Pool::new(Rules { atomic: AtomicMode::Rmw, ..Profile::Cx10Unordered.rules() });
    let mut ram = Ram::new();
    let ranges = [at(0x1_0000, 8)];
    let add = Payload::Atomic(AtomicOp::FetchAdd { add: 5, boundary: 0 });
    pool.issue(&NewTxn::device(Kind::Atomic, Q, &ranges, add)).unwrap();
    assert!(pool.apply(choice(1, 0), &mut ram).failed);
    ram.bytes.resize(0x1_0008, 0);
    assert_eq!(pool.apply(choice(1, 1), &mut ram), Applied { finished: true, failed: true });
    assert_eq!(ram.bytes[0x1_0000..], [0; 8]);
}
