//! Registers of the firmware tracer: MTRC_CAP, MTRC_CONF, MTRC_STDB, MTRC_CTRL, and CORE_DUMP, which makes the device
//! trace its state (kernel `diag/fw_tracer.c`).
//!
//! The driver takes the tracer over, names a ring behind a memory key of its own, switches messages on and asks for an
//! event. There is one function, so nobody else ever owns the tracer and it is granted whenever it is asked for.

use super::{Image, Register, refuse, syn};
use crate::cmdif::Ctx;
use crate::cmdif::error::CmdError;
use crate::device::capabilities::DEBUG;
use crate::device::tracer::{FIRST_SOURCE, Ring, SOURCES, strings};
use crate::mkey::context::Rights;
use crate::prm::commands::RegisterId;
use crate::prm::diag::{CoreDumpReg, MtrcCap, MtrcConf, MtrcCtrl, MtrcStdb};

pub(super) const REGISTERS: &[Register] = &[
    Register { id: RegisterId::MTRC_CAP, read: read_cap, write: Some(write_cap) },
    Register { id: RegisterId::MTRC_CONF, read: read_conf, write: Some(write_conf) },
    Register { id: RegisterId::MTRC_STDB, read: read_strings, write: Some(read_strings) },
    Register { id: RegisterId::MTRC_CTRL, read: read_ctrl, write: Some(write_ctrl) },
    Register { id: RegisterId::CORE_DUMP, read: refuse_read, write: Some(write_core_dump) },
];

/// `trc_ver`: bit 0 of `urts` tells that a timestamp is not reliable.
const VERSION: u32 = 1;
/// `log_max_trace_buffer_size`: 4 MiB.
const MAX_LOG_PAGES: u32 = 10;
/// `trace_mode`: traces go to memory.
const TO_MEMORY: u32 = 1;
/// `modify_field_select` of MTRC_CTRL.
const SELECT_STATUS: u32 = 1;
/// Bytes of the string database that one access brings at most.
const MAX_READ: usize = 4096;

fn capable(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    if ctx.hca.profile.firmware.tracer { Ok(()) } else { Err(refuse(syn::UNKNOWN_REGISTER)) }
}

fn own(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    capable(ctx)?;
    if ctx.hca.tracer.owned { Ok(()) } else { Err(refuse(syn::TRACER_OWNER)) }
}

fn read_cap(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    capable(ctx)?;
    MtrcCap::new(data)?;
    let mut out = MtrcCap::zeroed();
    out.set_trace_owner(ctx.hca.tracer.owned.into());
    out.set_trace_to_memory(1);
    out.set_trc_ver(VERSION);
    out.set_first_string_trace(FIRST_SOURCE);
    out.set_num_string_trace(SOURCES);
    out.set_log_max_trace_buffer_size(MAX_LOG_PAGES);
    let sections = &strings().sections;
    out.set_num_string_db(sections.len() as u32);
    for (i, section) in sections.iter().enumerate() {
        if let Some(mut param) = out.string_db_param_mut(i) {
            param.set_string_db_base_address(section.base);
            param.set_string_db_size(section.bytes.len() as u32);
        }
    }
    Ok(out.into_inner())
}

/// Grants the tracer, or takes it back: then it stops and forgets its ring.
fn write_cap(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    capable(ctx)?;
    let owned = MtrcCap::new(data)?.trace_owner() != 0;
    if !owned {
        ctx.hca.tracer.reset();
    }
    ctx.hca.tracer.owned = owned;
    read_cap(ctx, data)
}

fn read_conf(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    capable(ctx)?;
    MtrcConf::new(data)?;
    let mut out = MtrcConf::zeroed();
    if let Some(ring) = ctx.hca.tracer.ring() {
        out.set_trace_mode(TO_MEMORY);
        out.set_log_trace_buffer_size(ring.log_pages);
        out.set_trace_mkey(ring.key);
    }
    Ok(out.into_inner())
}

fn write_conf(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    own(ctx)?;
    let conf = MtrcConf::new(data)?;
    if conf.trace_mode() != TO_MEMORY {
        return Err(refuse(syn::TRACE_MODE));
    }
    let (key, log_pages) = (conf.trace_mkey(), conf.log_trace_buffer_size());
    let bad = refuse(syn::TRACE_BUFFER);
    let context = ctx.hca.objects.mkeys.get(key >> 8).map(|entry| &entry.object.context).ok_or(bad)?;
    let ring = Ring { key, start: context.start_addr, log_pages };
    let fits = log_pages <= MAX_LOG_PAGES && (context.length64 || ring.len() <= context.len);
    let writable = u32::from(context.variant) == key & 0xff && context.rights.contains(Rights::LOCAL_WRITE);
    if !fits || !writable {
        return Err(bad);
    }
    ctx.hca.tracer.set_ring(ring);
    read_conf(ctx, data)
}

/// The string database, a part at a time. The driver writes the register to say which.
fn read_strings(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    capable(ctx)?;
    let stdb = MtrcStdb::new(data)?;
    let (index, from, len) = (stdb.string_db_index() as usize, stdb.start_offset() as usize, stdb.read_size() as usize);
    let bad = refuse(syn::STRING_DB);
    let bytes = &strings().sections.get(index).ok_or(bad)?.bytes;
    let end = from.checked_add(len).filter(|_| len <= MAX_READ).ok_or(bad)?;
    let part = bytes.get(from..end).ok_or(bad)?;
    let mut out = MtrcStdb::with_tail(len);
    out.set_string_db_index(stdb.string_db_index());
    out.set_read_size(stdb.read_size());
    out.set_start_offset(stdb.start_offset());
    out.string_db_data_mut().copy_from_slice(part);
    Ok(out.into_inner())
}

fn read_ctrl(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    capable(ctx)?;
    MtrcCtrl::new(data)?;
    let time = ctx.hca.tracer.timestamp();
    let mut out = MtrcCtrl::zeroed();
    out.set_trace_status(ctx.hca.tracer.is_running().into());
    out.set_current_timestamp52_32((time >> 32) as u32);
    out.set_current_timestamp31_0(time as u32);
    Ok(out.into_inner())
}

fn write_ctrl(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    own(ctx)?;
    let ctrl = MtrcCtrl::new(data)?;
    if ctrl.modify_field_select() & SELECT_STATUS != 0 {
        let status = ctrl.trace_status();
        if status > 1 || !ctx.hca.tracer.run(status == 1) {
            return Err(refuse(syn::TRACE_STATUS));
        }
    }
    if ctrl.arm_event() != 0 {
        ctx.hca.tracer.arm();
    }
    read_ctrl(ctx, data)
}

fn core_dumps(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    if ctx.hca.caps.get(DEBUG, "core_dump_general") == 0 { Err(refuse(syn::UNKNOWN_REGISTER)) } else { Ok(()) }
}

fn refuse_read(ctx: &mut Ctx<'_>, _data: &[u8]) -> Image {
    core_dumps(ctx)?;
    Err(refuse(syn::WRITE_ONLY))
}

/// The whole dump is in the ring before the command is answered: the driver looks there next.
fn write_core_dump(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    core_dumps(ctx)?;
    let dump = CoreDumpReg::new(data)?;
    if dump.core_dump_type() != 0 {
        return Err(refuse(syn::CORE_DUMP_TYPE));
    }
    let vhca = u64::from(dump.vhca_id());
    if vhca != 0 && vhca != ctx.hca.caps.general("vhca_id") {
        return Err(refuse(syn::DUMP_FUNCTION));
    }
    ctx.hca.tracer.tick(ctx.now);
    ctx.hca.core_dump();
    ctx.hca.write_traces(ctx.bus);
    if !ctx.hca.tracer.is_running() {
        return Err(refuse(syn::NOT_TRACING));
    }
    ctx.bus.drain(crate::dma::order::Scope::Stream(crate::dma::Stream::Command));
    let out = CoreDumpReg::zeroed();
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests;
