//! Send queues and transport interfaces for sending (PRM "Send Queue", "Transport Interface Send"; kernel
//! `transobj.c`).

use super::objects::{Charged, Kind, ObjRef};
use super::wq::WorkQueue;
use crate::prm::queue::Sqc;
use crate::prm::tir::Tisc;
use crate::prm::values::WqState;

/// Bytes of a basic block; send queues count in these.
pub const WQEBB: u64 = 64;

/// A send queue.
#[derive(Debug)]
pub struct SendQueue {
    /// The context as the driver wrote it.
    pub context: Sqc<Vec<u8>>,
    /// The ring.
    pub wq: WorkQueue,
    /// State.
    pub state: WqState,
    /// Basic blocks executed since the last reset, modulo 2^16.
    pub executed: u16,
    /// Packets of the next entry, a large send, that have left.
    pub packets_sent: usize,
    /// The ring could not be read or its completions not be written; only a reset helps.
    pub catastrophic: bool,
    /// The queue waits for its turn.
    pub scheduled: bool,
}

impl SendQueue {
    /// A queue in reset.
    pub fn new(context: Sqc<Vec<u8>>, wq: WorkQueue) -> SendQueue {
        SendQueue {
            context,
            wq,
            state: WqState::RST,
            executed: 0,
            packets_sent: 0,
            catastrophic: false,
            scheduled: false,
        }
    }

    /// What the queue depends on.
    pub fn deps(&self) -> Vec<ObjRef> {
        let context = &self.context;
        let mut deps = vec![
            ObjRef { kind: Kind::Cq, id: context.cqn() },
            ObjRef { kind: Kind::Pd, id: context.wq().pd() },
            ObjRef { kind: Kind::Uar, id: context.wq().uar_page() },
        ];
        if context.tis_lst_sz() > 0 {
            deps.push(ObjRef { kind: Kind::Tis, id: context.tis_num_0() });
        }
        deps.extend(&self.wq.umems);
        deps
    }

    /// The UAR page that its doorbells come through.
    pub fn uar(&self) -> u32 {
        self.context.wq().uar_page()
    }

    /// Moves to `state`; a reset forgets what was executed.
    pub fn set_state(&mut self, state: WqState) {
        if state == WqState::RST {
            self.executed = 0;
            self.packets_sent = 0;
            self.catastrophic = false;
        }
        self.state = state;
    }
}

impl Charged for SendQueue {
    fn extra(&self) -> u64 {
        self.wq.extra()
    }
}

/// A transport interface for sending.
#[derive(Debug)]
pub struct Tis {
    /// The context.
    pub context: Tisc<Vec<u8>>,
}

impl Charged for Tis {}
