//! Commands from doorbell to completion event.
//!
//! A command whose object needs more pages than the driver has lent is not answered: it waits in its slot, which the
//! device still owns, while a page request event asks the driver for them. That is what the driver keeps a slot and an
//! event queue for pages alone for (kernel `cmd.c:cmd_work_handler`, `eq.c:create_async_eqs`). The command is tried anew
//! when pages have come or another object has gone, and fails when the driver says that it cannot give.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{EVENT_COMMAND, EVENT_PAGE_REQUEST, Function};
use crate::cmdif::{self, access_reg, error, queue};
use crate::device::hca::Event;
use crate::device::init_segment::Health;
use crate::device::pages::News;
use crate::dma::Iova;
use crate::prm::eq::PagesReqEvent;
use crate::prm::status::Delivery;
use crate::trace::CommandRecord;

/// Slots of the command queue: one bit each.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Where the queue is.
    pub queue: Option<Iova>,
    /// Slots whose doorbell was rung.
    pub rung: u32,
    /// Slots whose commands wait for pages.
    waiting: u32,
    /// Slots that are answered at the next attempt, whatever comes of it.
    no_longer: u32,
}

impl Commands {
    /// A queue in which nothing was rung.
    pub fn at(queue: Iova) -> Commands {
        Commands { queue: Some(queue), ..Commands::default() }
    }

    /// Forgets everything that was rung.
    pub fn drop_all(&mut self) {
        (self.rung, self.waiting, self.no_longer) = (0, 0, 0);
    }
}

impl Function {
    /// The next slot to serve. Commands that wait for pages are rung anew if there is news for them.
    pub(super) fn next_slot(&mut self) -> Option<u8> {
        self.ring_waiting();
        let rung = &mut self.commands.rung;
        if *rung == 0 {
            return None;
        }
        let slot = rung.trailing_zeros();
        *rung &= !(1 << slot);
        Some(slot as u8)
    }

    /// Rings the doorbells of commands that wait for pages, if a new attempt may end otherwise.
    pub(super) fn ring_waiting(&mut self) {
        if self.commands.waiting == 0 {
            return;
        }
        let mut news = self.hca.objects.pages.take_news();
        // Without a queue for it nobody hears the request.
        news.refused |= self.hca.queue_for(EVENT_PAGE_REQUEST).is_none();
        let commands = &mut self.commands;
        if news.refused {
            commands.no_longer |= commands.waiting;
        }
        if news != News::default() {
            commands.rung |= std::mem::take(&mut commands.waiting);
        }
    }

    /// Runs the command in `slot`; returns how many bytes of input and output it has.
    pub(super) fn command(&mut self, slot: u8) -> usize {
        let Some(queue) = self.commands.queue else { return 0 };
        // Whoever rang: this attempt is the one that the command waited for.
        let last = self.commands.no_longer & (1 << slot) != 0;
        self.commands.waiting &= !(1 << slot);
        self.commands.no_longer &= !(1 << slot);
        let mut bytes = 0;
        let checksum = self.hca.block_signatures();
        // The command that makes the queue for completions is itself still polled for: `mlx5_cmd_comp_handler` finds no
        // waiter for its slot and follows a null pointer.
        let events = self.hca.queue_for(EVENT_COMMAND);
        let delivery = match queue::fetch(&mut self.bus, queue, slot, checksum) {
            queue::Fetched::Nothing => return 0,
            queue::Fetched::Unreachable => {
                self.fail(Health::FetchPciError);
                return 0;
            }
            queue::Fetched::Undelivered { status, .. } => {
                let record = CommandRecord {
                    time_ns: self.clock.now(),
                    slot,
                    token: 0,
                    input: &[],
                    output: &[],
                    delivery: status.0,
                };
                self.trace.command(&record);
                status
            }
            queue::Fetched::Command(request) => {
                bytes = request.input.len() + request.outlen;
                match self.run_command(*request, last) {
                    Some(delivery) => delivery,
                    None => {
                        self.commands.waiting |= 1 << slot;
                        // What this attempt itself took and gave back is no news.
                        self.hca.objects.pages.take_news();
                        self.request_pages();
                        return bytes;
                    }
                }
            }
        };
        if delivery != Delivery::OK {
            self.summary.delivery_error(&delivery.to_string());
        }
        self.command_event(slot, events);
        self.request_pages();
        bytes
    }

    /// Runs a command and answers it, unless it has to wait for pages and this is not its `last` attempt: then nothing has
    /// changed.
    fn run_command(&mut self, request: queue::Request, last: bool) -> Option<Delivery> {
        let now = self.clock.now();
        let (opcode, ..) = cmdif::header(&request.input);
        let (hca, bus) = (&mut self.hca, &mut self.bus);
        // A bug of ours must not take the VMM's guest down with it: the function fails as firmware does, and the
        // run's verdict says whose fault it was.
        let ran = catch_unwind(AssertUnwindSafe(|| cmdif::run(hca, bus, now, &request.input)));
        let Ok((output, result)) = ran else {
            self.summary.internal_failure(format!("{opcode}: the handler panicked"));
            self.fail(Health::FirmwareError);
            return Some(request.fail(&mut self.bus));
        };
        let name = opcode.to_string();
        let waits = matches!(&result, Err(error) if error.syndrome == error::common::NO_ICM_PAGES);
        let tried_again = waits && !last && self.may_wait();
        if !tried_again && !access_reg::is_of_tracer(&request.input) {
            let (_, op_mod, uid) = cmdif::header(&request.input);
            self.hca.tracer.tick(now);
            self.hca.tracer.command(opcode, op_mod, uid, request.slot, &result);
        }
        match &result {
            Ok(()) => {
                log::debug!(target: "cx10::cmd", "{name}: OK");
                self.summary.command(&name, 0, "", 0, "");
            }
            Err(_) if tried_again => {
                log::debug!(target: "cx10::cmd", "{name}: waits for pages");
                self.summary.pages.waits += 1;
                return None;
            }
            Err(error) => {
                self.hca.vport.env.refused(error.status);
                log::debug!(target: "cx10::cmd", "{name}: {error}");
                let meaning = error::meaning(error.syndrome.0).unwrap_or_default();
                self.summary.command(&name, error.status.0, &error.status.to_string(), error.syndrome.0, meaning);
                if error.syndrome == error::common::UNKNOWN_OPCODE && self.summary.unimplemented_opcode(&name) {
                    log::warn!(target: "cx10::cmd", "{name} is not implemented");
                }
                if error.syndrome == access_reg::syn::UNKNOWN_REGISTER {
                    let register = access_reg::register_name(&request.input);
                    if self.summary.unimplemented_register(&register) {
                        log::warn!(target: "cx10::cmd", "access register {register} is not implemented");
                    }
                }
            }
        }
        let (slot, token) = (request.slot, request.token);
        if !self.trace.enabled() {
            return Some(request.complete(&mut self.bus, output));
        }
        let input = request.input.clone();
        let delivery = request.complete(&mut self.bus, output.clone());
        self.trace.command(&CommandRecord {
            time_ns: now,
            slot,
            token,
            input: &input,
            output: &output,
            delivery: delivery.0,
        });
        Some(delivery)
    }

    /// Whether a command may wait for pages: somebody hears the request.
    fn may_wait(&self) -> bool {
        self.hca.objects.pages.lacks() && self.hca.queue_for(EVENT_PAGE_REQUEST).is_some()
    }

    /// Tells the driver that `slot` completed, if it wants to know by event: on the queue that there was when the
    /// command was taken, unless the command has destroyed it.
    fn command_event(&mut self, slot: u8, before: Option<u32>) {
        if let Some(eqn) = self.hca.queue_for(EVENT_COMMAND).filter(|eqn| before == Some(*eqn)) {
            let mut data = [0; 28];
            data[..4].copy_from_slice(&(1u32 << slot).to_be_bytes());
            let event = Event { event_type: EVENT_COMMAND, sub_type: 0, data, eqn: Some(eqn) };
            if !self.deliver(event) {
                self.hca.put_back(event);
            }
        }
    }

    /// Asks the driver for pages, or offers some back, if that is due.
    fn request_pages(&mut self) {
        if self.hca.queue_for(EVENT_PAGE_REQUEST).is_some() {
            if let Some(pages) = self.hca.objects.pages.request() {
                let mut event = PagesReqEvent::zeroed();
                event.set_num_pages(pages as u32);
                let mut data = [0; 28];
                data.copy_from_slice(event.as_bytes());
                self.hca.raise(Event { event_type: EVENT_PAGE_REQUEST, sub_type: 0, data, eqn: None });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::objects::Kind;
    use crate::prm::hca::ManagePagesIn;
    use crate::profile::Profile;
    use crate::testing::{FREE, Rig};

    const ALLOC_PD: u16 = 0x800;
    const DEALLOC_PD: u16 = 0x801;
    const SLOT: u64 = 2;

    /// A running function with hardly any pages, and its queue for page requests.
    fn rig() -> (Rig, u64) {
        let sets = ["pages.boot=1", "pages.init=2"];
        let mut rig = Rig::new(Profile::with("connectx10-c2c", &sets).expect("a legal profile"));
        rig.bring_up();
        let events = rig.event_queue(1 << EVENT_PAGE_REQUEST);
        (rig, events)
    }

    /// Allocates protection domains in [`SLOT`] until one waits; how many there are.
    fn exhaust(rig: &mut Rig) -> u32 {
        for count in 0..100 {
            rig.post(SLOT, &Rig::input(ALLOC_PD, 0, 16), 16);
            rig.ring(1 << SLOT);
            if answer(rig).is_none() {
                return count;
            }
        }
        panic!("no command ever lacks pages");
    }

    /// Status and syndrome of the command in [`SLOT`]; none while the device owns it.
    fn answer(rig: &Rig) -> Option<(u8, u32)> {
        answer_in(rig, SLOT)
    }

    fn answer_in(rig: &Rig, slot: u64) -> Option<(u8, u32)> {
        let entry = rig.entry(slot);
        let syndrome = u32::from_be_bytes([entry[0x24], entry[0x25], entry[0x26], entry[0x27]]);
        (entry[0x3f] & 1 == 0).then_some((entry[0x20], syndrome))
    }

    fn give(rig: &mut Rig, page: u64) {
        let mut give = ManagePagesIn::with_tail(8);
        give.set_opcode(0x108);
        give.set_op_mod(1);
        give.set_input_num_entries(1);
        give.pas_mut().copy_from_slice(&page.to_be_bytes());
        rig.ok(give.as_bytes(), 16);
    }

    const GRANTED: Option<(u8, u32)> = Some((0, 0));
    const LIMIT: Option<(u8, u32)> = Some((8, error::common::NO_ICM_PAGES.0));

    #[test]
    fn a_command_that_lacks_pages_waits_until_they_are_given() {
        let (mut rig, events) = rig();
        exhaust(&mut rig);
        let event = rig.read(events, 64);
        let asked = i32::from_be_bytes([event[0x24], event[0x25], event[0x26], event[0x27]]);
        assert_eq!((event[1], asked > 0), (EVENT_PAGE_REQUEST, true), "{event:x?}");
        // Others are served, and do not wake it.
        rig.ok(&Rig::input(0x100, 0, 16), 16);
        assert_eq!(answer(&rig), None);
        give(&mut rig, FREE);
        assert_eq!(answer(&rig), GRANTED);
        let summary = rig.function.summary();
        assert_eq!(summary.pages.waits, 1);
        assert!(summary.commands.failures.is_empty(), "{:?}", summary.commands.failures);
        rig.function.hca().audit().expect("accounts agree");
    }

    #[test]
    fn a_command_that_waits_is_refused_when_the_driver_cannot_give() {
        let (mut rig, _) = rig();
        let count = exhaust(&mut rig);
        rig.ok(&Rig::input(0x108, 0, 16), 16);
        assert_eq!(answer(&rig), LIMIT);
        // The next one may wait again.
        assert_eq!(exhaust(&mut rig), 0);
        give(&mut rig, FREE);
        assert_eq!(answer(&rig), GRANTED);
        let alive = rig.function.hca().census()[&Kind::Pd];
        assert_eq!(alive as u32, count + 1);
    }

    #[test]
    fn a_command_that_waits_takes_the_room_of_an_object_that_goes() {
        let (mut rig, _) = rig();
        exhaust(&mut rig);
        let pd = rig.function.hca().objects.pds.iter().next().expect("there are some").0;
        let mut dealloc = Rig::input(DEALLOC_PD, 0, 16);
        dealloc[8..12].copy_from_slice(&pd.to_be_bytes());
        rig.ok(&dealloc, 16);
        assert_eq!(answer(&rig), GRANTED);
    }

    #[test]
    fn nothing_waits_where_nobody_hears_the_request() {
        let sets = ["pages.boot=1", "pages.init=2"];
        let mut rig = Rig::new(Profile::with("connectx10-c2c", &sets).expect("a legal profile"));
        rig.bring_up();
        let refused = (0..100).map(|_| rig.exec(&Rig::input(ALLOC_PD, 0, 16), 16)).find(|answer| answer.status() != 0);
        assert_eq!(refused.map(|answer| (answer.status(), answer.syndrome())), LIMIT);
    }

    #[test]
    fn a_command_that_waits_is_answered_when_the_queue_for_requests_goes() {
        let (mut rig, _) = rig();
        exhaust(&mut rig);
        let more = SLOT + 1..SLOT + 20;
        for slot in more.clone() {
            rig.post(slot, &Rig::input(ALLOC_PD, 0, 16), 16);
            rig.ring(1 << slot);
            assert_eq!(answer_in(&rig, slot), None);
        }
        let eqn = rig.function.hca().queue_for(EVENT_PAGE_REQUEST).expect("there is one");
        let mut destroy = Rig::input(0x302, 0, 16);
        destroy[8..12].copy_from_slice(&eqn.to_be_bytes());
        rig.ok(&destroy, 16);
        // The queue's own memory is free now, but not enough of it.
        assert_eq!(answer(&rig), GRANTED);
        assert_eq!(answer_in(&rig, more.end - 1), LIMIT);
        assert!(more.into_iter().all(|slot| answer_in(&rig, slot).is_some()));
    }

    #[test]
    fn a_command_that_the_driver_replaces_waits_no_longer() {
        let (mut rig, _) = rig();
        exhaust(&mut rig);
        rig.post(SLOT, &Rig::input(0x10a, 0, 16), 112);
        rig.ring(1 << SLOT);
        assert!(answer(&rig).is_some(), "another command in its slot is answered");
        rig.post(SLOT, &Rig::input(ALLOC_PD, 0, 16), 16);
        give(&mut rig, FREE);
        assert_eq!(answer(&rig), None, "nobody has rung for this one");
        rig.ring(1 << SLOT);
        assert_eq!(answer(&rig), GRANTED);
    }

    #[test]
    fn a_refusal_that_finds_no_command_is_not_kept_for_the_next_one() {
        let (mut rig, _) = rig();
        exhaust(&mut rig);
        rig.write_entry(SLOT, [0; 64]);
        rig.ok(&Rig::input(0x108, 0, 16), 16);
        assert_eq!(exhaust(&mut rig), 0);
        give(&mut rig, FREE);
        assert_eq!(answer(&rig), GRANTED, "it was not refused for what the one before it heard");
    }

    #[test]
    fn answers_of_a_queue_land_before_another_queue_takes_its_place() {
        let sets = ["order.policy=lifo", "order.hold=20000", "order.max_delay=20000"];
        let mut rig = Rig::new(Profile::with("connectx10-c2c", &sets).expect("a legal profile"));
        rig.bring_up();
        rig.post(SLOT, &Rig::input(0x10a, 0, 16), 112);
        rig.ring(1 << SLOT);
        assert_eq!(answer(&rig), None, "the policy holds it");
        rig.function.bar_write(0x10, &0u32.to_be_bytes());
        rig.function.bar_write(0x14, &(FREE as u32).to_be_bytes());
        assert_eq!(answer(&rig), GRANTED);
    }

    #[test]
    fn a_reset_forgets_what_waits() {
        let (mut rig, _) = rig();
        exhaust(&mut rig);
        rig.renew();
        rig.bring_up();
        // Nobody has rung for it.
        rig.post(SLOT, &Rig::input(ALLOC_PD, 0, 16), 16);
        give(&mut rig, FREE);
        assert_eq!(answer(&rig), None);
        assert_eq!(rig.function.hca().census().get(&Kind::Pd), None);
    }
}
