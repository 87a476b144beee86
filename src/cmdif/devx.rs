//! CREATE_UCTX, CREATE_UMEM, their counterparts, and general objects (PRM "User Context", "UMEM", "General Object";
//! kernel `mlx5_ib devx.c`).
//!
//! No general object type is implemented, so all four commands on them are refused; `general_obj_types` reads 0.

use super::error::{CmdError, Syndrome, syndromes};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::devx::{Umem, UserContext};
use crate::device::page_list::{ADAPTER_PAGE_SHIFT, PageList};
use crate::mkey::list::{MTT_READ, MTT_WRITE};
use crate::prm::devx::{
    CreateUctxIn, CreateUctxOut, CreateUmemIn, CreateUmemOut, DestroyUctxIn, DestroyUmemIn, GeneralObjInCmdHdr,
};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;

syndromes! {
    /// Checks of user contexts, user memory and general objects.
    pub mod syn = 0x0022_0000;
    1 UCTX_CAP "uctx.cap asks for more than uctx_cap allows";
    2 UCTX_IN_USE "the user context still owns objects";
    3 UMEM_EMPTY "umem.num_of_mtt is 0";
    4 UMEM_SIZE "the pages of the region are more than 64 bits can count";
    5 UMEM_ATS "umem.ats: address translation services are not advertised";
    6 UMEM_RIGHTS "a page of the region can be neither read nor written";
    7 OBJECT_TYPE "the general object type is not advertised";
    8 UMEM_LIST "the input ends before the list of num_of_mtt does";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::running(Opcode::CREATE_UCTX, create_uctx),
    Command::running(Opcode::DESTROY_UCTX, destroy_uctx),
    Command::user(Opcode::CREATE_UMEM, create_umem),
    Command::user(Opcode::DESTROY_UMEM, destroy_umem),
    Command::user(Opcode::CREATE_GENERAL_OBJECT, general_object),
    Command::user(Opcode::MODIFY_GENERAL_OBJECT, general_object),
    Command::user(Opcode::QUERY_GENERAL_OBJECT, general_object),
    Command::user(Opcode::DESTROY_GENERAL_OBJECT, general_object),
];

fn refuse<T>(syndrome: Syndrome) -> Result<T, CmdError> {
    Err(CmdError::new(Status::BAD_PARAM_ERR, syndrome))
}

fn create_uctx(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    let cap = CreateUctxIn::new(input)?.uctx().cap();
    if u64::from(cap) & !ctx.hca.caps.general("uctx_cap") != 0 {
        return refuse(syn::UCTX_CAP);
    }
    let uid = ctx.hca.objects.create(ctx.uid, UserContext { cap }, &[])?;
    let mut out = CreateUctxOut::zeroed();
    out.set_uid(uid);
    Ok(out.into_inner())
}

/// The driver destroys a context's objects first, so what is left would be nobody's.
fn destroy_uctx(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    let uid = DestroyUctxIn::new(input)?.uid();
    ctx.hca.objects.get::<UserContext>(ctx.uid, uid)?;
    let owned = ctx.hca.objects.owned_count(uid as u16);
    if owned > 0 {
        log::debug!(target: "cx10::cmd", "user context {uid:#x} owns {owned} objects");
        return Err(CmdError::new(Status::BAD_RES_STATE_ERR, syn::UCTX_IN_USE));
    }
    ctx.hca.objects.destroy::<UserContext>(ctx.uid, uid)?;
    done()
}

fn create_umem(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    let input = CreateUmemIn::new(input)?;
    let umem = input.umem();
    if umem.ats() != 0 {
        return refuse(syn::UMEM_ATS);
    }
    let count = umem.num_of_mtt();
    if count == 0 {
        return refuse(syn::UMEM_EMPTY);
    }
    let list = usize::try_from(count).ok().and_then(|count| umem.mtt().get(..count.checked_mul(8)?));
    let Some(list) = list else { return refuse(syn::UMEM_LIST) };
    let shift = umem.log_page_size() + ADAPTER_PAGE_SHIFT;
    let offset = u64::from(umem.page_offset());
    let bytes = count.checked_mul(1 << shift).and_then(|bytes| bytes.checked_sub(offset));
    let Some(len) = bytes.filter(|len| *len > 0) else { return refuse(syn::UMEM_SIZE) };
    let pages = PageList::parse(list, shift, offset, len)?;
    let flags = |all: u64, entry: &[u8]| all & u64::from(entry[7]);
    let rights = list.chunks_exact(8).fold(MTT_READ | MTT_WRITE, flags);
    if rights == 0 {
        return refuse(syn::UMEM_RIGHTS);
    }
    let umem = Umem::new(pages, rights & MTT_READ != 0, rights & MTT_WRITE != 0);
    let mut out = CreateUmemOut::zeroed();
    out.set_umem_id(ctx.hca.objects.create(ctx.uid, umem, &[])?);
    Ok(out.into_inner())
}

fn destroy_umem(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    ctx.hca.objects.destroy::<Umem>(ctx.uid, DestroyUmemIn::new(input)?.umem_id())?;
    done()
}

fn general_object(_ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let header = GeneralObjInCmdHdr::new(input)?;
    log::debug!(target: "cx10::cmd", "general object type {:#x} is not implemented", header.obj_type());
    refuse(syn::OBJECT_TYPE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmdif::error::{common, objects, pas};
    use crate::profile::Profile;
    use crate::testing::{Answer, Rig};

    fn up() -> Rig {
        let mut rig = Rig::new(Profile::default());
        rig.bring_up();
        rig
    }

    fn refused(answer: &Answer) -> (u8, u32) {
        assert_eq!(answer.delivery, 0);
        (answer.status(), answer.syndrome())
    }

    fn uctx_input(cap: u32) -> Vec<u8> {
        let mut input = CreateUctxIn::zeroed();
        input.set_opcode(u32::from(Opcode::CREATE_UCTX.0));
        input.uctx_mut().set_cap(cap);
        input.into_inner()
    }

    fn uctx(rig: &mut Rig) -> u16 {
        CreateUctxOut::new(rig.ok(&uctx_input(3), 16)).expect("16 bytes").uid() as u16
    }

    fn destroy_uctx(uid: u16) -> Vec<u8> {
        let mut input = DestroyUctxIn::zeroed();
        input.set_opcode(u32::from(Opcode::DESTROY_UCTX.0));
        input.set_uid(u32::from(uid));
        input.into_inner()
    }

    fn umem_input(uid: u16, pages: &[u64], edit: impl FnOnce(&mut CreateUmemIn)) -> Vec<u8> {
        let mut input = CreateUmemIn::with_tail(8 * pages.len());
        input.set_opcode(u32::from(Opcode::CREATE_UMEM.0));
        input.set_uid(u32::from(uid));
        input.umem_mut().set_num_of_mtt(pages.len() as u64);
        for (slot, page) in input.umem_mut().mtt_mut().chunks_exact_mut(8).zip(pages) {
            slot.copy_from_slice(&page.to_be_bytes());
        }
        edit(&mut input);
        input.into_inner()
    }

    fn destroy_umem(uid: u16, id: u32) -> Vec<u8> {
        let mut input = DestroyUmemIn::zeroed();
        input.set_opcode(u32::from(Opcode::DESTROY_UMEM.0));
        input.set_uid(u32::from(uid));
        input.set_umem_id(id);
        input.into_inner()
    }

    #[test]
    fn a_user_context_gets_no_more_than_the_capability_allows() {
        let mut rig = up();
        assert_eq!(refused(&rig.exec(&uctx_input(1 << 3), 16)), (3, syn::UCTX_CAP.0));
        let uid = uctx(&mut rig);
        assert_ne!(uid, 0);
        rig.ok(&destroy_uctx(uid), 16);
        assert_eq!(refused(&rig.exec(&destroy_uctx(uid), 16)), (5, objects::NO_SUCH_OBJECT.0));
    }

    #[test]
    fn a_user_context_cannot_make_another() {
        let mut rig = up();
        let uid = uctx(&mut rig);
        let mut input = uctx_input(0);
        input[2..4].copy_from_slice(&uid.to_be_bytes());
        assert_eq!(refused(&rig.exec(&input, 16)), (2, common::PRIVILEGED.0));
    }

    #[test]
    fn a_user_context_with_objects_cannot_be_destroyed() {
        let mut rig = up();
        let uid = uctx(&mut rig);
        let out = rig.ok(&umem_input(uid, &[0x10_0003], |_| {}), 16);
        let umem = CreateUmemOut::new(out).expect("16 bytes").umem_id();
        assert_eq!(refused(&rig.exec(&destroy_uctx(uid), 16)), (9, syn::UCTX_IN_USE.0));
        rig.ok(&destroy_umem(uid, umem), 16);
        rig.ok(&destroy_uctx(uid), 16);
        assert!(rig.function.hca().census().is_empty());
    }

    #[test]
    fn a_region_belongs_to_its_context() {
        let mut rig = up();
        let (mine, other) = (uctx(&mut rig), uctx(&mut rig));
        let out = rig.ok(&umem_input(mine, &[0x10_0001, 0x30_0001], |i| i.umem_mut().set_page_offset(0x40)), 16);
        let id = CreateUmemOut::new(out).expect("16 bytes").umem_id();
        assert_eq!(refused(&rig.exec(&destroy_umem(other, id), 16)), (5, objects::NOT_OWNER.0));
        let umem = rig.function.hca().objects.get::<Umem>(mine, id).expect("created above");
        assert_eq!((umem.len(), umem.readable(), umem.writable()), (0x1fc0, true, false));
        assert_eq!(umem.locate(0xfc0), Some((crate::dma::Iova(0x30_0000), 0x1000)));
        let buffer = umem.buffer(0xf80, 0x80).expect("inside");
        assert_eq!((buffer.len(), buffer.pages()), (0x80, 2));
        assert_eq!(buffer.locate(0x40), Some((crate::dma::Iova(0x30_0000), 0x40)));
        assert_eq!(umem.buffer(0x1f80, 0x41).unwrap_err().syndrome, pas::TOO_FEW);
        assert_eq!(umem.buffer(u64::MAX, 2).unwrap_err().syndrome, pas::TOO_LONG);
    }

    #[test]
    fn regions_that_make_no_sense_are_refused() {
        let mut rig = up();
        let uid = uctx(&mut rig);
        let mut check = |edit: fn(&mut CreateUmemIn), syndrome: Syndrome| {
            let answer = rig.exec(&umem_input(uid, &[0x10_0003, 0x20_0003], edit), 16);
            assert_eq!(refused(&answer), (3, syndrome.0));
        };
        check(|i| i.umem_mut().set_num_of_mtt(0), syn::UMEM_EMPTY);
        check(|i| i.umem_mut().set_num_of_mtt(3), syn::UMEM_LIST);
        check(|i| i.umem_mut().set_num_of_mtt(u64::MAX), syn::UMEM_LIST);
        check(|i| i.umem_mut().set_ats(1), syn::UMEM_ATS);
        check(|i| i.umem_mut().set_page_offset(0x1000), pas::PAGE_OFFSET);
        check(|i| i.umem_mut().set_page_offset(0x2000), syn::UMEM_SIZE);
        check(|i| i.umem_mut().set_log_page_size(31), pas::MISALIGNED);
        check(|i| i.umem_mut().mtt_mut()[7] = 0, syn::UMEM_RIGHTS);
    }

    #[test]
    fn general_objects_are_refused_by_their_type() {
        let mut rig = up();
        for opcode in [
            Opcode::CREATE_GENERAL_OBJECT,
            Opcode::MODIFY_GENERAL_OBJECT,
            Opcode::QUERY_GENERAL_OBJECT,
            Opcode::DESTROY_GENERAL_OBJECT,
        ] {
            assert_eq!(refused(&rig.exec(&Rig::input(opcode.0, 0xd, 16), 16)), (3, syn::OBJECT_TYPE.0));
        }
    }
}
