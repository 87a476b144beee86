//! What every queue's creation names: the memory of its entries and its doorbell record (PRM "Work Queue" and
//! "Doorbell Records"; kernel `devx.c:devx_set_umem_valid`).
//!
//! Both are addresses given in the command, or, where the context's `…_umem_valid` says so, parts of a user memory
//! object that the queue then depends on.

use super::Ctx;
use super::error::{CmdError, syndromes};
use crate::device::devx::Umem;
use crate::device::objects::{Kind, ObjRef};
use crate::device::page_list::{ADAPTER_PAGE_SHIFT, PageList};
use crate::dma::Iova;
use crate::prm::status::Status;

syndromes! {
    /// Checks of queue memory and doorbell records.
    pub mod syn = 0x0005_0000;
    1 RECORD_MISALIGNED "the doorbell record is not aligned to 8 bytes";
    2 UMEM_RIGHTS "the user memory object does not allow what the device does with a queue there";
}

/// A part of a user memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemPart {
    /// The object.
    pub id: u32,
    /// Where the part begins, in bytes.
    pub offset: u64,
}

/// The memory of a queue as a command names it.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    /// Part of a user memory object; the rest is then not used.
    pub umem: Option<UmemPart>,
    /// Page addresses.
    pub pas: &'a [u8],
    /// `log_page_size` of the context: log2 of the page size, minus 12.
    pub log_page_size: u32,
    /// `page_offset` of the context: where the buffer begins in the first page, in 64ths of a page.
    pub page_offset: u32,
}

/// What the device does with the memory of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It fetches entries.
    Read,
    /// It writes entries.
    Write,
}

/// Finds the memory of a queue of `len` bytes, and the object it depends on.
pub(super) fn queue_memory(
    ctx: &Ctx<'_>,
    memory: Memory<'_>,
    len: u64,
    access: Access,
) -> Result<(PageList, Option<ObjRef>), CmdError> {
    if let Some(part) = memory.umem {
        return umem_part(ctx, part, len, access).map(|(list, umem)| (list, Some(umem)));
    }
    let shift = memory.log_page_size + ADAPTER_PAGE_SHIFT;
    let offset = u64::from(memory.page_offset) << shift.saturating_sub(6).min(56);
    PageList::parse(memory.pas, shift, offset, len).map(|list| (list, None))
}

/// Finds a doorbell record: `address` is its own, or with `umem` its offset in that object.
pub(super) fn doorbell_record(
    ctx: &Ctx<'_>,
    umem: Option<u32>,
    address: u64,
) -> Result<(Iova, Option<ObjRef>), CmdError> {
    const RECORD: u64 = 8;
    let bad = |syndrome| CmdError::new(Status::BAD_PARAM_ERR, syndrome);
    let (at, umem) = match umem {
        Some(id) => {
            let (list, umem) = umem_part(ctx, UmemPart { id, offset: address }, RECORD, Access::Read)?;
            (list.entry(0, RECORD).ok_or(bad(syn::RECORD_MISALIGNED))?, Some(umem))
        }
        None => (Iova(address), None),
    };
    if at.0 % RECORD != 0 {
        return Err(bad(syn::RECORD_MISALIGNED));
    }
    Ok((at, umem))
}

fn umem_part(ctx: &Ctx<'_>, part: UmemPart, len: u64, access: Access) -> Result<(PageList, ObjRef), CmdError> {
    let umem = ctx.hca.objects.get::<Umem>(ctx.uid, part.id)?;
    let granted = match access {
        Access::Read => umem.readable(),
        Access::Write => umem.writable(),
    };
    if !granted {
        return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::UMEM_RIGHTS));
    }
    Ok((umem.buffer(part.offset, len)?, ObjRef { kind: Kind::Umem, id: part.id }))
}
