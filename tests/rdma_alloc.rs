//! The data path does not touch the heap: not for a work request, not for a packet, not for a completion.

use std::alloc::System;

use cap::Cap;
use cx10::prm::values::{QpMtu, QpType, WqeOpcode};
use cx10::profile::Profile;
use cx10::testing::rdma::{LOG_RQ, Link, Qp, RdmaRig, data, inline, remote};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const FROM: u64 = 40 << 20;
const TO: u64 = 48 << 20;

/// What a work request is made of, and whether it takes a receive entry.
struct Kind {
    name: &'static str,
    opcode: WqeOpcode,
    segments: Vec<u8>,
    receives: bool,
}

fn kinds(key: u32) -> Vec<Kind> {
    let kind =
        |name, opcode, segments: &[Vec<u8>], receives| Kind { name, opcode, segments: segments.concat(), receives };
    let far = || remote(TO, key);
    let near = |len| data(len, key, FROM);
    let operands = || vec![0; 16];
    vec![
        kind("NOP", WqeOpcode::NOP, &[], false),
        kind("WRITE of nothing", WqeOpcode::RDMA_WRITE, &[far()], false),
        kind("WRITE of 8 bytes", WqeOpcode::RDMA_WRITE, &[far(), near(8)], false),
        kind("WRITE of inline data", WqeOpcode::RDMA_WRITE, &[far(), inline(&[7; 28])], false),
        kind(
            "WRITE of many pieces",
            WqeOpcode::RDMA_WRITE,
            &[far(), near(3), near(70), near(4096), near(9), near(1), near(5000)],
            false,
        ),
        kind("WRITE of 1 MiB", WqeOpcode::RDMA_WRITE, &[far(), near(1 << 20)], false),
        kind("WRITE with immediate", WqeOpcode::RDMA_WRITE_IMM, &[far(), near(100)], true),
        kind("SEND of 8 bytes", WqeOpcode::SEND, &[near(8)], true),
        kind("SEND of 9000 bytes", WqeOpcode::SEND_IMM, &[near(9000)], true),
        kind("READ of 8 bytes", WqeOpcode::RDMA_READ, &[far(), near(8)], false),
        kind("READ of 1 MiB", WqeOpcode::RDMA_READ, &[far(), near(1 << 20)], false),
        kind("compare and swap", WqeOpcode::ATOMIC_CS, &[far(), operands(), near(8)], false),
        kind("fetch and add", WqeOpcode::ATOMIC_FA, &[far(), operands(), near(8)], false),
    ]
}

/// Sends four of a kind; answers the bytes allocated while the device was at work.
fn send(rig: &mut RdmaRig, from: &mut Qp, to: &mut Qp, kind: &Kind) -> usize {
    const COUNT: u32 = 4;
    for _ in 0..COUNT {
        if kind.receives {
            let target = data(16384, rig.key, TO);
            rig.post_receive(to, &target);
        }
        rig.post_send(from, kind.opcode, &kind.segments, |_| {});
    }
    rig.ring_send(from);
    let before = HEAP.total_allocated();
    rig.settle();
    let allocated = HEAP.total_allocated() - before;
    rig.take(&mut from.cq, COUNT);
    if kind.receives {
        rig.take(&mut to.cq, COUNT);
    }
    allocated
}

fn messages_do_not_allocate() {
    const { assert!(LOG_RQ >= 3) };
    for doorbells in ["doorbells=trap", "doorbells=poll"] {
        let mut rig = RdmaRig::with(Profile::with("connectx10-c2c", &[doorbells]).unwrap());
        let (mut from, mut to) = rig.pair(QpType::RC, Link { mtu: QpMtu::MTU_4K, ..Link::default() });
        let kinds = kinds(rig.key);
        // Queues of the device grow to what they need once.
        for kind in kinds.iter().chain(&kinds) {
            send(&mut rig, &mut from, &mut to, kind);
        }
        for _ in 0..50 {
            for kind in &kinds {
                assert_eq!(send(&mut rig, &mut from, &mut to, kind), 0, "bytes allocated, {doorbells}, {}", kind.name);
            }
        }
    }
    // The measurement works.
    let before = HEAP.total_allocated();
    drop(vec![0u8; 100]);
    assert!(HEAP.total_allocated() > before);
}

fn main() {
    messages_do_not_allocate();
    println!("messages_do_not_allocate ... ok");
}
