//! What a resource dump is made of: the menu, the contexts as the query commands return them, the entries of rings.

use super::{Syndrome, syn, text};
use crate::cmdif::{self, Ctx};
use crate::device::objects::Objects;
use crate::device::page_list::PageList;
use crate::device::rq::ReceiveMemory;
use crate::device::sq::WQEBB;
use crate::dma::{Iova, Load, LoadClass, Stream};
use crate::prm::cq::QueryCqOut;
use crate::prm::diag::{DumpSegment, ResourceDumpMenuRecord, RxSlice, SxSlice};
use crate::prm::eq::QueryEqOut;
use crate::prm::mkey::QueryMkeyOut;
use crate::prm::opcode::Opcode;
use crate::prm::qp::QueryQpOut;
use crate::prm::queue::{QueryRqOut, QuerySqOut, Rqc, Sqc};
use crate::prm::srq::{QueryRmpOut, QuerySrqOut, QueryXrcSrqOut};

/// How many objects of a segment can be asked for at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    One,
    Many,
}

/// A record of the menu.
#[derive(Debug)]
pub(super) struct Offer {
    pub segment: DumpSegment,
    pub name: &'static str,
    /// What `index1` numbers; nothing where there is only one of the kind.
    pub index1: Option<&'static str>,
    pub objects: Count,
    /// Whether the entries of a ring are dumped, from `index2` on; what they are.
    pub entries: bool,
    pub index2: Option<&'static str>,
}

const fn context(segment: DumpSegment, name: &'static str, index1: &'static str) -> Offer {
    Offer { segment, name, index1: Some(index1), objects: Count::Many, entries: false, index2: None }
}

const fn ring(segment: DumpSegment, name: &'static str, index1: &'static str, entry: &'static str) -> Offer {
    Offer { segment, name, index1: Some(index1), objects: Count::One, entries: true, index2: Some(entry) }
}

const fn single(segment: DumpSegment, name: &'static str, index1: Option<&'static str>) -> Offer {
    Offer { segment, name, index1, objects: Count::One, entries: false, index2: None }
}

/// The menu. Names, numbers and units are those of ConnectX devices; what a device keeps that this one does not have
/// (`HW_*PC`, `RDB`) is not there.
pub(super) static MENU: &[Offer] = &[
    context(DumpSegment::FULL_SRQC, "FULL_SRQC", "SRQN"),
    context(DumpSegment::FULL_CQC, "FULL_CQC", "CQN"),
    context(DumpSegment::FULL_EQC, "FULL_EQC", "EQN"),
    context(DumpSegment::FULL_QPC, "FULL_QPC", "QPN"),
    ring(DumpSegment::SND_BUFF, "SND_BUFF", "QPN", "WQEBB"),
    ring(DumpSegment::RCV_BUFF, "RCV_BUFF", "QPN", "DS"),
    ring(DumpSegment::SRQ_BUFF, "SRQ_BUFF", "SRQN", "DS"),
    ring(DumpSegment::CQ_BUFF, "CQ_BUFF", "CQN", "CQE"),
    ring(DumpSegment::EQ_BUFF, "EQ_BUFF", "EQN", "EQE"),
    single(DumpSegment::SX_SLICE, "SX_SLICE", Some("SLICE")),
    single(DumpSegment::SX_SLICE_ALL, "SX_SLICE_ALL", None),
    single(DumpSegment::RX_SLICE, "RX_SLICE", Some("SLICE")),
    single(DumpSegment::RX_SLICE_ALL, "RX_SLICE_ALL", None),
    context(DumpSegment::MKEY_CONTEXT, "MKEY_CONTEXT", "MKEY_IX"),
    context(DumpSegment::PRM_QUERY_QP, "PRM_QUERY_QP", "QPN"),
    context(DumpSegment::PRM_QUERY_CQ, "PRM_QUERY_CQ", "CQN"),
    context(DumpSegment::PRM_QUERY_MKEY, "PRM_QUERY_MKEY", "MKEY_IDX"),
    single(DumpSegment::QUERY_VNIC_ENV, "QUERY_VNIC_ENV", None),
];

static THE_MENU: Offer = single(DumpSegment::MENU, "MENU", None);

/// What is offered as `segment`.
pub(super) fn find(segment: DumpSegment) -> Option<&'static Offer> {
    MENU.iter().chain([&THE_MENU]).find(|offer| offer.segment == segment)
}

impl Offer {
    /// The record in the menu.
    pub fn record(&self) -> Vec<u8> {
        let mut record = ResourceDumpMenuRecord::zeroed();
        let index1 = u32::from(self.index1.is_some());
        let (many, entries) = (u32::from(self.objects == Count::Many), u32::from(self.entries));
        record.set_support_index1(index1);
        record.set_must_have_index1(index1);
        record.set_support_num_of_obj1(many);
        record.set_num_of_obj1_supports_all(many);
        record.set_support_index2(entries);
        record.set_support_num_of_obj2(entries);
        record.set_num_of_obj2_supports_all(entries);
        record.set_segment_type(self.segment.0.into());
        let dwords = |name: Option<&str>| text::<4>(name.unwrap_or("N/A"));
        for i in 0..4 {
            record.set_segment_name(i, dwords(Some(self.name))[i]);
            record.set_index1_name(i, dwords(self.index1)[i]);
            record.set_index2_name(i, dwords(self.index2)[i]);
        }
        record.into_inner()
    }
}

/// The first number from `id` on that has a context of the kind. Of the kinds that share a segment, the numbers of an
/// earlier one are lower.
pub(super) fn next(ctx: &Ctx<'_>, segment: DumpSegment, id: u32) -> Option<u32> {
    let Objects { qps, rqs, sqs, rmps, xrc_srqs, srqs, cqs, eqs, mkeys, .. } = &ctx.hca.objects;
    match segment {
        DumpSegment::FULL_QPC => {
            let rq = || rqs.next_from(id).map(|(id, _)| id);
            let sq = || sqs.next_from(id).map(|(id, _)| id);
            qps.next_from(id).map(|(id, _)| id).or_else(rq).or_else(sq)
        }
        DumpSegment::FULL_SRQC => {
            let xrc = || xrc_srqs.next_from(id).map(|(id, _)| id);
            let basic = || srqs.next_from(id).map(|(id, _)| id);
            rmps.next_from(id).map(|(id, _)| id).or_else(xrc).or_else(basic)
        }
        DumpSegment::PRM_QUERY_QP => qps.next_from(id).map(|(id, _)| id),
        DumpSegment::FULL_CQC | DumpSegment::PRM_QUERY_CQ => cqs.next_from(id).map(|(id, _)| id),
        DumpSegment::FULL_EQC => eqs.next_from(id).map(|(id, _)| id),
        DumpSegment::MKEY_CONTEXT | DumpSegment::PRM_QUERY_MKEY => mkeys.next_from(id).map(|(id, _)| id),
        _ => None,
    }
}

/// What a query command answers about an object.
fn query(ctx: &mut Ctx<'_>, opcode: Opcode, id: u32) -> Result<Vec<u8>, Syndrome> {
    cmdif::query(ctx, opcode, id).map_err(|_| syn::NOTHING_TO_DUMP)
}

fn cut(bytes: Vec<u8>, len: usize) -> Vec<u8> {
    let mut bytes = bytes;
    bytes.truncate(len);
    bytes
}

/// The context of the object `id`.
pub(super) fn context_of(ctx: &mut Ctx<'_>, segment: DumpSegment, id: u32) -> Result<Vec<u8>, Syndrome> {
    let Objects { rqs, sqs, xrc_srqs, srqs, .. } = &ctx.hca.objects;
    let (is_rq, is_sq) = (rqs.get(id).is_some(), sqs.get(id).is_some());
    let (is_xrc_srq, is_srq) = (xrc_srqs.get(id).is_some(), srqs.get(id).is_some());
    Ok(match segment {
        DumpSegment::FULL_QPC if is_rq => {
            let out = QueryRqOut::wrap(query(ctx, Opcode::QUERY_RQ, id)?);
            cut(out.rq_context().as_bytes().to_vec(), Rqc::SIZE)
        }
        DumpSegment::FULL_QPC if is_sq => {
            let out = QuerySqOut::wrap(query(ctx, Opcode::QUERY_SQ, id)?);
            cut(out.sq_context().as_bytes().to_vec(), Sqc::SIZE)
        }
        DumpSegment::FULL_QPC => QueryQpOut::wrap(query(ctx, Opcode::QUERY_QP, id)?).qpc().as_bytes().to_vec(),
        DumpSegment::FULL_SRQC if is_xrc_srq => {
            let out = QueryXrcSrqOut::wrap(query(ctx, Opcode::QUERY_XRC_SRQ, id)?);
            out.xrc_srq_context_entry().as_bytes().to_vec()
        }
        DumpSegment::FULL_SRQC if is_srq => {
            QuerySrqOut::wrap(query(ctx, Opcode::QUERY_SRQ, id)?).srq_context_entry().as_bytes().to_vec()
        }
        DumpSegment::FULL_SRQC => {
            QueryRmpOut::wrap(query(ctx, Opcode::QUERY_RMP, id)?).rmp_context().as_bytes().to_vec()
        }
        DumpSegment::FULL_CQC => QueryCqOut::wrap(query(ctx, Opcode::QUERY_CQ, id)?).cq_context().as_bytes().to_vec(),
        DumpSegment::FULL_EQC => {
            QueryEqOut::wrap(query(ctx, Opcode::QUERY_EQ, id)?).eq_context_entry().as_bytes().to_vec()
        }
        DumpSegment::MKEY_CONTEXT => {
            QueryMkeyOut::wrap(query(ctx, Opcode::QUERY_MKEY, id)?).memory_key_mkey_entry().as_bytes().to_vec()
        }
        // Without lists of pages, which may be longer than the driver takes.
        DumpSegment::PRM_QUERY_QP => cut(query(ctx, Opcode::QUERY_QP, id)?, QueryQpOut::SIZE),
        DumpSegment::PRM_QUERY_CQ => cut(query(ctx, Opcode::QUERY_CQ, id)?, QueryCqOut::SIZE),
        DumpSegment::PRM_QUERY_MKEY => cut(query(ctx, Opcode::QUERY_MKEY, id)?, QueryMkeyOut::SIZE),
        DumpSegment::QUERY_VNIC_ENV => query(ctx, Opcode::QUERY_VNIC_ENV, 0)?,
        DumpSegment::SX_SLICE | DumpSegment::SX_SLICE_ALL if id == 0 => sending(ctx),
        DumpSegment::RX_SLICE | DumpSegment::RX_SLICE_ALL if id == 0 => receiving(ctx),
        _ => return Err(syn::NOTHING_TO_DUMP),
    })
}

/// The one slice that sends.
fn sending(ctx: &Ctx<'_>) -> Vec<u8> {
    let (objects, counters) = (&ctx.hca.objects, &ctx.hca.port.counters.tx);
    let mut slice = SxSlice::zeroed();
    slice.set_link_up(ctx.hca.vport_is_up().into());
    slice.set_send_queues(objects.sqs.len() as u32);
    slice.set_send_queues_waiting(objects.sqs.iter().filter(|(_, entry)| entry.object.scheduled).count() as u32);
    slice.set_queue_pairs(objects.qps.len() as u32);
    slice.set_queue_pairs_waiting(ctx.hca.rdma.waiting() as u32);
    slice.set_errors(counters.errors as u32);
    slice.set_frames(counters.frames());
    slice.set_octets(counters.octets);
    slice.into_inner()
}

/// The one slice that receives.
fn receiving(ctx: &Ctx<'_>) -> Vec<u8> {
    let (objects, counters) = (&ctx.hca.objects, &ctx.hca.port.counters.rx);
    let mut slice = RxSlice::zeroed();
    slice.set_frame_under_way(ctx.hca.receive.busy().into());
    slice.set_receive_queues(objects.rqs.len() as u32);
    slice.set_receive_queues_flushing(objects.rqs.iter().filter(|(_, entry)| entry.object.flush_waits).count() as u32);
    slice.set_shared_receive_queues((objects.rmps.len() + objects.xrc_srqs.len() + objects.srqs.len()) as u32);
    slice.set_discards(counters.discards as u32);
    slice.set_errors(counters.errors as u32);
    slice.set_frames(counters.frames());
    slice.set_octets(counters.octets);
    slice.into_inner()
}

/// A ring: from where to where in its memory, and the bytes of an entry.
struct Ring<'a> {
    memory: &'a PageList,
    from: u64,
    bytes: u64,
    entry: u64,
    stream: Stream,
}

/// Bytes of a data segment.
const DS: u64 = 16;

fn ring_of<'a>(ctx: &'a Ctx<'_>, segment: DumpSegment, id: u32) -> Option<Ring<'a>> {
    let objects = &ctx.hca.objects;
    let stream = Stream::Queue(id);
    Some(match segment {
        DumpSegment::SND_BUFF => match objects.sqs.get(id) {
            Some(sq) => {
                let wq = &sq.object.wq;
                Ring { memory: &wq.buffer, from: 0, bytes: wq.len(), entry: WQEBB, stream }
            }
            None => {
                let qp = &objects.qps.get(id)?.object;
                let geometry = qp.geometry();
                let (from, bytes) = (geometry.rq_bytes, geometry.sq_bytes);
                Ring { memory: &qp.buffer, from, bytes, entry: WQEBB, stream: Stream::Requester(id) }
            }
        },
        DumpSegment::RCV_BUFF => match objects.rqs.get(id) {
            Some(rq) => match &rq.object.memory {
                ReceiveMemory::Inline(wq) => Ring { memory: &wq.buffer, from: 0, bytes: wq.len(), entry: DS, stream },
                ReceiveMemory::Pool(_) => return None,
            },
            None => {
                let qp = &objects.qps.get(id)?.object;
                let bytes = qp.geometry().rq_bytes;
                Ring { memory: &qp.buffer, from: 0, bytes, entry: DS, stream: Stream::Responder(id) }
            }
        },
        DumpSegment::SRQ_BUFF => {
            let rmp = objects.rmps.get(id).map(|entry| &entry.object.pool);
            let xrc = || objects.xrc_srqs.get(id).map(|entry| &entry.object.pool);
            let basic = || objects.srqs.get(id).map(|entry| &entry.object.pool);
            let memory = &rmp.or_else(xrc).or_else(basic)?.buffer;
            Ring { memory, from: 0, bytes: memory.len(), entry: DS, stream }
        }
        DumpSegment::CQ_BUFF => {
            let ring = objects.cqs.get(id)?.object.ring();
            let (memory, entry) = (&ring.buffer, ring.stride);
            Ring { memory, from: 0, bytes: ring.stride << ring.log_size, entry, stream: Stream::Cq(id) }
        }
        DumpSegment::EQ_BUFF => {
            let memory = objects.eqs.get(id)?.object.buffer();
            let entry = crate::device::eq::EQE_SIZE as u64;
            Ring { memory, from: 0, bytes: memory.len(), entry, stream: Stream::Eq(id) }
        }
        _ => return None,
    })
}

/// An entry of the ring of the object `id`, and how many there are.
pub(super) fn entry(ctx: &mut Ctx<'_>, segment: DumpSegment, id: u32, index: u32) -> Result<(Vec<u8>, u32), Syndrome> {
    let ring = ring_of(ctx, segment, id).ok_or(syn::NOTHING_TO_DUMP)?;
    let count = u32::try_from(ring.bytes / ring.entry).unwrap_or(u32::MAX);
    if index >= count {
        return Err(syn::NO_SUCH_ENTRY);
    }
    let at: Iova =
        ring.memory.entry(ring.from + u64::from(index) * ring.entry, ring.entry).ok_or(syn::NO_SUCH_ENTRY)?;
    let mut bytes = vec![0; ring.entry as usize];
    let load = Load::device(LoadClass::Wqe, ring.stream);
    ctx.bus.load(load, at, &mut bytes).map_err(|_| syn::UNREADABLE)?;
    Ok((bytes, count))
}
