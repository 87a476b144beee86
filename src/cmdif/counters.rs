//! Commands of Q counters and flow counters (PRM "Queue Counter Commands", "Flow Counter Commands"; kernel
//! `infiniband/hw/mlx5/counters.c`, `fs_cmd.c:mlx5_cmd_fc_bulk_query`).

use super::error::{CmdError, Syndrome, common, objects, syndromes};
use super::{Command, Ctx, Reply, done, unknown_op_mod};
use crate::device::counters::{FlowCounter, QCounter};
use crate::prm::counters::{
    AllocFlowCounterIn, AllocFlowCounterOut, AllocQCounterOut, DeallocFlowCounterIn, DeallocQCounterIn,
    QueryFlowCounterIn, QueryFlowCounterOut, QueryQCounterIn, QueryQCounterOut, TrafficCounter,
};
use crate::prm::opcode::Opcode;
use crate::prm::status::Status;

syndromes! {
    /// Checks of counters.
    pub mod syn = 0x0033_0000;
    1 AGGREGATION "aggregated Q counters are not advertised";
    2 BULK_ALLOCATION "flow counters in bulk are not advertised";
    3 BULK_QUERY "more flow counters are asked for than log_max_flow_counter_bulk allows";
    4 BULK_ALIGNMENT "a bulk of flow counters does not start at or span a multiple of 4";
}

pub(super) const COMMANDS: &[Command] = &[
    Command::user(Opcode::ALLOC_Q_COUNTER, alloc_q_counter),
    Command::user(Opcode::DEALLOC_Q_COUNTER, dealloc_q_counter),
    Command::user(Opcode::QUERY_Q_COUNTER, query_q_counter),
    Command::user(Opcode::ALLOC_FLOW_COUNTER, alloc_flow_counter),
    Command::user(Opcode::DEALLOC_FLOW_COUNTER, dealloc_flow_counter),
    Command::user(Opcode::QUERY_FLOW_COUNTER, query_flow_counter),
];

fn refuse(syndrome: Syndrome) -> CmdError {
    CmdError::new(Status::BAD_PARAM_ERR, syndrome)
}

fn not_capable() -> CmdError {
    CmdError::new(Status::BAD_OP_ERR, common::NOT_CAPABLE)
}

fn alloc_q_counter(ctx: &mut Ctx<'_>, _input: &[u8]) -> Reply {
    if ctx.hca.caps.general("max_qp_cnt") == 0 {
        return Err(not_capable());
    }
    let id = ctx.hca.objects.create(ctx.uid, QCounter::default(), &[])?;
    let mut out = AllocQCounterOut::zeroed();
    out.set_counter_set_id(id);
    Ok(out.into_inner())
}

fn dealloc_q_counter(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let id = DeallocQCounterIn::new(input)?.counter_set_id();
    ctx.hca.objects.destroy::<QCounter>(ctx.uid, id)?;
    done()
}

fn query_q_counter(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = QueryQCounterIn::new(input)?;
    if input.other_vport() != 0 || input.vport_number() != 0 {
        return Err(refuse(common::OTHER_VPORT));
    }
    if input.aggregate() != 0 {
        return Err(refuse(syn::AGGREGATION));
    }
    let counter = ctx.hca.objects.get_mut::<QCounter>(ctx.uid, input.counter_set_id())?;
    let mut out = QueryQCounterOut::zeroed();
    counter.fill(&mut out);
    if input.clear() != 0 {
        *counter = QCounter::default();
    }
    Ok(out.into_inner())
}

fn alloc_flow_counter(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let input = AllocFlowCounterIn::new(input)?;
    if input.flow_counter_bulk() != 0 || input.flow_counter_bulk_log_size() != 0 {
        return Err(refuse(syn::BULK_ALLOCATION));
    }
    let id = ctx.hca.objects.create(ctx.uid, FlowCounter::default(), &[])?;
    let mut out = AllocFlowCounterOut::zeroed();
    out.set_flow_counter_id(id);
    Ok(out.into_inner())
}

fn dealloc_flow_counter(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    let id = DeallocFlowCounterIn::new(input)?.flow_counter_id();
    ctx.hca.objects.destroy::<FlowCounter>(ctx.uid, id)?;
    done()
}

/// A bulk query may name counters that do not exist, as a driver with holes among its counters does; they read 0.
/// One at least must exist.
fn query_flow_counter(ctx: &mut Ctx<'_>, input: &[u8]) -> Reply {
    const ALIGNMENT: u32 = 4;
    let input = QueryFlowCounterIn::new(input)?;
    if ctx.op_mod != 0 {
        return Err(unknown_op_mod());
    }
    let first = input.flow_counter_id();
    let count = input.num_of_counters().max(1);
    if u64::from(count) > 1 << ctx.hca.caps.general("log_max_flow_counter_bulk") {
        return Err(refuse(syn::BULK_QUERY));
    }
    if count > 1 && (first % ALIGNMENT != 0 || count % ALIGNMENT != 0) {
        return Err(refuse(syn::BULK_ALIGNMENT));
    }
    if count == 1 {
        ctx.hca.objects.entry::<FlowCounter>(ctx.uid, first)?;
    }
    let mut out = QueryFlowCounterOut::with_tail(count as usize * TrafficCounter::SIZE);
    let mut found = false;
    for (i, slot) in out.flow_statistics_mut().chunks_exact_mut(TrafficCounter::SIZE).enumerate() {
        let Some(id) = first.checked_add(i as u32) else { break };
        let Ok(counter) = ctx.hca.objects.get_mut::<FlowCounter>(ctx.uid, id) else { continue };
        found = true;
        let mut slot = TrafficCounter::new(slot)?;
        slot.set_packets(counter.traffic.packets);
        slot.set_octets(counter.traffic.octets);
        if input.clear() != 0 {
            counter.traffic = Default::default();
        }
    }
    if !found {
        return Err(CmdError::new(Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT));
    }
    Ok(out.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::testing::{Answer, Rig};

    fn rig(sets: &[&str]) -> Rig {
        let mut rig = Rig::new(Profile::with("connectx10-c2c", sets).expect("a legal profile"));
        rig.bring_up();
        rig
    }

    fn refused(answer: &Answer, status: Status, syndrome: Syndrome) {
        assert_eq!((answer.status(), answer.syndrome()), (status.0, syndrome.0));
    }

    fn alloc_q(rig: &mut Rig) -> u32 {
        AllocQCounterOut::new(rig.ok(&Rig::input(Opcode::ALLOC_Q_COUNTER.0, 0, 16), 16)).unwrap().counter_set_id()
    }

    fn q(opcode: Opcode, id: u32) -> Vec<u8> {
        let mut input = Rig::input(opcode.0, 0, 32);
        input[if opcode == Opcode::QUERY_Q_COUNTER { 31 } else { 11 }] = id as u8;
        input
    }

    #[test]
    fn q_counters_run_out_and_come_back() {
        let mut rig = rig(&["caps.general.max_qp_cnt=2"]);
        let first = alloc_q(&mut rig);
        assert_ne!(alloc_q(&mut rig), first);
        let answer = rig.exec(&Rig::input(Opcode::ALLOC_Q_COUNTER.0, 0, 16), 16);
        refused(&answer, Status::LIM_ERR, objects::TABLE_FULL);
        rig.ok(&q(Opcode::DEALLOC_Q_COUNTER, first), 16);
        let answer = rig.exec(&q(Opcode::DEALLOC_Q_COUNTER, first), 16);
        refused(&answer, Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
        alloc_q(&mut rig);
    }

    #[test]
    fn a_q_counter_is_returned_and_cleared() {
        let mut rig = rig(&[]);
        let id = alloc_q(&mut rig);
        rig.function.hca_mut().objects.get_mut::<QCounter>(0, id).unwrap().out_of_buffer = 7;
        let mut input = q(Opcode::QUERY_Q_COUNTER, id);
        input[24] = 0x80;
        assert_eq!(QueryQCounterOut::new(rig.ok(&input, 0x100)).unwrap().out_of_buffer(), 7);
        assert_eq!(QueryQCounterOut::new(rig.ok(&input, 0x100)).unwrap().out_of_buffer(), 0);
        input[24] = 0x40;
        refused(&rig.exec(&input, 0x100), Status::BAD_PARAM_ERR, syn::AGGREGATION);
        input[8] = 0x80;
        refused(&rig.exec(&input, 0x100), Status::BAD_PARAM_ERR, common::OTHER_VPORT);
        refused(&rig.exec(&q(Opcode::QUERY_Q_COUNTER, 0), 0x100), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    }

    #[test]
    fn no_q_counters_without_the_capability() {
        let mut rig = rig(&["caps.general.max_qp_cnt=0"]);
        let answer = rig.exec(&Rig::input(Opcode::ALLOC_Q_COUNTER.0, 0, 16), 16);
        refused(&answer, Status::BAD_OP_ERR, common::NOT_CAPABLE);
    }

    fn alloc_flow(rig: &mut Rig) -> u32 {
        let out = rig.ok(&Rig::input(Opcode::ALLOC_FLOW_COUNTER.0, 0, 16), 16);
        AllocFlowCounterOut::new(out).unwrap().flow_counter_id()
    }

    fn query_flow(id: u32, count: u32, clear: bool) -> QueryFlowCounterIn<Vec<u8>> {
        let mut input = QueryFlowCounterIn::zeroed();
        input.set_opcode(Opcode::QUERY_FLOW_COUNTER.0.into());
        input.set_flow_counter_id(id);
        input.set_num_of_counters(count);
        input.set_clear(clear.into());
        input
    }

    #[test]
    fn flow_counters_are_read_one_by_one_or_in_bulk() {
        let mut rig = rig(&["caps.general.log_max_flow_counter_bulk=3"]);
        let ids: Vec<u32> = (0..6).map(|_| alloc_flow(&mut rig)).collect();
        for id in &ids {
            let counter = rig.function.hca_mut().objects.get_mut::<FlowCounter>(0, *id).unwrap();
            counter.traffic.add(100 + *id as usize);
        }
        let out = rig.ok(query_flow(ids[0], 0, false).as_bytes(), 32);
        let first = TrafficCounter::new(&out[16..]).unwrap();
        assert_eq!((first.packets(), first.octets()), (1, 100 + u64::from(ids[0])));
        let base = ids[3].next_multiple_of(4);
        let out = rig.ok(query_flow(base, 8, true).as_bytes(), 16 + 8 * 16);
        let octets: Vec<u64> =
            out[16..].chunks_exact(16).map(|slot| TrafficCounter::new(slot).unwrap().octets()).collect();
        let expected = |id: u32| if ids.contains(&id) { 100 + u64::from(id) } else { 0 };
        assert_eq!(octets, (base..base + 8).map(expected).collect::<Vec<_>>());
        let out = rig.ok(query_flow(base, 8, false).as_bytes(), 16 + 8 * 16);
        assert_eq!(out[16..], [0; 128], "cleared");
        refused(&rig.exec(query_flow(base, 16, false).as_bytes(), 16), Status::BAD_PARAM_ERR, syn::BULK_QUERY);
        for (id, count) in [(base + 1, 8), (base, 6)] {
            let answer = rig.exec(query_flow(id, count, false).as_bytes(), 16);
            refused(&answer, Status::BAD_PARAM_ERR, syn::BULK_ALIGNMENT);
        }
        for id in [0, u32::MAX - 3, 0x1000] {
            let answer = rig.exec(query_flow(id, 8 * u32::from(id % 4 == 0), false).as_bytes(), 16);
            let exists = ids.iter().any(|i| (id..id.saturating_add(8)).contains(i));
            assert_eq!(answer.status() == 0, exists, "{id:#x}");
        }
    }

    #[test]
    fn flow_counters_in_bulk_are_not_allocated() {
        let mut rig = rig(&[]);
        let mut input = Rig::input(Opcode::ALLOC_FLOW_COUNTER.0, 0, 16);
        input[15] = 1;
        refused(&rig.exec(&input, 16), Status::BAD_PARAM_ERR, syn::BULK_ALLOCATION);
        let id = alloc_flow(&mut rig);
        let mut input = Rig::input(Opcode::DEALLOC_FLOW_COUNTER.0, 0, 16);
        input[8..12].copy_from_slice(&id.to_be_bytes());
        rig.ok(&input, 16);
        refused(&rig.exec(&input, 16), Status::BAD_RES_ERR, objects::NO_SUCH_OBJECT);
    }
}
