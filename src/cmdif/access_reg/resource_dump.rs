//! RESOURCE_DUMP: the contexts and rings of the device's objects, written to the driver's memory segment by segment
//! (kernel `diag/rsc_dump.c`, `en/health.c:mlx5e_health_rsc_fmsg_dump`, `infiniband/hw/mlx5/restrack.c`).
//!
//! A dump is a row of segments: what dumps, what was asked for, the resources, the end. An access brings as many as have
//! room in the driver's buffer; `more_dump` says that there are more, and `device_opaque` where to go on. Nothing is kept
//! between accesses: the objects are as they are when their turn comes. A resource that does not exist, or is gone
//! meanwhile, is an error segment; the register itself is only refused for what no dump can be made of.
//!
//! The data goes through the memory key that the register names, or into the register (`inline_dump`).

use super::{Image, Register, refuse, syn};
use crate::cmdif::Ctx;
use crate::cmdif::error::{CmdError, Syndrome, meaning};
use crate::device::capabilities::DEBUG;
use crate::dma::Iova;
use crate::prm::commands::RegisterId;
use crate::prm::diag::{
    DumpSegment, ResourceDump, ResourceDumpCommandSegment, ResourceDumpErrorSegment, ResourceDumpInfoSegment,
    ResourceDumpMenuRecord, ResourceDumpMenuSegment, ResourceDumpResourceSegment, ResourceDumpSegmentHeader,
    ResourceDumpTerminateSegment,
};

mod resources;
#[cfg(test)]
mod tests;

use resources::{Count, MENU, Offer};

pub(super) const REGISTERS: &[Register] =
    &[Register { id: RegisterId::RESOURCE_DUMP, read: refuse_read, write: Some(write) }];

/// `num_of_obj1`, `num_of_obj2`: all.
const ALL: u32 = 0xffff;
/// Bytes of `inline_data`.
const INLINE: usize = 208;
/// Bytes of one access at most, so that it takes little time: the query behind a context may tell of a long list of pages.
const MAX_BYTES: usize = 8 << 10;
/// `dump_version`.
const VERSION: u32 = 1;

/// Where a dump goes on: the driver's `device_opaque`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    stage: Stage,
    /// Dwords of the next unit that were written.
    skip: u32,
    /// The number of the object whose turn it is, or the smallest that it may have.
    id: u32,
    /// The entry of its ring, or how many objects were dumped, or the record of the menu.
    entry: u32,
    /// `seq_num` of the next access.
    sequence: u32,
}

/// The parts of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Info,
    Command,
    Body,
    End,
}

const SKIP_BITS: u32 = 8;
const ID_BITS: u32 = 24;
const ENTRY_BITS: u32 = 23;

impl Cursor {
    fn start(request: &ResourceDump<&[u8]>) -> Cursor {
        Cursor { stage: Stage::Info, skip: 0, id: request.index1(), entry: request.index2(), sequence: 0 }
    }

    /// The cursor of an access that goes on with a dump; none for one that begins it.
    fn decode(opaque: u64) -> Option<Cursor> {
        let field = |at: u32, bits: u32| (opaque >> at) as u32 & ((1 << bits) - 1);
        (opaque >> 63 != 0).then(|| Cursor {
            stage: [Stage::Info, Stage::Command, Stage::Body, Stage::End][field(61, 2) as usize],
            sequence: field(57, 4),
            skip: field(ID_BITS + ENTRY_BITS, SKIP_BITS),
            id: field(ENTRY_BITS, ID_BITS),
            entry: field(0, ENTRY_BITS),
        })
    }

    fn encode(self) -> u64 {
        let mask = |value: u32, bits: u32| u64::from(value & ((1 << bits) - 1));
        1 << 63
            | (self.stage as u64) << 61
            | mask(self.sequence, 4) << 57
            | mask(self.skip, SKIP_BITS) << (ID_BITS + ENTRY_BITS)
            | mask(self.id, ID_BITS) << ENTRY_BITS
            | mask(self.entry, ENTRY_BITS)
    }
}

fn capable(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    if ctx.hca.caps.get(DEBUG, "resource_dump") == 0 { Err(refuse(syn::UNKNOWN_REGISTER)) } else { Ok(()) }
}

fn refuse_read(ctx: &mut Ctx<'_>, _data: &[u8]) -> Image {
    capable(ctx)?;
    Err(refuse(syn::WRITE_ONLY))
}

fn write(ctx: &mut Ctx<'_>, data: &[u8]) -> Image {
    capable(ctx)?;
    let request = ResourceDump::new(data)?;
    let offer = check(ctx, &request)?;
    let first = request.device_opaque() == 0;
    let cursor = if first { Some(Cursor::start(&request)) } else { Cursor::decode(request.device_opaque()) };
    let mut cursor = cursor.filter(|c| c.sequence == request.seq_num()).ok_or(refuse(syn::DUMP_SEQUENCE))?;
    let inline = request.inline_dump() != 0;
    let room = if inline { INLINE } else { (request.size() as usize).min(MAX_BYTES) } & !3;
    if room == 0 {
        return Err(refuse(syn::DUMP_SIZE));
    }
    let mut bytes = Vec::new();
    let more = fill(ctx, offer, &request, &mut cursor, room, &mut bytes);
    let mut out = ResourceDump::new(data.get(..ResourceDump::SIZE).unwrap_or(data).to_vec())?;
    if inline {
        for (i, dword) in bytes.chunks_exact(4).enumerate() {
            out.set_inline_data(i, u32::from_be_bytes(dword.try_into().unwrap_or_default()));
        }
    } else {
        ctx.hca.store_through_key(request.mkey(), request.address(), &bytes, None, ctx.bus).map_err(|error| {
            log::debug!(target: "cx10::cmd", "dump of {} bytes at {}: {error}", bytes.len(), Iova(request.address()));
            refuse(syn::DUMP_KEY)
        })?;
        // What the command's answer tells of is there when it is.
        ctx.bus.drain(crate::dma::order::Scope::Stream(crate::dma::Stream::Command));
    }
    cursor.sequence = (request.seq_num() + 1) & 0xf;
    out.set_seq_num(cursor.sequence);
    out.set_more_dump(more.into());
    out.set_device_opaque(if more { cursor.encode() } else { 0 });
    out.set_size(bytes.len() as u32);
    Ok(out.into_inner())
}

/// What the menu offers under the register's segment type, if the register asks for no more than that.
fn check(ctx: &Ctx<'_>, request: &ResourceDump<&[u8]>) -> Result<&'static Offer, CmdError> {
    let vhca = u64::from(request.vhca_id());
    // 0 is what a driver sends that does not ask for another function.
    if vhca != 0 && vhca != ctx.hca.caps.general("vhca_id") {
        return Err(refuse(syn::DUMP_FUNCTION));
    }
    let segment = DumpSegment(request.segment_type() as u16);
    let offer = resources::find(segment).ok_or(refuse(syn::DUMP_TYPE))?;
    if request.index1() >= 1 << ID_BITS || request.index2() >= 1 << ENTRY_BITS {
        return Err(refuse(syn::DUMP_INDEX));
    }
    // The driver asks for one object even of what has no number (`restrack.c`, `en/health.c`).
    if offer.objects == Count::One && request.num_of_obj1() > 1 {
        return Err(refuse(syn::DUMP_COUNT));
    }
    Ok(offer)
}

/// Appends segments until the room is used up or nothing is left; whether more is left.
fn fill(
    ctx: &mut Ctx<'_>,
    offer: &Offer,
    request: &ResourceDump<&[u8]>,
    cursor: &mut Cursor,
    room: usize,
    bytes: &mut Vec<u8>,
) -> bool {
    loop {
        let (unit, next) = unit(ctx, offer, request, *cursor);
        let rest = unit.get(cursor.skip as usize * 4..).unwrap_or_default();
        let left = room - bytes.len();
        if rest.len() > left {
            // Segments stay whole where they can: the kernel takes the menu apart page by page.
            if bytes.is_empty() {
                bytes.extend_from_slice(&rest[..left]);
                cursor.skip += left as u32 / 4;
            }
            return true;
        }
        bytes.extend_from_slice(rest);
        match next {
            Some(next) => *cursor = Cursor { skip: 0, ..next },
            None => return false,
        }
    }
}

fn header(segment: DumpSegment, bytes: usize) -> ResourceDumpSegmentHeader<Vec<u8>> {
    let mut header = ResourceDumpSegmentHeader::zeroed();
    header.set_length_dw(bytes as u32 / 4);
    header.set_segment_type(segment.0.into());
    header
}

/// Writes the head of a segment into its first bytes.
fn headed(mut segment: Vec<u8>, kind: DumpSegment, whole: usize) -> Vec<u8> {
    segment[..ResourceDumpSegmentHeader::SIZE].copy_from_slice(header(kind, whole).as_bytes());
    segment
}

/// The segment, or the part of the menu, at the cursor, and what comes after it.
fn unit(ctx: &mut Ctx<'_>, offer: &Offer, request: &ResourceDump<&[u8]>, cursor: Cursor) -> (Vec<u8>, Option<Cursor>) {
    let at = |stage| Some(Cursor { stage, ..cursor });
    match cursor.stage {
        Stage::Info => (info(ctx), at(Stage::Command)),
        Stage::Command => (command(request, offer, ctx.hca.caps.general("vhca_id") as u32), at(Stage::Body)),
        Stage::Body if offer.segment == DumpSegment::MENU => menu(cursor),
        Stage::Body => match body(ctx, offer, request, cursor) {
            Ok((unit, next)) => (unit, next.or(at(Stage::End))),
            Err(syndrome) => (error(syndrome), at(Stage::End)),
        },
        Stage::End => {
            let end = ResourceDumpTerminateSegment::zeroed().into_inner();
            (headed(end, DumpSegment::TERMINATE, ResourceDumpTerminateSegment::SIZE), None)
        }
    }
}

fn info(ctx: &Ctx<'_>) -> Vec<u8> {
    let profile = &ctx.hca.profile;
    let version = profile.firmware.version;
    let mut info = ResourceDumpInfoSegment::zeroed();
    info.set_dump_version(VERSION);
    info.set_hw_version(u32::from(profile.pci.device_id) << 16 | u32::from(profile.pci.revision));
    info.set_fw_version(u32::from(version.major) << 24 | u32::from(version.minor) << 16 | u32::from(version.subminor));
    headed(info.into_inner(), DumpSegment::INFO, ResourceDumpInfoSegment::SIZE)
}

fn command(request: &ResourceDump<&[u8]>, offer: &Offer, vhca_id: u32) -> Vec<u8> {
    let mut command = ResourceDumpCommandSegment::zeroed();
    command.set_segment_called(offer.segment.0.into());
    command.set_vhca_id(vhca_id);
    command.set_index1(request.index1());
    command.set_index2(request.index2());
    command.set_num_of_obj1(request.num_of_obj1());
    command.set_num_of_obj2(request.num_of_obj2());
    headed(command.into_inner(), DumpSegment::COMMAND, ResourceDumpCommandSegment::SIZE)
}

fn error(syndrome: Syndrome) -> Vec<u8> {
    let mut error = ResourceDumpErrorSegment::zeroed();
    error.set_syndrome_id(syndrome.0 & 0xffff);
    for (i, dword) in text::<8>(meaning(syndrome.0).unwrap_or_default()).into_iter().enumerate() {
        error.set_error(i, dword);
    }
    headed(error.into_inner(), DumpSegment::ERROR, ResourceDumpErrorSegment::SIZE)
}

/// The beginning of a text in so many dwords, ended by a zero.
fn text<const DWORDS: usize>(text: &str) -> [u32; DWORDS] {
    let byte = |at: usize| text.as_bytes().get(at).copied().filter(|_| at < 4 * DWORDS - 1).unwrap_or(0);
    std::array::from_fn(|i| u32::from_be_bytes(std::array::from_fn(|j| byte(4 * i + j))))
}

/// The menu is one segment in parts: its head, then its records.
fn menu(cursor: Cursor) -> (Vec<u8>, Option<Cursor>) {
    let next = |entry: u32| {
        let stage = if entry as usize > MENU.len() { Stage::End } else { Stage::Body };
        Some(Cursor { stage, entry, ..cursor })
    };
    let Some(record) = cursor.entry.checked_sub(1) else {
        let mut menu = ResourceDumpMenuSegment::zeroed();
        menu.set_num_of_records(MENU.len() as u32);
        let whole = ResourceDumpMenuSegment::SIZE + MENU.len() * ResourceDumpMenuRecord::SIZE;
        return (headed(menu.into_inner(), DumpSegment::MENU, whole), next(1));
    };
    let record = MENU.get(record as usize).map(Offer::record).unwrap_or_default();
    (record, next(cursor.entry + 1))
}

/// The next resource, or the next entry of its ring; none after the last.
fn body(
    ctx: &mut Ctx<'_>,
    offer: &Offer,
    request: &ResourceDump<&[u8]>,
    cursor: Cursor,
) -> Result<(Vec<u8>, Option<Cursor>), Syndrome> {
    if offer.entries {
        let (payload, entries) = resources::entry(ctx, offer.segment, cursor.id, cursor.entry)?;
        let wanted = match request.num_of_obj2() {
            ALL => entries,
            count => request.index2().saturating_add(count.max(1)).min(entries),
        };
        let entry = cursor.entry + 1;
        let next = (entry < wanted).then_some(Cursor { entry, ..cursor });
        return Ok((resource(offer.segment, cursor.id, cursor.entry, &payload), next));
    }
    let wanted = match request.num_of_obj1() {
        ALL => u32::MAX,
        count => count.max(1),
    };
    // An object that is asked for by number has to exist, those of a range are the ones that do.
    let done = cursor.entry - request.index2().min(cursor.entry);
    let id = if wanted == 1 {
        cursor.id
    } else {
        resources::next(ctx, offer.segment, cursor.id).ok_or(syn::NOTHING_TO_DUMP)?
    };
    let payload = resources::context_of(ctx, offer.segment, id)?;
    let following = resources::next(ctx, offer.segment, id + 1).filter(|_| done + 1 < wanted);
    let next = following.map(|id| Cursor { id, entry: cursor.entry + 1, ..cursor });
    Ok((resource(offer.segment, id, request.index2(), &payload), next))
}

fn resource(segment: DumpSegment, index1: u32, index2: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = ResourceDumpResourceSegment::with_tail(payload.len());
    out.set_index1(index1);
    out.set_index2(index2);
    out.payload_mut().copy_from_slice(payload);
    let out = out.into_inner();
    let whole = out.len();
    headed(out, segment, whole)
}
