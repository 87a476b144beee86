//! CREATE_MKEY, QUERY_MKEY, DESTROY_MKEY (PRM "Memory Key Commands"; kernel `mr.c`, `mlx5_ib mr.c`).

use super::error::{CmdError, Syndrome, syndromes};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::config::KeyKind;
use crate::device::devx::Umem;
use crate::device::memic::{BAR_OFFSET, MemicRange};
use crate::device::objects::{Kind, ObjRef};
use crate::mkey::MemoryKey;
use crate::mkey::context::{Defect, KeyContext, Mode, Rights, syn as context};
use crate::mkey::judged::{self, Judged, Outcome};
use crate::mkey::list::{OCTWORD, Translations};
use crate::mkey::policy::{self, Grant, Origin, Rules, Violation};
use crate::prm::mkey::{CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn, QueryMkeyIn, QueryMkeyOut};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;

syndromes! {
    /// Checks of the commands for memory keys.
    pub mod syn = 0x0021_0000;
    1 DATA_DIRECT "data_direct is not advertised";
    2 UMEM_MODE "mkey_umem_valid is for MTT keys only";
    3 LIST_IN_MODE "translations_octword_actual_size must be 0 in this access mode";
    4 LIST_TOO_LONG "translations_octword_actual_size is beyond mkc.translations_octword_size";
    5 LIST_MISSING "the input ends before the list of translations_octword_actual_size does";
    6 MISALIGNED "a page address is not aligned to mkc.log_page_size";
    7 UMEM_RANGE "the key does not fit into the user memory region";
    8 UMEM_RIGHTS "the key allows what the user memory region does not";
    9 MEMIC_RANGE "the key does not lie in allocated device memory";
    10 PRIVILEGED_MODE "user contexts cannot make keys on DMA addresses";
    11 DATA_DIRECT_MODE "data_direct is for keys on DMA addresses only";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::CREATE_MKEY, create_mkey),
    Command::user(Opcode::QUERY_MKEY, query_mkey),
    Command::user(Opcode::DESTROY_MKEY, destroy_mkey),
];

fn defect(field: &'static str, value: u64, syndrome: Syndrome) -> Defect {
    Defect { field, value, syndrome }
}

fn create_mkey(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    let input = CreateMkeyIn::new(input)?;
    let context = KeyContext::read(&input.memory_key_mkey_entry());
    let kind = context.kind();
    let origin = Origin::CreateMkey;
    let Admitted { grant, list, mut deps } = match admit(ctx, &context, kind, &input) {
        Ok(admitted) => admitted,
        Err(Violation { defect, ordering }) => {
            ctx.hca.note_key(judged::refused(&context, kind, ctx.uid, origin, defect, ordering));
            return Err(CmdError::new(Status::BAD_PARAM_ERR, defect.syndrome));
        }
    };
    deps.push(ObjRef { kind: Kind::Pd, id: context.pd });
    let order = context.order();
    let index = ctx.hca.objects.create(ctx.uid, MemoryKey::new(kind, context, list, grant), &deps)?;
    let outcome = Outcome::Created { index, grant, order };
    ctx.hca.note_key(Judged { kind, origin, outcome });
    let mut out = CreateMkeyOut::zeroed();
    out.set_mkey_index(index);
    Ok(out.into_inner())
}

/// What a key becomes if the objects that it names exist.
struct Admitted {
    grant: Grant,
    list: Translations,
    deps: Vec<ObjRef>,
}

fn other(defect: Defect) -> Violation {
    Violation { defect, ordering: false }
}

/// Judges the context and the command around it: what the device does not have, then the ordering policy, then sizes
/// and lists.
fn admit(
    ctx: &Ctx<'_>,
    context: &KeyContext,
    kind: KeyKind,
    input: &CreateMkeyIn<&[u8]>,
) -> Result<Admitted, Violation> {
    if input.data_direct() != 0 {
        if ctx.hca.caps.general("data_direct") == 0 {
            return Err(other(defect("data_direct", 1, syn::DATA_DIRECT)));
        }
        if context.mode != Mode::Pa {
            return Err(other(defect("data_direct", 1, syn::DATA_DIRECT_MODE)));
        }
    }
    context.check().map_err(other)?;
    let caps = ctx.hca.key_rules.ordering(ctx.hca.pci_relaxed_ordering);
    let grant = policy::judge(context, kind, &Rules { config: &ctx.hca.profile.mkey, caps })?;
    ctx.hca.key_rules.limits.check(context, input.mkey_umem_valid() != 0).map_err(other)?;
    let (list, deps) = translations(ctx, context, input).map_err(other)?;
    Ok(Admitted { grant, list, deps })
}

fn translations(
    ctx: &Ctx<'_>,
    context: &KeyContext,
    input: &CreateMkeyIn<&[u8]>,
) -> Result<(Translations, Vec<ObjRef>), Defect> {
    let octwords = input.translations_octword_actual_size();
    let actual = |syndrome| defect("translations_octword_actual_size", octwords.into(), syndrome);
    if ctx.uid != 0 && context.mode == Mode::Pa {
        return Err(defect("access_mode", context.mode.value().into(), syn::PRIVILEGED_MODE));
    }
    if input.mkey_umem_valid() != 0 {
        return umem(ctx, context, input);
    }
    if context.mode == Mode::Memic {
        return memic(ctx, context, octwords);
    }
    if octwords != 0 && context.mode.entries_per_octword() == 0 {
        return Err(actual(syn::LIST_IN_MODE));
    }
    if input.data_direct() != 0 {
        return Ok((Translations::DataDirect, Vec::new()));
    }
    if octwords > context.octwords {
        return Err(actual(syn::LIST_TOO_LONG));
    }
    if !context.free && matches!(context.mode, Mode::Mtt | Mode::Ksm) {
        let needed = context.entries_needed().unwrap_or(u64::MAX);
        if needed > context.room() {
            return Err(defect("translations_octword_size", context.octwords.into(), context::CAPACITY));
        }
    }
    let bytes = input.klm_pas_mtt().get(..octwords as usize * OCTWORD).ok_or(actual(syn::LIST_MISSING))?;
    let (access, repeat) = (input.pg_access() != 0, ctx.hca.key_rules.repeat_blocks);
    let list = Translations::parse(context.mode, bytes, context.log_page_size, access, repeat)
        .map_err(|misaligned| defect("klm_pas_mtt", misaligned.address, syn::MISALIGNED))?;
    Ok((list, Vec::new()))
}

/// A key whose pages are those of a user memory region; `mkc.log_page_size` and the list sizes only matter to a UMR.
fn umem(
    ctx: &Ctx<'_>,
    context: &KeyContext,
    input: &CreateMkeyIn<&[u8]>,
) -> Result<(Translations, Vec<ObjRef>), Defect> {
    if context.mode != Mode::Mtt {
        return Err(defect("mkey_umem_valid", 1, syn::UMEM_MODE));
    }
    let (id, offset) = (input.mkey_umem_id(), input.mkey_umem_offset());
    // A region that does not exist is refused as such when the key would come to depend on it.
    if let Ok(umem) = ctx.hca.objects.get::<Umem>(ctx.uid, id) {
        let len = if context.length64 { u64::MAX } else { context.len };
        if umem.len().checked_sub(offset).is_none_or(|room| len > room) {
            return Err(defect("len", len, syn::UMEM_RANGE));
        }
        let writes = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::ATOMIC;
        let reads = Rights::LOCAL_READ | Rights::REMOTE_READ | Rights::ATOMIC;
        for (rights, allowed) in [(writes, umem.writable()), (reads, umem.readable())] {
            if context.rights.intersects(rights) && !allowed {
                return Err(defect("mkey_umem_id", id.into(), syn::UMEM_RIGHTS));
            }
        }
    }
    Ok((Translations::Umem { umem: id, offset }, vec![ObjRef { kind: Kind::Umem, id }]))
}

/// A key on device memory: it must lie in one allocation, which then cannot be freed under it.
fn memic(ctx: &Ctx<'_>, context: &KeyContext, octwords: u32) -> Result<(Translations, Vec<ObjRef>), Defect> {
    if octwords != 0 {
        return Err(defect("translations_octword_actual_size", octwords.into(), syn::LIST_IN_MODE));
    }
    let (start, len) = (context.start_addr, context.len);
    // A key without bytes is in order, too; it belongs to the allocation in which it would have its first.
    let holds = |range: &MemicRange| range.contains(start, len.max(1));
    match ctx.hca.objects.memics.iter().find(|(_, entry)| holds(&entry.object)) {
        Some((id, _)) => {
            let start = start - BAR_OFFSET;
            Ok((Translations::DeviceMemory { start }, vec![ObjRef { kind: Kind::Memic, id }]))
        }
        None => Err(defect("start_addr", start, syn::MEMIC_RANGE)),
    }
}

fn query_mkey(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    let input = QueryMkeyIn::new(input)?;
    let key = ctx.hca.objects.get::<MemoryKey>(ctx.uid, input.mkey_index())?;
    let mut out = QueryMkeyOut::zeroed();
    out.memory_key_mkey_entry_mut().as_bytes_mut().copy_from_slice(key.context.to_mkc().as_bytes());
    let access = input.pg_access() != 0;
    out.set_bsf0_klm0_pas_mtt0_1(&key.list.octword(0, access));
    out.set_bsf1_klm1_pas_mtt2_3(&key.list.octword(1, access));
    Ok(out.into_inner())
}

fn destroy_mkey(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    let index = DestroyMkeyIn::new(input)?.mkey_index();
    ctx.hca.drain_key(index, ctx.bus);
    ctx.hca.objects.destroy::<MemoryKey>(ctx.uid, index)?;
    ctx.hca.keys.note_destroyed(1);
    done()
}

#[cfg(test)]
mod tests;
