//! Checks that CREATE_SQ and CREATE_RQ share: the ring and its doorbell record (PRM "Work Queue Context").

use super::Ctx;
use super::buffer::{Access, Memory, UmemPart, doorbell_record, queue_memory};
use super::error::{CmdError, Syndrome, syndromes};
use crate::device::objects::ObjRef;
use crate::device::wq::WorkQueue;
use crate::prm::queue::Wq;
use crate::prm::status::Status;
use crate::prm::values::WqType;

syndromes! {
    /// Checks of work queues.
    pub mod syn = 0x0034_0000;
    1 TYPE "the work queue type is not supported for this queue";
    2 SIGNATURE "work queue signatures are not advertised";
    3 STRIDE "log_wq_stride is outside the bounds of the capabilities";
    4 SIZE "log_wq_sz is beyond log_max_wq_sz";
    5 STRADDLES "an entry of the ring straddles pages";
    6 STRIDING "striding receive queues are not advertised";
    7 SHAMPO "header data split and merging are not advertised";
    8 WATERMARK "limit watermarks are not supported for this queue";
    9 TIMESTAMP_FORMAT "the timestamp format is not advertised";
    10 STATE "the context's state is not the one that the command needs";
    11 TRANSITION "the state change is not allowed";
    12 WRONG_STATE "the queue is not in the state that the command names";
    13 HAIRPIN "hairpin queues are not advertised";
    14 END_PADDING "the end padding mode is reserved";
    15 RESERVED_LKEY "rlky is not for user contexts";
}

pub(super) fn refuse(syndrome: Syndrome) -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, syndrome)
}

/// Which strides the capabilities allow.
pub(super) struct Strides {
    /// Capability with the smallest, log2.
    pub min: &'static str,
    /// Capability with the greatest, log2.
    pub max: &'static str,
}

/// The ring that `wq` describes, of the cyclic kind.
pub(super) fn work_queue(ctx: &Ctx<'_>, wq: &Wq<&[u8]>, strides: &Strides) -> Result<WorkQueue, CmdError> {
    match WqType(wq.wq_type() as u8) {
        WqType::CYCLIC => {}
        WqType::LINKED_LIST_STRIDING_RQ | WqType::CYCLIC_STRIDING_RQ => return Err(refuse(syn::STRIDING)),
        _ => return Err(refuse(syn::TYPE)),
    }
    if wq.wq_signature() != 0 && ctx.hca.caps.general("wq_signature") == 0 {
        return Err(refuse(syn::SIGNATURE));
    }
    if wq.shampo_enable() != 0 {
        return Err(refuse(syn::SHAMPO));
    }
    if wq.lwm() != 0 {
        return Err(refuse(syn::WATERMARK));
    }
    // 0: none, 1: to the cache line; padding is a hint that changes nothing here.
    if wq.end_padding_mode() > 1 {
        return Err(refuse(syn::END_PADDING));
    }
    let (log_stride, log_size) = (wq.log_wq_stride(), wq.log_wq_sz());
    let bound = |field| ctx.hca.caps.general(field);
    if !(bound(strides.min)..=bound(strides.max)).contains(&log_stride.into()) {
        return Err(refuse(syn::STRIDE));
    }
    if u64::from(log_size) > bound("log_max_wq_sz") {
        return Err(refuse(syn::SIZE));
    }
    let part = UmemPart { id: wq.wq_umem_id(), offset: wq.wq_umem_offset() };
    let memory = Memory {
        umem: (wq.wq_umem_valid() != 0).then_some(part),
        pas: wq.pas(),
        log_page_size: wq.log_wq_pg_sz(),
        page_offset: wq.page_offset(),
    };
    let (buffer, buffer_umem) = queue_memory(ctx, memory, 1 << (log_size + log_stride), Access::Read)?;
    if !buffer.aligned(1 << log_stride) {
        return Err(refuse(syn::STRADDLES));
    }
    let record_umem = (wq.dbr_umem_valid() != 0).then_some(wq.dbr_umem_id());
    let (record, record_umem) = doorbell_record(ctx, record_umem, wq.dbr_addr())?;
    let umems: Vec<ObjRef> = buffer_umem.into_iter().chain(record_umem).collect();
    Ok(WorkQueue { buffer, log_size, log_stride, record, umems })
}

/// Checks `ts_format` against the capability `field`, which says what exists: 0 free running, 1 real time, 2 both.
pub(super) fn check_timestamps(ctx: &Ctx<'_>, field: &str, format: u32) -> Result<(), CmdError> {
    const FREE_RUNNING: u32 = 0;
    const DEFAULT: u32 = 1;
    const REAL_TIME: u32 = 2;
    const CAP_REAL_TIME_ONLY: u64 = 1;
    let cap = ctx.hca.caps.general(field);
    match format {
        DEFAULT => Ok(()),
        FREE_RUNNING if cap != CAP_REAL_TIME_ONLY => Ok(()),
        REAL_TIME if cap != 0 => Ok(()),
        _ => Err(refuse(syn::TIMESTAMP_FORMAT)),
    }
}
