//! ALLOC_MEMIC, DEALLOC_MEMIC and MODIFY_MEMIC (PRM "Device Memory"; kernel `mlx5_ib dm.c`).
//!
//! The driver proposes a range of pages, the device picks an address in it; NO_RES makes the driver try the next
//! range. Addresses are BAR 0 offsets. MODIFY_MEMIC shows an allocation a second time, for an operation on its bytes.

use super::error::{CmdError, Syndrome, common, syndromes};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::capabilities::DEVICE_MEMORY;
use crate::device::memic::{GRANULE, MemicRange, Operation, place};
use crate::prm::opcode::Opcode;
use crate::prm::pd::{AllocMemicIn, AllocMemicOut, DeallocMemicIn, ModifyMemicIn, ModifyMemicOut};
use crate::prm::status::Status;

syndromes! {
    /// Checks of device memory.
    pub mod syn = 0x0024_0000;
    1 SIZE "memic_size is 0, not a multiple of 64, or below log_min_memic_alloc_size";
    2 TOO_LARGE "memic_size is beyond max_memic_size";
    3 ALIGNMENT "log_memic_addr_alignment is beyond log_max_memic_addr_alignment";
    4 RANGE "the range does not lie in the device memory";
    5 NO_ROOM "the range has no room for the allocation";
    6 NOT_ALLOCATED "no allocation starts at the address";
    7 OTHER_SIZE "the allocation at the address has another size";
    8 OPERATION "memic_operations does not have the operation";
    9 NOT_SHOWN "the allocation is not shown for the operation";
    10 SHOWN "the allocation is still shown for an operation";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::running(Opcode::ALLOC_MEMIC, alloc_memic),
    Command::running(Opcode::DEALLOC_MEMIC, dealloc_memic),
    Command::running(Opcode::MODIFY_MEMIC, modify_memic),
];

fn capable(ctx: &Ctx<'_>, op_mods: u16) -> Result<(), CmdError> {
    if ctx.hca.caps.get(DEVICE_MEMORY, "memic") == 0 {
        return Err(CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE));
    }
    if ctx.op_mod >= op_mods {
        return Err(unknown_op_mod());
    }
    Ok(())
}

/// The allocation that starts at an address.
fn allocation(ctx: &Ctx<'_>, start: u64) -> Result<(u32, MemicRange), CmdError> {
    let found = ctx.hca.objects.memics.iter().find(|(_, entry)| entry.object.start == start);
    found.map(|(id, entry)| (id, entry.object)).ok_or(CmdError::new(Status::BAD_PARAM_ERR, syn::NOT_ALLOCATED))
}

fn refuse<T>(syndrome: Syndrome) -> Result<T, CmdError> {
    Err(CmdError::new(Status::BAD_PARAM_ERR, syndrome))
}

fn alloc_memic(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    capable(ctx, 1)?;
    let input = AllocMemicIn::new(input)?;
    let cap = |field| ctx.hca.caps.get(DEVICE_MEMORY, field);
    let len = u64::from(input.memic_size());
    let min = 1u64.checked_shl(cap("log_min_memic_alloc_size") as u32).unwrap_or(u64::MAX);
    if len == 0 || len % GRANULE != 0 || len < min {
        return refuse(syn::SIZE);
    }
    if len > cap("max_memic_size") {
        return Err(CmdError::new(Status::LIM_ERR, syn::TOO_LARGE));
    }
    let log_align = input.log_memic_addr_alignment();
    if u64::from(log_align) > cap("log_max_memic_addr_alignment") {
        return refuse(syn::ALIGNMENT);
    }
    let align = GRANULE.checked_shl(log_align).filter(|align| *align != 0).unwrap_or(1 << 63);
    let window = MemicRange::new(cap("memic_bar_start_addr"), cap("memic_bar_size"));
    let range = MemicRange::new(input.range_start_addr(), input.range_size().into());
    if !window.contains(range.start, range.len) {
        return refuse(syn::RANGE);
    }
    let taken = ctx.hca.objects.memics.iter().map(|(_, entry)| entry.object).collect();
    let Some(start) = place(taken, range, len, align) else {
        return Err(CmdError::new(Status::NO_RES_ERR, syn::NO_ROOM));
    };
    ctx.hca.objects.create(ctx.uid, MemicRange::new(start, len), &[])?;
    let mut out = AllocMemicOut::zeroed();
    out.set_memic_start_addr(start);
    Ok(out.into_inner())
}

fn dealloc_memic(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    capable(ctx, 1)?;
    let input = DeallocMemicIn::new(input)?;
    let (id, range) = allocation(ctx, input.memic_start_addr())?;
    if range.operations != 0 {
        return Err(CmdError::new(Status::BAD_RES_STATE_ERR, syn::SHOWN));
    }
    if range.len != u64::from(input.memic_size()) {
        return refuse(syn::OTHER_SIZE);
    }
    ctx.hca.objects.destroy::<MemicRange>(ctx.uid, id)?;
    ctx.hca.memic.clear(range);
    done()
}

/// Modifiers of MODIFY_MEMIC.
const SHOW: u16 = 0;

fn modify_memic(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    capable(ctx, 2)?;
    let input = ModifyMemicIn::new(input)?;
    let number = input.memic_operation_type();
    let offered = ctx.hca.caps.get(DEVICE_MEMORY, "memic_operations").checked_shr(number).unwrap_or(0) & 1 != 0;
    let Some(operation) = Operation::from_number(number).filter(|_| offered) else { return refuse(syn::OPERATION) };
    let (id, range) = allocation(ctx, input.memic_start_addr())?;
    let bit = 1 << number;
    let mut out = ModifyMemicOut::zeroed();
    let operations = if ctx.op_mod == SHOW {
        out.set_memic_operation_addr(operation.shown(range.start));
        range.operations | bit
    } else if range.operations & bit == 0 {
        return refuse(syn::NOT_SHOWN);
    } else {
        range.operations & !bit
    };
    ctx.hca.objects.get_mut::<MemicRange>(ctx.uid, id)?.operations = operations;
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memic::BAR_OFFSET;
    use crate::profile::Profile;
    use crate::testing::Rig;

    fn up(sets: &[&str]) -> Rig {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        rig.bring_up();
        rig
    }

    fn alloc(page: u64, pages: u32, size: u32, log_align: u32) -> Vec<u8> {
        let mut input = AllocMemicIn::zeroed();
        input.set_opcode(u32::from(Opcode::ALLOC_MEMIC.0));
        input.set_range_start_addr(BAR_OFFSET + page * 4096);
        input.set_range_size(pages * 4096);
        input.set_memic_size(size);
        input.set_log_memic_addr_alignment(log_align);
        input.into_inner()
    }

    fn dealloc(start: u64, size: u32) -> Vec<u8> {
        let mut input = DeallocMemicIn::zeroed();
        input.set_opcode(u32::from(Opcode::DEALLOC_MEMIC.0));
        input.set_memic_start_addr(start);
        input.set_memic_size(size);
        input.into_inner()
    }

    fn start(rig: &mut Rig, input: &[u8]) -> u64 {
        AllocMemicOut::new(rig.ok(input, 16)).expect("16 bytes").memic_start_addr()
    }

    fn refused(rig: &mut Rig, input: &[u8]) -> (u8, u32) {
        let answer = rig.exec(input, 16);
        (answer.status(), answer.syndrome())
    }

    #[test]
    fn memory_is_allocated_in_the_proposed_range_and_clean_for_its_next_owner() {
        let mut rig = up(&[]);
        let first = start(&mut rig, &alloc(3, 1, 128, 0));
        assert_eq!(first, BAR_OFFSET + 3 * 4096);
        let second = start(&mut rig, &alloc(3, 1, 64, 2));
        assert_eq!(second, BAR_OFFSET + 3 * 4096 + 256);
        rig.function.bar_write(first, &[0xee; 8]);
        assert_eq!(rig.bar(first), 0xeeee_eeee);
        assert_eq!(refused(&mut rig, &dealloc(first, 64)), (3, syn::OTHER_SIZE.0));
        rig.ok(&dealloc(first, 128), 16);
        assert_eq!(rig.bar(first), 0);
        assert_eq!(refused(&mut rig, &dealloc(first, 128)), (3, syn::NOT_ALLOCATED.0));
        rig.ok(&dealloc(second, 64), 16);
        assert!(rig.function.hca().census().is_empty());
    }

    fn modify(op_mod: u16, operation: u32, start: u64) -> Vec<u8> {
        let mut input = ModifyMemicIn::zeroed();
        input.set_opcode(u32::from(Opcode::MODIFY_MEMIC.0));
        input.set_op_mod(op_mod.into());
        input.set_memic_operation_type(operation);
        input.set_memic_start_addr(start);
        input.into_inner()
    }

    fn show(rig: &mut Rig, operation: u32, start: u64) -> u64 {
        ModifyMemicOut::new(rig.ok(&modify(0, operation, start), 64)).expect("64 bytes").memic_operation_addr()
    }

    fn byte(rig: &mut Rig, at: u64) -> u8 {
        let mut buf = [0xee];
        rig.function.bar_read(at, &mut buf);
        buf[0]
    }

    /// As rdma-core's `test_mlx5_dm_ops.py` has it.
    #[test]
    fn bytes_are_incremented_and_tested_and_set_in_one_step() {
        let mut rig = up(&[]);
        let at = start(&mut rig, &alloc(3, 1, 128, 0)) + 5;
        let (increment, test_and_set) = (show(&mut rig, 0, at - 5) + 5, show(&mut rig, 1, at - 5) + 5);
        assert_ne!(increment & !0xfff, test_and_set & !0xfff, "a driver maps them by pages");
        rig.function.bar_write(at, &[0xfe]);
        for _ in 0..4 {
            rig.function.bar_write(increment, &[1]);
        }
        assert_eq!(byte(&mut rig, increment), 2);
        assert_eq!(byte(&mut rig, at + 1), 0, "no carry");
        assert_eq!((byte(&mut rig, test_and_set), byte(&mut rig, test_and_set)), (2, 1));
        assert_eq!(byte(&mut rig, at), 1);
        // What is not a byte, not allocated or not shown is no operation.
        rig.function.bar_write(increment, &[1, 1]);
        rig.function.bar_write(increment + 128, &[1]);
        rig.function.bar_write(test_and_set, &[9]);
        assert_eq!((byte(&mut rig, at), byte(&mut rig, test_and_set + 128)), (1, 0));
        assert_eq!(refused(&mut rig, &dealloc(at - 5, 128)), (9, syn::SHOWN.0));
        rig.ok(&modify(1, 0, at - 5), 64);
        rig.function.bar_write(increment, &[1]);
        assert_eq!(byte(&mut rig, at), 1);
        rig.ok(&modify(1, 1, at - 5), 64);
        rig.ok(&dealloc(at - 5, 128), 16);
    }

    #[test]
    fn operations_that_do_not_exist_are_refused() {
        let mut rig = up(&[]);
        let at = start(&mut rig, &alloc(3, 1, 64, 0));
        for operation in [2, 31, 32, 255] {
            assert_eq!(refused(&mut rig, &modify(0, operation, at)), (3, syn::OPERATION.0));
        }
        assert_eq!(refused(&mut rig, &modify(0, 0, at + 64)), (3, syn::NOT_ALLOCATED.0));
        assert_eq!(refused(&mut rig, &modify(1, 0, at)), (3, syn::NOT_SHOWN.0));
        assert_eq!(refused(&mut rig, &modify(2, 0, at)), (3, common::UNKNOWN_OP_MOD.0));
        let mut none = up(&["caps.dev_mem.memic_operations=0"]);
        let at = start(&mut none, &alloc(3, 1, 64, 0));
        assert_eq!(refused(&mut none, &modify(0, 0, at)), (3, syn::OPERATION.0));
    }

    #[test]
    fn a_full_range_makes_the_driver_try_another() {
        let mut rig = up(&[]);
        rig.ok(&alloc(0, 1, 4096, 0), 16);
        assert_eq!(refused(&mut rig, &alloc(0, 1, 64, 0)), (0xf, syn::NO_ROOM.0));
        rig.ok(&alloc(1, 1, 64, 0), 16);
    }

    #[test]
    fn allocations_that_make_no_sense_are_refused() {
        let mut rig = up(&[]);
        for size in [0, 63, 65] {
            assert_eq!(refused(&mut rig, &alloc(0, 1, size, 0)), (3, syn::SIZE.0));
        }
        assert_eq!(refused(&mut rig, &alloc(0, 256, 0x2_0000, 0)), (8, syn::TOO_LARGE.0));
        assert_eq!(refused(&mut rig, &alloc(0, 1, 64, 7)), (3, syn::ALIGNMENT.0));
        assert_eq!(refused(&mut rig, &alloc(256, 1, 64, 0)), (3, syn::RANGE.0));
        assert_eq!(refused(&mut rig, &alloc(255, 2, 64, 0)), (3, syn::RANGE.0));
        assert_eq!(refused(&mut rig, &alloc(u64::MAX / 4096 - 0x1000, 1, 64, 0)), (3, syn::RANGE.0));
        let mut none = up(&["caps.dev_mem.memic=0"]);
        assert_eq!(refused(&mut none, &alloc(0, 1, 64, 0)), (2, common::NOT_CAPABLE.0));
    }
}
