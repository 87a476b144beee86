//! The host channel adapter: all state behind the command interface.

use std::collections::VecDeque;

use super::capabilities::{ATOMIC, Capabilities, ROCE};
use super::cq::CqEvents;
use super::flush::FlushSchedule;
use super::memic::DeviceMemory;
use super::multicast;
use super::objects::{Kind, Objects};
use super::pages::{Demand, Pages};
use super::poll::Polling;
use super::port::{PORT_NUMBER, Port};
use super::rdma;
use super::rdma::paging::Paging;
use super::receive::ReceivePath;
use super::roce::RoceTable;
use super::send::SendSchedule;
use super::steering::Roots;
use super::steering::walk::Verdict;
use super::tracer::Tracer;
use super::vport::NicVport;
use crate::log_limit::limited;
use crate::mkey::judged::{Judged, KeyLog, Outcome};
use crate::mkey::policy::Origin;
use crate::mkey::rules::KeyRules;
use crate::mkey::translate::KeySpace;
use crate::prm::eq::{CompEvent, PortStateChangeEvent};
use crate::prm::event::{EventType, PortChange};
use crate::profile::Profile;
use crate::trace::report::Keys;
use crate::wire::{Link, NotConnected};

/// Life of the HCA between ENABLE_HCA and DISABLE_HCA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not enabled.
    Disabled,
    /// Enabled: pages, capabilities, registers.
    Enabled,
    /// Initialized: objects.
    Running,
}

/// What moves the HCA from phase to phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// ENABLE_HCA.
    Enable,
    /// INIT_HCA.
    Init,
    /// TEARDOWN_HCA.
    Teardown,
    /// TEARDOWN_HCA by force, or the interface disabled: the driver leaves its objects behind.
    ForceTeardown,
    /// DISABLE_HCA.
    Disable,
    /// Any reset.
    Reset,
}

impl Phase {
    /// The phase after `transition`, or `None` where the PRM does not allow it.
    pub fn step(self, transition: Transition) -> Option<Phase> {
        use Phase::{Disabled, Enabled, Running};
        match (self, transition) {
            (_, Transition::Reset) => Some(Disabled),
            (Disabled, Transition::Enable) => Some(Enabled),
            (Enabled, Transition::Init) => Some(Running),
            (Running, Transition::Teardown | Transition::ForceTeardown) => Some(Enabled),
            (Enabled, Transition::Disable) => Some(Disabled),
            _ => None,
        }
    }
}

/// An asynchronous event on its way to an event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Event type.
    pub event_type: u8,
    /// Event sub-type.
    pub sub_type: u8,
    /// The event's data.
    pub data: [u8; 28],
    /// A particular queue, or whichever takes the type.
    pub eqn: Option<u32>,
}

impl Event {
    /// The completion queue that it announces completions of.
    pub fn announces(&self) -> Option<u32> {
        let event = CompEvent::new(&self.data[..]).ok().filter(|_| self.event_type == EventType::COMP.0)?;
        Some(event.cq_number())
    }
}

/// Events that wait for a queue are bounded; a guest that makes more than this before any is delivered loses them.
const MAX_EVENTS: usize = 4096;

/// All state behind the command interface.
#[derive(Debug)]
pub struct Hca {
    phase: Phase,
    /// Capabilities, current and maximal.
    pub caps: Capabilities,
    /// Every object.
    pub objects: Objects,
    /// Interface step sequence id that the driver chose.
    pub issi: u16,
    /// The profile that the function was made from.
    pub profile: Profile,
    /// Driver name and version, if it told.
    pub driver_version: String,
    /// Device memory behind BAR 0.
    pub memic: DeviceMemory,
    /// The Ethernet port.
    pub port: Port,
    /// The NIC vport.
    pub vport: NicVport,
    /// RoCE source addresses.
    pub roce: RoceTable,
    /// Where packets enter flow steering.
    pub roots: Roots,
    /// Send queues that have work.
    pub sends: SendSchedule,
    /// The way of a frame through the flow tables of the sending side.
    pub egress: Verdict,
    /// The Ethernet frame that is on its way to receive queues.
    pub receive: ReceivePath,
    /// Receive queues in error with entries to flush.
    pub flushes: FlushSchedule,
    /// Queue pairs that have work.
    pub rdma: rdma::Schedule,
    /// Accesses that wait for their pages.
    pub paging: Paging,
    /// What befalls packets on their way; not a part of the function, so no reset changes it.
    pub faults: rdma::fault::Faults,
    /// Atomic operations take memory as big-endian, until the driver asks for the host's order.
    pub atomics_big_endian: bool,
    /// What the port is connected to.
    pub link: Box<dyn Link>,
    /// Text of the node description register.
    pub node_description: [u8; 64],
    /// Keys created and refused; part of the report.
    pub keys: Keys,
    /// Judgements on keys that the trace has not seen yet.
    pub key_log: KeyLog,
    /// What the capabilities say about keys.
    pub key_space: KeySpace,
    /// What keys may be.
    pub key_rules: KeyRules,
    /// Where lists of UMR work requests are read to; kept, so that nothing is allocated for each.
    pub umr_list: Vec<u8>,
    /// "Enable Relaxed Ordering" of PCIe Device Control.
    pub pci_relaxed_ordering: bool,
    /// Completion events that wait.
    pub cq_events: CqEvents,
    /// Multicast groups.
    pub multicast: multicast::Groups,
    /// The firmware tracer.
    pub tracer: Tracer,
    /// Doorbell pages that are polled, if the VMM may map them.
    pub polling: Option<Box<Polling>>,
    events: VecDeque<Event>,
    pub(super) events_lost: u64,
    internal_error: bool,
}

fn new_objects(profile: &Profile, caps: &Capabilities) -> Objects {
    let demand = Demand { boot: profile.pages.boot, init: profile.pages.init };
    Objects::new(Pages::new(demand), |kind| caps.max_objects(kind))
}

/// The profile's description, padded; the last byte stays 0.
fn node_description(profile: &Profile) -> [u8; 64] {
    let text = profile.net.node_description.as_bytes();
    std::array::from_fn(|i| if i < 63 { text.get(i).copied().unwrap_or(0) } else { 0 })
}

impl Hca {
    /// A disabled HCA as `profile` describes it.
    pub fn new(profile: Profile) -> Hca {
        let caps = Capabilities::new(&profile);
        Hca {
            phase: Phase::Disabled,
            objects: new_objects(&profile, &caps),
            port: Port::new(&profile),
            vport: NicVport::new(&profile.net, &caps),
            roce: RoceTable::default(),
            roots: Roots::default(),
            sends: SendSchedule::default(),
            egress: Verdict::default(),
            receive: ReceivePath::default(),
            flushes: FlushSchedule::default(),
            rdma: rdma::Schedule::default(),
            paging: Paging::default(),
            faults: rdma::fault::Faults::new(&profile.wire.fault),
            atomics_big_endian: true,
            link: Box::new(NotConnected),
            caps,
            issi: 0,
            node_description: node_description(&profile),
            profile,
            driver_version: String::new(),
            memic: DeviceMemory::new(),
            keys: Keys::default(),
            key_log: KeyLog::default(),
            key_space: KeySpace::default(),
            key_rules: KeyRules::default(),
            umr_list: Vec::new(),
            pci_relaxed_ordering: false,
            cq_events: CqEvents::default(),
            multicast: multicast::Groups::default(),
            tracer: Tracer::default(),
            polling: None,
            events: VecDeque::new(),
            events_lost: 0,
            internal_error: false,
        }
    }

    /// The present phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Moves to the next phase; `false` if the PRM does not allow it now.
    pub fn step(&mut self, transition: Transition) -> bool {
        let Some(next) = self.phase.step(transition) else {
            return false;
        };
        log::debug!(target: "cx10::hca", "{:?} -> {next:?} by {transition:?}", self.phase);
        self.phase = next;
        match transition {
            Transition::Init => {
                self.key_space = KeySpace::new(&self.caps, &self.profile.mkey);
                self.key_rules = KeyRules::new(&self.caps);
                self.paging = Paging::new(&self.caps);
                // Limits follow the capabilities that the driver chose.
                let pages = std::mem::replace(&mut self.objects.pages, Pages::new(Demand { boot: 0, init: 0 }));
                self.objects = Objects::new(pages, |kind| self.caps.max_objects(kind));
                self.vport = NicVport::new(&self.profile.net, &self.caps);
                self.roots = Roots::default();
                self.atomics_big_endian = self.caps.get(ATOMIC, "atomic_req_8B_endianness_mode") == 0;
                self.sends = SendSchedule::new(&self.caps);
                self.receive = ReceivePath::new(&self.caps);
                self.roce = RoceTable::new(self.caps.get(ROCE, "roce_address_table_size") as usize);
            }
            Transition::Teardown => {
                let census = self.objects.census();
                if !census.is_empty() {
                    limited!(warn, target: "cx10::hca", "torn down with objects alive: {census:?}");
                }
                self.forget_objects();
            }
            Transition::ForceTeardown => self.forget_objects(),
            Transition::Disable => {
                self.caps = Capabilities::new(&self.profile);
                self.issi = 0;
            }
            Transition::Enable | Transition::Reset => {}
        }
        true
    }

    fn clear_objects(&mut self) {
        self.keys.note_destroyed(self.objects.mkeys.len() as u64);
        self.objects.clear();
        self.objects.pages.refund(self.multicast.memberships() * multicast::MEMBER_BYTES);
        self.multicast.clear();
        if let Some(polling) = &mut self.polling {
            polling.clear();
        }
        self.forget_traffic();
    }

    /// Forgets all turns of queues and the frame that is under way.
    fn forget_traffic(&mut self) {
        self.forget_sends();
        self.flushes.clear();
        self.receive.clear();
        self.rdma.clear();
        self.paging.clear();
    }

    /// Counts, logs and traces a judgement on a key.
    pub fn note_key(&mut self, judged: Judged) {
        if let (Outcome::Refused { syndrome, .. }, Origin::UmrEnable | Origin::UmrModify) =
            (&judged.outcome, judged.origin)
        {
            self.tracer.key_refused(syndrome.0);
        }
        self.key_log.note(&mut self.keys, judged);
    }

    fn forget_objects(&mut self) {
        self.clear_objects();
        self.tracer.reset();
        self.cq_events.clear();
        self.events.clear();
    }

    /// Returns to the state after power-on; pages are forgotten, the driver owns them again.
    pub fn reset(&mut self) {
        self.step(Transition::Reset);
        self.clear_objects();
        self.tracer.reset();
        self.objects.pages.reset();
        self.cq_events.clear();
        self.events.clear();
        self.caps = Capabilities::new(&self.profile);
        self.issi = 0;
        self.driver_version.clear();
        self.memic.reset();
        self.port = Port::new(&self.profile);
        self.port.set_carrier(self.link.carrier());
        self.node_description = node_description(&self.profile);
        self.internal_error = false;
    }

    /// Stops everything at once, as disabling the interface does: objects and events are gone, pages stay lent.
    pub fn quiesce(&mut self) {
        self.step(Transition::ForceTeardown);
        self.events.clear();
    }

    /// Whether mailbox signatures are in force.
    pub fn block_signatures(&self) -> bool {
        const ENABLED: u64 = 3;
        self.caps.general("cmdif_checksum") == ENABLED
    }

    /// Whether the function stopped serving commands after an internal error.
    pub fn internal_error(&self) -> bool {
        self.internal_error
    }

    /// Enters internal error: commands are answered so until the next reset.
    pub fn set_internal_error(&mut self) {
        self.internal_error = true;
        self.forget_traffic();
    }

    /// Whether `uid` names a user context.
    pub fn user_context_exists(&self, uid: u16) -> bool {
        self.objects.uctxs.get(u32::from(uid)).is_some()
    }

    /// Queues an event; it is delivered after the command that caused it has completed.
    pub fn raise(&mut self, event: Event) {
        self.tracer.event(&event);
        if self.events.len() >= MAX_EVENTS {
            self.events_lost += 1;
            return;
        }
        self.events.push_back(event);
    }

    /// Whether another event can be raised.
    pub fn has_room_for_events(&self) -> bool {
        self.events.len() < MAX_EVENTS
    }

    /// Whether the vport has a link.
    pub fn vport_is_up(&self) -> bool {
        self.vport.is_up(self.port.is_up())
    }

    /// Does something that may change the link of the vport; if it did, the driver learns it by event.
    pub fn change_link<T>(&mut self, change: impl FnOnce(&mut Hca) -> T) -> T {
        let before = self.vport_is_up();
        let result = change(self);
        let after = self.vport_is_up();
        if before == after {
            return result;
        }
        log::info!(target: "cx10::port", "link {}", if after { "up" } else { "down" });
        let sub_type = if after { PortChange::ACTIVE } else { PortChange::DOWN };
        let mut state = PortStateChangeEvent::zeroed();
        state.set_port_num(PORT_NUMBER);
        let mut data = [0; 28];
        data.copy_from_slice(state.as_bytes());
        self.raise(Event { event_type: EventType::PORT_CHANGE.0, sub_type: sub_type.0, data, eqn: None });
        result
    }

    /// Puts an event back that cannot be delivered yet.
    pub fn put_back(&mut self, event: Event) {
        self.events.push_front(event);
    }

    /// The next event to deliver. Asynchronous events are few and go first.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.next_completion_event())
    }

    /// Whether events wait.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || self.cq_events.has_ready()
    }

    /// Events that were lost because too many waited or no queue takes their type.
    pub fn events_lost(&self) -> u64 {
        self.events_lost
    }

    /// Counts an event that no queue takes.
    pub fn event_without_queue(&mut self, event: &Event) {
        self.events_lost += 1;
        log::debug!(target: "cx10::eq", "no event queue takes type {:#x}", event.event_type);
    }

    /// The event queue that takes `event_type`.
    pub fn queue_for(&self, event_type: u8) -> Option<u32> {
        self.objects.eqs.iter().find(|(_, entry)| entry.object.takes(event_type)).map(|(eqn, _)| eqn)
    }

    /// Compares reference counts and the context memory in use with the objects that exist. What does not agree is a
    /// defect of the device, whatever a guest did; for tests.
    pub fn audit(&self) -> Result<(), String> {
        let charged = self.objects.audit()? + self.multicast.memberships() * multicast::MEMBER_BYTES;
        match self.objects.pages.used() {
            used if used == charged => Ok(()),
            used => Err(format!("{used:#x} bytes of context memory in use, {charged:#x} charged")),
        }
    }

    /// Objects alive by kind.
    pub fn census(&self) -> std::collections::BTreeMap<Kind, usize> {
        self.objects.census()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_phase_changes_of_the_prm_are_allowed() {
        use Phase::{Disabled, Enabled, Running};
        use Transition::{Disable, Enable, ForceTeardown, Init, Reset, Teardown};
        let allowed = [
            (Disabled, Enable, Enabled),
            (Enabled, Init, Running),
            (Running, Teardown, Enabled),
            (Running, ForceTeardown, Enabled),
            (Enabled, Disable, Disabled),
            (Disabled, Reset, Disabled),
            (Enabled, Reset, Disabled),
            (Running, Reset, Disabled),
        ];
        for phase in [Disabled, Enabled, Running] {
            for transition in [Enable, Init, Teardown, ForceTeardown, Disable, Reset] {
                let expected = allowed.iter().find(|(p, t, _)| (*p, *t) == (phase, transition)).map(|a| a.2);
                assert_eq!(phase.step(transition), expected, "{phase:?} {transition:?}");
            }
        }
    }
}
