use super::*;
use crate::prm::status::Status;

/// A message as the driver prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub time: u64,
    pub source: u32,
    pub lost: bool,
    pub format: String,
    pub params: Vec<u32>,
}

/// The driver's way through a ring (`fw_tracer.c:mlx5_fw_tracer_handle_traces`).
#[derive(Default)]
pub(crate) struct Reader {
    consumer: usize,
    last: u64,
    ready: Vec<Message>,
    open: Option<(u32, Message)>,
}

fn params_of(format: &str) -> usize {
    format.matches('%').count() - 2 * format.matches("%%").count()
}

impl Reader {
    fn block(&mut self, block: &[u8], messages: &mut Vec<Message>) {
        for event in block.chunks_exact(8) {
            let string = TracerStringEvent::new(event).unwrap();
            if string.event_id() == TIMESTAMP {
                let stamp = stamp_of(event);
                for mut message in self.ready.drain(..) {
                    let base = if message.time < (stamp & 0x7f) { stamp } else { stamp - 1 };
                    message.time |= base & !0x7f;
                    messages.push(message);
                }
                continue;
            }
            let word = string.string_param();
            if string.tdsn() == 0 {
                assert!(self.open.is_none(), "{:?} lacks parameters", self.open);
                let format = strings().text(word).expect("a text").to_string();
                let time = string.timestamp().into();
                let (source, lost) = (string.event_id(), string.lost() != 0);
                self.open = Some((string.tmsn(), Message { time, source, lost, format, params: Vec::new() }));
            } else {
                let (number, message) = self.open.as_mut().expect("a message");
                assert_eq!((*number, message.params.len() as u32 + 1), (string.tmsn(), string.tdsn()));
                message.params.push(word);
            }
            if self.open.as_ref().is_some_and(|(_, m)| m.params.len() == params_of(&m.format)) {
                self.ready.extend(self.open.take().map(|(_, message)| message));
            }
        }
    }

    /// The messages of all new blocks.
    pub fn read(&mut self, ring: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        let blocks = ring.len() / BLOCK;
        loop {
            let block = &ring[self.consumer * BLOCK..][..BLOCK];
            let stamp = stamp_of(&block[BLOCK - 8..]);
            if stamp <= self.last {
                return messages;
            }
            if self.last != 0 {
                let before = (self.consumer + blocks - 1) % blocks;
                assert_eq!(stamp_of(&ring[before * BLOCK + BLOCK - 8..][..8]), self.last, "events were lost");
            }
            self.block(block, &mut messages);
            (self.consumer, self.last) = ((self.consumer + 1) % blocks, stamp);
        }
    }
}

fn stamp_of(event: &[u8]) -> u64 {
    let event = TracerTimestampEvent::new(event).unwrap();
    if event.event_id() != TIMESTAMP {
        return 0;
    }
    let high = u64::from(event.timestamp52_40()) << 40;
    high | u64::from(event.timestamp39_8()) << 8 | u64::from(event.timestamp7_0())
}

fn running() -> Tracer {
    let mut tracer = Tracer { owned: true, ..Tracer::default() };
    tracer.set_ring(Ring { key: 0, start: 0, log_pages: 6 });
    assert!(tracer.run(true));
    tracer
}

fn taken(tracer: &mut Tracer) -> Vec<u8> {
    tracer.full.drain(..).flatten().collect()
}

#[test]
fn the_driver_finds_out_the_time_of_every_message() {
    let (mut tracer, mut expected, mut state) = (running(), Vec::new(), 1u64);
    let mut ring = Vec::new();
    let mut now = 0;
    for i in 0..2000u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Bursts at one time, steps within a window of 128 and across, long pauses.
        now += [0, 0, 1, 3, 100, 127, 128, 1 << 20][(state >> 61) as usize];
        tracer.tick(now);
        let opcode = Opcode::ALLOC_PD;
        tracer.command(opcode, 0, i as u16, 3, &Ok(()));
        expected.push((now, i));
        if state >> 50 & 0xf == 0 {
            tracer.close();
        }
        ring.extend(taken(&mut tracer));
    }
    tracer.close();
    ring.extend(taken(&mut tracer));
    ring.resize((ring.len() + BLOCK).next_multiple_of(4096), 0);
    let messages = Reader::default().read(&ring);
    assert_eq!(messages.len(), expected.len());
    let mut late = 0;
    for (message, (time, uid)) in messages.iter().zip(expected) {
        assert_eq!((message.params[1], message.lost), (uid & 0xffff, false));
        // Where the clock stands still, a block takes a tick of its own.
        assert!(message.time >= time && message.time - time < 200, "{} for {time}", message.time);
        late += u64::from(message.time > time);
    }
    assert!(late < 1200, "{late} times are not exact");
    assert!(messages.is_sorted_by_key(|message| message.time));
}

#[test]
fn a_refused_command_says_why() {
    let mut tracer = running();
    tracer.tick(0x1234_5678_9abc);
    let refused = CmdError::new(Status::BAD_PARAM_ERR, crate::mkey::policy::syn::STRONG_WRITE);
    tracer.command(Opcode::CREATE_MKEY, 0, 7, 2, &Err(refused));
    tracer.command(Opcode(0xbad), 1, 0, 2, &Err(refused));
    tracer.close();
    let mut ring = taken(&mut tracer);
    ring.resize(4096, 0);
    let messages = Reader::default().read(&ring);
    assert!(messages[0].format.starts_with("CREATE_MKEY op_mod"));
    assert_eq!((messages[0].time, &messages[0].params[..]), (0x1234_5678_9abc, &[0, 7, 2, 3, 0x23_0001][..]));
    assert!(messages[1].format.contains("keeps no order between writes"), "{}", messages[1].format);
    assert_eq!(messages[2].params, [0xbad, 1, 0, 2, 3, 0x23_0001]);
}

#[test]
fn what_is_lost_is_marked() {
    let mut tracer = running();
    for i in 0..10_000 {
        tracer.tick(i);
        tracer.command(Opcode::ALLOC_PD, 0, 0, 0, &Ok(()));
    }
    assert!(tracer.full.len() <= MAX_WAITING + 1);
    tracer.full.clear();
    tracer.command(Opcode::ALLOC_PD, 0, 0, 0, &Ok(()));
    tracer.close();
    let block = tracer.full.pop_front().unwrap();
    let lost: Vec<u32> =
        block.chunks_exact(8).map(|event| TracerStringEvent::new(event).unwrap()).map(|e| e.lost()).collect();
    assert_eq!(lost.iter().sum::<u32>(), 1, "one message tells of it");
}

#[test]
fn nothing_is_taken_before_the_driver_asks() {
    let mut tracer = Tracer::default();
    tracer.command(Opcode::ALLOC_PD, 0, 0, 0, &Ok(()));
    assert!(!tracer.run(true), "there is no ring");
    assert_eq!((tracer.next_deadline(), tracer.full.len()), (None, 0));
    let mut tracer = running();
    tracer.tick(5);
    tracer.command(Opcode::ALLOC_PD, 0, 0, 0, &Ok(()));
    assert_eq!(tracer.next_deadline(), Some(5 + PATIENCE_NS));
    tracer.reset();
    assert_eq!((tracer.owned, tracer.ring(), tracer.next_deadline()), (false, None, None));
}
