//! Where frames go: from send queues to the wire and back into the function, from the wire into the function (PRM
//! "NIC Vport Context", fields `disable_uc_local_lb` and `disable_mc_local_lb`; kernel `vport.c`,
//! `infiniband/hw/mlx5/main.c:mlx5_ib_enable_lb`).
//!
//! What a send queue sends walks through the flow tables of the sending side first, if there are any. A frame to an
//! address of the vport stays inside. A frame to a group goes both ways; whoever sent it does not get it
//! back, because interfaces leave out what comes from their own transport domain. With local loopback disabled in the
//! vport context every frame goes to the wire alone.

use super::hca::Hca;
use super::port_counters::Cast;
use super::receive::Origin;
use super::steering::packet::{MATCH_WORDS, describe, describe_sender};
use crate::dma::Bus;
use crate::prm::values::FlowTableType;
use crate::wire::MAC_HEADER;
use crate::wire::layers::layers;

/// Bytes of a frame check sequence, which the port adds.
const FCS: usize = 4;
/// Bytes after which a portion of work fetches no more frames from the wire, and the number of frames.
const BYTES_PER_PORTION: usize = 256 << 10;
const FRAMES_PER_PORTION: usize = 64;

/// Who sends a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// Its send queue.
    pub sqn: u32,
    /// The transport domain that the queue sends in.
    pub domain: Option<u32>,
}

impl Hca {
    /// What is to be known of a send queue as a sender.
    pub(super) fn sender(&self, sqn: u32) -> Sender {
        let context = self.objects.sqs.get(sqn).map(|entry| &entry.object.context);
        let tisn = context.filter(|context| context.tis_lst_sz() > 0).map(|context| context.tis_num_0());
        let tis = tisn.and_then(|tisn| self.objects.tises.get(tisn));
        Sender { sqn, domain: tis.map(|tis| tis.object.context.transport_domain()) }
    }

    /// Whether the flow tables of the sending side let a frame pass. Without any they do.
    fn may_leave(&mut self, frame: &[u8], sender: Sender, cost: &mut usize) -> bool {
        let Some(root) = self.roots.get(FlowTableType::NIC_TX) else { return true };
        let mut words = [0; MATCH_WORDS];
        describe(frame, &layers(frame, false), &mut words);
        describe_sender(sender.sqn, &mut words);
        self.egress.walk(&self.objects, Some(root), &words);
        *cost += self.egress.note(&mut self.objects, frame.len());
        self.egress.passed
    }

    /// Sends a frame. Frames that the port cannot take are dropped and counted. What goes to
    /// receive queues of the function is added to `cost`; it may be under way still on return, and the next frame must
    /// wait until it is not.
    pub fn transmit(&mut self, frame: &[u8], sender: Sender, cost: &mut usize, bus: &mut Bus, now: u64) {
        if !self.may_leave(frame, sender, cost) {
            return;
        }
        self.vport.counters.transmitted(frame);
        if !self.vport_is_up() {
            self.vport.env.transmit_discard_vport_down += 1;
            self.port.counters.tx.discards += 1;
            return;
        }
        if frame.len() + FCS > usize::from(self.port.mtu()) {
            self.port.counters.tx.discards += 1;
            return;
        }
        let unicast = Cast::of(frame) == Cast::Unicast;
        let context = &self.vport.context;
        let disabled = if unicast { context.disable_uc_local_lb() } else { context.disable_mc_local_lb() };
        let inside = disabled == 0 && (!unicast || self.vport.owns(frame));
        if inside {
            let buffer = self.receive.buffer();
            buffer.clear();
            buffer.extend_from_slice(frame);
            self.steer(Origin::Queue(sender.domain), cost);
            self.deliver(cost, bus, now);
        }
        if inside && unicast {
            return;
        }
        // A vport may be up without the port.
        if self.port.is_up() {
            self.port.counters.transmitted(frame);
            self.link.transmit(frame);
        } else {
            self.port.counters.tx.discards += 1;
        }
    }

    /// A portion of work: the frame that is under way, then what send queues have and what the wire has, one before the
    /// other in turns. Whether there may be more, send queues left aside.
    pub fn run_ethernet(&mut self, bus: &mut Bus, now: u64) -> bool {
        self.deliver(&mut 0, bus, now);
        self.receive.wire_first = !self.receive.wire_first;
        let more = if self.receive.wire_first {
            let more = self.run_receives(bus, now);
            self.run_sends(bus, now);
            more
        } else {
            self.run_sends(bus, now);
            self.run_receives(bus, now)
        };
        more || self.receive.busy()
    }

    /// Takes frames from the wire; whether there may be more. While a frame is under way none is taken.
    pub fn run_receives(&mut self, bus: &mut Bus, now: u64) -> bool {
        let mut cost = 0;
        for _ in 0..FRAMES_PER_PORTION {
            if self.receive.busy() || cost >= BYTES_PER_PORTION {
                return true;
            }
            if !self.link.receive(self.receive.buffer()) {
                return false;
            }
            cost += self.receive.buffer().len();
            self.receive_frame(&mut cost, bus, now);
        }
        true
    }

    /// Takes the frame in the receive path's buffer, which came in through the port.
    fn receive_frame(&mut self, cost: &mut usize, bus: &mut Bus, now: u64) {
        let len = self.receive.buffer().len();
        if !self.port.is_up() {
            return;
        }
        if len < MAC_HEADER || len + FCS > usize::from(self.port.mtu()) {
            self.port.counters.rx.errors += 1;
            return;
        }
        self.port.counters.received(self.receive.buffer());
        if !self.vport_is_up() {
            self.vport.env.receive_discard_vport_down += 1;
            self.port.counters.rx.discards += 1;
            return;
        }
        self.steer(Origin::Wire, cost);
        self.deliver(cost, bus, now);
    }
}
