//! The function that a VMM attaches: dispatch of accesses, bounded work, reset, and the summary of a run.

mod commands;
mod order;

use self::commands::Commands;
use super::clock::Clock;
use super::config_space::{ConfigSpace, Identity, Vpd};
use super::cq::{CQE, Completion};
use super::eq::Posted;
use super::hca::{Event, Hca, Phase};
use super::init_segment::{self, Effect, FirmwareVersion, Health, InitSegment, NicInterface};
use super::memic;
use super::poll::{Look, Polling, UarPages};
use super::rdma::paging::Named;
use super::rdma::umr::{Poster, UmrError};
use super::uar::{self, Doorbell};
use crate::config::Doorbells;
use crate::dma::irq::Interrupts;
use crate::dma::order::Scope;
use crate::dma::{Bus, Iova, Stream};
use crate::log_limit::limited;
use crate::mkey::judged::{Judged, Outcome};
use crate::profile::Profile;
use crate::trace::{Event as TraceEvent, KeyVerdict, RunSummary, Trace};

/// Size of BAR 0: registers, UAR pages, device memory.
pub const BAR0_SIZE: u64 = 32 << 20;
/// Offset of the MSI-X table in BAR 0. QEMU keeps the table; the function never sees accesses to it.
pub const MSIX_TABLE: u32 = 0x4000;
/// Offset of the MSI-X pending bits in BAR 0; they read 0, pending interrupts live in the VMM.
pub const MSIX_PBA: u32 = 0x5000;

/// Event types that the function itself makes.
const EVENT_COMMAND: u8 = 0x0a;
const EVENT_PAGE_REQUEST: u8 = 0x0b;

/// Commands that one portion of work runs at most.
const COMMANDS_PER_PORTION: usize = 4;
/// Bytes of input and output after which a portion of work runs no further command.
const COMMAND_BYTES_PER_PORTION: usize = 64 << 10;
/// Events that one portion of work delivers at most.
const EVENTS_PER_PORTION: usize = 64;

/// Why the function is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetKind {
    /// The VMM's machine reset.
    Vmm,
    /// The guest's function-level reset.
    FunctionLevel,
    /// The driver's software reset through the initialization segment.
    Software,
}

impl ResetKind {
    fn name(self) -> &'static str {
        match self {
            ResetKind::Vmm => "vmm",
            ResetKind::FunctionLevel => "flr",
            ResetKind::Software => "sw-reset",
        }
    }
}

/// What is left to do after a portion of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// More work is ready now.
    pub more: bool,
    /// There was something to do.
    pub busy: bool,
    /// Doorbells are polled for: work may become ready without any call.
    pub polls: bool,
    /// After how many nanoseconds work becomes ready by itself.
    pub wait: Option<u64>,
}

/// The PCI function.
pub struct Function {
    clock: Box<dyn Clock>,
    config: ConfigSpace,
    segment: InitSegment,
    bus: Bus,
    hca: Hca,
    commands: Commands,
    trace: Trace,
    summary: RunSummary,
}

fn identity(profile: &Profile) -> Identity {
    let pci = &profile.pci;
    Identity {
        vendor_id: pci.vendor_id,
        device_id: pci.device_id,
        revision: pci.revision,
        class: 0x02_0000,
        subsystem_vendor_id: pci.subsystem_vendor_id,
        subsystem_id: pci.subsystem_id,
        bar0_size: BAR0_SIZE,
        msix_vectors: pci.msix_vectors,
        msix_table: MSIX_TABLE,
        msix_pba: MSIX_PBA,
        link_speed: pci.link_speed.encoding(),
        link_width: pci.link_width,
        relaxed_ordering: pci.relaxed_ordering,
        serial_number: u64::from_be_bytes(pci.serial_number.0),
        vpd: Vpd {
            product: pci.vpd_product.clone(),
            part_number: pci.vpd_part_number.clone(),
            engineering_level: pci.vpd_revision.clone(),
            serial_number: pci.vpd_serial.clone(),
        },
    }
}

impl Function {
    /// A function as `profile` describes it, just powered on.
    pub fn new(profile: Profile, clock: Box<dyn Clock>, trace: Trace) -> Function {
        let mut bus = Bus::new(profile.pci.msix_vectors);
        bus.reorder(profile.order.engine());
        let version = profile.firmware.version;
        let version = FirmwareVersion { major: version.major, minor: version.minor, sub: version.subminor };
        let mut summary = RunSummary::new();
        summary.profile = profile.name.clone();
        summary.pci_id = format!("{:04x}:{:04x}", profile.pci.vendor_id, profile.pci.device_id);
        summary.firmware = format!("{}.{}.{:04}", version.major, version.minor, version.sub);
        summary.config = profile.to_json(false);
        let config = ConfigSpace::new(identity(&profile));
        let mut hca = Hca::new(profile.clone());
        hca.pci_relaxed_ordering = config.relaxed_ordering();
        Function {
            clock,
            config,
            segment: InitSegment::new(version, u32::from(profile.pci.device_id)),
            bus,
            hca,
            commands: Commands::default(),
            trace,
            summary,
        }
    }

    /// The VMM's maps, to change them.
    pub fn bus_mut(&mut self) -> &mut Bus {
        &mut self.bus
    }

    /// Interrupts.
    pub fn irq(&self) -> &Interrupts {
        self.bus.irq()
    }

    /// Interrupts, to connect them.
    pub fn irq_mut(&mut self) -> &mut Interrupts {
        self.bus.irq_mut()
    }

    /// Writes a completion to a completion queue, as a queue's engine does.
    pub fn complete(&mut self, cqn: u32, cqe: &[u8; CQE]) -> Completion {
        let now = self.clock.now();
        self.hca.complete(cqn, cqe, Stream::Cq(cqn).into(), &mut self.bus, now)
    }

    /// Executes a UMR work request, as a queue's engine does.
    pub fn execute_umr(&mut self, poster: &Poster, mkey: u32, body: &[u8]) -> Result<(), UmrError> {
        self.hca.execute_umr(poster, mkey, body, &mut self.bus)
    }

    /// All state behind commands.
    pub fn hca(&self) -> &Hca {
        &self.hca
    }

    /// All state behind commands, to change it from outside: wires, tests.
    pub fn hca_mut(&mut self) -> &mut Hca {
        &mut self.hca
    }

    /// The trace that events go to.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The summary of the run so far.
    pub fn summary(&self) -> RunSummary {
        let mut summary = self.summary.clone();
        summary.keys = self.hca.keys.clone();
        summary.rdma = self.hca.rdma.traffic.clone();
        summary.objects_alive =
            self.hca.census().into_iter().map(|(kind, count)| (format!("{kind:?}"), count as u64)).collect();
        let pages = self.hca.objects.pages.counters();
        summary.pages.given = pages.given;
        summary.pages.reclaimed = pages.returned;
        summary.pages.dropped_by_reset = pages.reset;
        summary.pages.held = pages.lent;
        summary.wire_faults = self.hca.faults.report();
        if let Some(order) = self.bus.order() {
            order::note(&mut summary, order, self.bus.lost());
        }
        summary.interrupts = self.bus.irq().counters().0;
        summary
    }

    /// A VMM attached. It gets doorbell pages of its own if they are to be polled: the VMM before may still have its
    /// ones mapped.
    pub fn vmm_attached(&mut self) {
        if self.hca.profile.doorbells == Doorbells::Poll {
            self.hca.polling = match UarPages::new() {
                Ok(pages) => Some(Box::new(Polling::new(pages))),
                Err(error) => {
                    log::error!(target: "cx10::uar", "no memory for polled doorbells, they are trapped: {error}");
                    None
                }
            };
        }
        self.summary.vmms += 1;
        self.trace.event(self.clock.now(), &TraceEvent::Vmm { change: "attached" });
    }

    /// The VMM is gone.
    pub fn vmm_gone(&mut self) {
        self.hca.polling = None;
        self.trace.event(self.clock.now(), &TraceEvent::Vmm { change: "gone" });
        self.trace.flush();
    }

    /// Reads configuration space.
    pub fn config_read(&self, offset: u64, buf: &mut [u8]) {
        self.config.read(offset, buf);
    }

    /// Writes configuration space.
    pub fn config_write(&mut self, offset: u64, data: &[u8]) {
        let effect = self.config.write(offset, data);
        if effect.function_level_reset {
            self.reset(ResetKind::FunctionLevel);
        }
        self.bus.set_bus_master(self.config.bus_master());
        self.hca.pci_relaxed_ordering = self.config.relaxed_ordering();
    }

    /// Reads BAR 0. With memory space disabled everything reads all ones.
    pub fn bar_read(&mut self, offset: u64, buf: &mut [u8]) {
        buf.fill(0);
        self.bus.answer_read();
        if !self.config.memory_enabled() {
            buf.fill(0xff);
        } else if offset < init_segment::SIZE {
            self.segment.read(offset, buf, self.clock.now());
        } else if let Some(at) = offset.checked_sub(memic::BAR_OFFSET) {
            self.hca.read_memic(at, buf);
        }
    }

    /// Writes BAR 0.
    pub fn bar_write(&mut self, offset: u64, data: &[u8]) {
        if !self.config.memory_enabled() {
            return;
        }
        if offset < init_segment::SIZE {
            let mut effects = [None; 4];
            let mut next = effects.iter_mut();
            self.segment.write(offset, data, |effect| {
                if let Some(slot) = next.next() {
                    *slot = Some(effect);
                }
            });
            effects.into_iter().flatten().for_each(|effect| self.segment_effect(effect));
        } else if let Some(at) = offset.checked_sub(memic::BAR_OFFSET) {
            self.hca.write_memic(at, data);
        } else {
            self.uar_write(offset, data);
        }
    }

    fn segment_effect(&mut self, effect: Effect) {
        match effect {
            Effect::CommandQueue(_, NicInterface::SoftwareReset) => {
                self.reset(ResetKind::Software);
                self.segment.set_nic_interface(NicInterface::Disabled);
            }
            Effect::CommandQueue(address, NicInterface::Full) => {
                if self.segment.nic_interface() != NicInterface::Full {
                    // A driver takes over after a fast teardown or an internal error: the function starts anew.
                    self.hca.reset();
                    self.bus.discard();
                    self.segment.reset();
                    self.segment.set_command_queue(address);
                } else {
                    // Answers to the commands of the queue before land there now or never.
                    self.bus.drain(Scope::Stream(Stream::Command));
                }
                self.segment.set_nic_interface(NicInterface::Full);
                self.commands = Commands::at(Iova(address));
            }
            Effect::CommandQueue(_, requested) => {
                self.hca.quiesce();
                self.bus.drain(Scope::All);
                self.commands.drop_all();
                self.segment.set_nic_interface(requested);
            }
            Effect::CommandDoorbell(slots) => {
                if self.segment.nic_interface() == NicInterface::Full {
                    self.commands.rung |= slots;
                }
            }
        }
    }

    fn uar_write(&mut self, offset: u64, data: &[u8]) {
        let Ok(page) = u32::try_from(offset / uar::PAGE) else { return };
        if self.hca.phase() != Phase::Running {
            // A driver that has torn the HCA down still rings the queues that its interrupts find.
            return;
        }
        let Some(region) = self.hca.objects.uars.get_mut(page) else {
            let first = self.summary.unimplemented_doorbell("unallocated UAR");
            if first {
                log::warn!(target: "cx10::uar", "write of {} bytes at {offset:#x}: no UAR there", data.len());
            }
            return;
        };
        let Some(doorbell) = uar::decode(offset % uar::PAGE, data, &mut region.object.halves) else {
            return;
        };
        match doorbell {
            Doorbell::Eq { eqn, ci, arm } => {
                if let Some(entry) = self.hca.objects.eqs.get_mut(eqn).filter(|e| e.object.uar() == page) {
                    entry.object.doorbell(eqn, ci, arm, &mut self.bus);
                }
            }
            Doorbell::CqArm { cqn, word } => {
                // The sequence number tells stale requests on links that reorder writes; here they come in order.
                let now = self.clock.now();
                if !self.hca.arm_cq(page, cqn, word, now) && self.summary.unimplemented_doorbell("stray CQ") {
                    log::warn!(target: "cx10::uar", "UAR {page:#x}: CQ {cqn:#x} is not armed through this page");
                }
            }
            Doorbell::Send { qpn, .. } if self.hca.ring_qp(page, qpn) || self.hca.ring_sq(page, qpn) => {}
            Doorbell::Send { .. } => {
                // Nobody there takes it: said once, never answered.
                if self.summary.unimplemented_doorbell("send queue") {
                    log::warn!(target: "cx10::uar", "send doorbell through UAR {page:#x} is not served: {doorbell:?}");
                }
            }
        }
    }

    /// Returns the function to its power-on state. Interrupt connections and memory maps belong to the VMM and
    /// stay.
    pub fn reset(&mut self, kind: ResetKind) {
        log::info!(target: "cx10::device", "reset: {}", kind.name());
        self.summary.reset(kind.name());
        self.trace.event(self.clock.now(), &TraceEvent::Reset { kind: kind.name() });
        self.hca.reset();
        self.bus.discard();
        self.segment.reset();
        // Until a driver takes over; one that was there before the reset finds out by this (kernel `health.c`).
        self.segment.set_nic_interface(NicInterface::Disabled);
        self.commands = Commands::default();
        if kind != ResetKind::Software {
            self.config.reset();
            self.bus.set_bus_master(false);
            self.hca.pci_relaxed_ordering = self.config.relaxed_ordering();
        }
    }

    /// Does a bounded portion of work.
    pub fn work(&mut self) -> Progress {
        let mut bytes = 0;
        // One time for all of it: reading the clock takes as long as a small message.
        let now = self.clock.now();
        self.hca.tracer.tick(now);
        self.bus.advance(now);
        let look =
            if self.config.memory_enabled() { self.hca.poll_doorbells(&mut self.bus, now) } else { Look::default() };
        let mut busy = look.rung || self.is_ready() || self.hca.receive.busy();
        for _ in 0..COMMANDS_PER_PORTION {
            if bytes >= COMMAND_BYTES_PER_PORTION {
                break;
            }
            let Some(slot) = self.next_slot() else { break };
            bytes += self.command(slot);
            self.judged_keys();
        }
        self.ring_waiting();
        let frames = self.hca.run_ethernet(&mut self.bus, now);
        self.hca.run_rdma(&mut self.bus, now);
        self.judged_keys();
        self.hca.run_flushes(&mut self.bus, now);
        let timers = self.hca.expire_cq_timers(now);
        self.hca.write_traces(&mut self.bus);
        let mut blocked = false;
        for _ in 0..EVENTS_PER_PORTION {
            let Some(event) = self.hca.next_event() else { break };
            busy = true;
            if !self.deliver(event) {
                // Later events wait behind it: they must not overtake it in its queue.
                self.hca.put_back(event);
                blocked = true;
                break;
            }
        }
        let faults = self.tell_faults(now);
        let polling = self.hca.polling.as_ref().and_then(|polling| polling.next_deadline());
        let rdma = self.hca.rdma.next_deadline();
        let flush = self.hca.flushes.next_deadline();
        // What was issued in this turn may be due as well.
        let due = self.bus.advance(now);
        let pending = self.bus.next_due();
        let trace = self.hca.tracer.next_deadline();
        let deadlines = [self.hca.cq_events.next_deadline(), polling, rdma, flush, pending, trace];
        let deadline = deadlines.into_iter().flatten().min();
        Progress {
            more: due
                || look.more
                || timers
                || frames
                || faults
                || self.is_ready()
                || (self.hca.has_events() && !blocked),
            busy,
            polls: self.hca.polls(),
            wait: deadline.map(|at| at.saturating_sub(now)),
        }
    }

    /// Whether commands or queues have work.
    fn is_ready(&self) -> bool {
        self.commands.rung != 0 || self.hca.has_sends() || self.hca.rdma.is_ready() || !self.hca.flushes.is_empty()
    }

    /// Tells the driver of page faults, as many as their event queue has room for; whether there is more to do at once.
    fn tell_faults(&mut self, now: u64) -> bool {
        for _ in 0..EVENTS_PER_PORTION {
            let Some((token, event)) = self.hca.paging.untold() else { return false };
            let eq = self.hca.queue_for(event.event_type).and_then(|eqn| self.hca.objects.eqs.get(eqn));
            match eq.map(|entry| entry.object.is_full()) {
                // Nobody would resume it.
                None => {
                    self.hca.event_without_queue(&event);
                    let _ = self.hca.resume_fault(token, Named::Nothing, true, now);
                }
                Some(true) => {
                    if let Some(polling) = &mut self.hca.polling {
                        polling.nudge(now);
                    }
                    return false;
                }
                Some(false) => {
                    self.hca.paging.told(token);
                    self.deliver(event);
                }
            }
        }
        true
    }

    /// Passes judgements on keys on to the trace and the summary.
    fn judged_keys(&mut self) {
        while let Some(Judged { kind, origin, outcome }) = self.hca.key_log.take() {
            let verdict = match &outcome {
                Outcome::Created { index, grant, order } => {
                    if grant.withdrawn_encoding {
                        self.summary.violation("order_read_after_write = 2");
                    }
                    KeyVerdict::Created { index: *index, order: *order }
                }
                Outcome::Enabled { index, order, .. } => KeyVerdict::Enabled { index: *index, order: *order },
                Outcome::Refused { refusal, .. } => KeyVerdict::Refused(refusal),
            };
            self.trace.event(self.clock.now(), &TraceEvent::Key { kind, via: origin.name(), verdict });
        }
    }

    /// Delivers an event; `false` if that has to be tried again later.
    fn deliver(&mut self, event: Event) -> bool {
        let Some(eqn) = event.eqn.or_else(|| self.hca.queue_for(event.event_type)) else {
            self.hca.event_without_queue(&event);
            return true;
        };
        let Some(entry) = self.hca.objects.eqs.get_mut(eqn) else {
            self.hca.event_without_queue(&event);
            return true;
        };
        let now = self.clock.now();
        let posted = entry.object.post(eqn, &event, &mut self.bus, now);
        match posted {
            Posted::Delivered => {
                let (event_type, sub_type) = (event.event_type, event.sub_type);
                self.trace.event(self.clock.now(), &TraceEvent::Eqe { eqn, event_type, sub_type });
            }
            Posted::Overrun => self.fail(Health::AsyncEqOverrun),
            Posted::Unwritable => self.fail(Health::EqError),
            Posted::Full => {
                if let Some(polling) = &mut self.hca.polling {
                    polling.nudge(now);
                }
                return false;
            }
            Posted::Dead => {}
        }
        true
    }

    /// Internal error: the health buffer says so, commands are no longer served, and the interface shows as
    /// disabled, so that a driver's health poll finds it and starts the function anew.
    pub fn fail(&mut self, health: Health) {
        limited!(error, target: "cx10::device", "internal error: {health:?}");
        self.summary.reset("internal-error");
        // Who sees that the interface is disabled may free what it lent: nothing lands after that.
        self.bus.drain(Scope::All);
        self.segment.set_health(health);
        self.segment.set_nic_interface(NicInterface::Disabled);
        self.hca.set_internal_error();
        self.commands.drop_all();
    }
}
