//! Tests of the sink and of decoding, with commands as a driver sends them.

use super::*;
use crate::dma::KeyOrder;
use crate::prm::caps_general::CmdHcaCap;
use crate::prm::mkey::{CreateMkeyIn, CreateMkeyOut};
use crate::prm::reg::PtysReg;
use std::path::PathBuf;

/// A writer that several owners can look into, and that can be made to fail.
#[derive(Clone, Default)]
struct Shared {
    bytes: Arc<Mutex<Vec<u8>>>,
    broken: Arc<AtomicBool>,
}

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.bytes.lock().unwrap().extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lines(&self) -> Vec<Value> {
        let bytes = self.bytes.lock().unwrap();
        bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect()
    }
}

fn meaning(syndrome: u32) -> Option<&'static str> {
    (syndrome == 0x10).then_some("relaxed_ordering_write must be 1")
}

fn trace_into(sink: &Shared, full: bool) -> Trace {
    let header = Header { profile: "connectx10-c2c".into(), config: serde_json::json!({"mkey.strict": "create"}) };
    Trace::to_writer(Box::new(sink.clone()), "test", &header, Options { full }, meaning).unwrap()
}

fn decode_full(input: &[u8], output: &[u8], delivery: u8, full: bool) -> Value {
    let sink = Shared::default();
    let trace = trace_into(&sink, full);
    trace.command(&CommandRecord { time_ns: 1_234_567, slot: 3, token: 0x55, input, output, delivery });
    sink.lines().remove(1)
}

fn decode_one(input: &[u8], output: &[u8]) -> Value {
    decode_full(input, output, 0, false)
}

fn create_mkey(relaxed: bool) -> Vec<u8> {
    let mut input = CreateMkeyIn::with_tail(16);
    input.set_opcode(0x200);
    input.set_uid(7);
    let mut mkc = input.memory_key_mkey_entry_mut();
    mkc.set_lr(1);
    mkc.set_len(0x1000);
    mkc.set_relaxed_ordering_write(u32::from(relaxed));
    input.as_bytes().to_vec()
}

#[test]
fn a_command_is_decoded_by_prm_names() {
    let mut output = CreateMkeyOut::zeroed();
    output.set_mkey_index(0x101);
    let line = decode_one(&create_mkey(true), output.as_bytes());
    assert_eq!(line["t"], 1_234_567);
    assert_eq!(line["ev"], "command");
    assert_eq!((&line["slot"], &line["token"]), (&3.into(), &0x55.into()));
    assert_eq!((&line["op"], &line["opcode"], &line["uid"]), (&"CREATE_MKEY".into(), &0x200.into(), &7.into()));
    assert_eq!(line["in"], serde_json::json!({"mkc.relaxed_ordering_write": 1, "mkc.lr": 1, "mkc.len": 0x1000}));
    assert_eq!(line["out"], serde_json::json!({"mkey_index": 0x101}));
    assert_eq!((&line["status"], &line["status_code"]), (&"OK".into(), &0.into()));
    assert!(line.get("syndrome").is_none());
}

#[test]
fn a_refusal_carries_status_syndrome_and_its_meaning() {
    let output = [3, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
    let line = decode_one(&create_mkey(false), &output);
    assert_eq!(line["status"], "BAD_PARAM_ERR");
    assert_eq!((&line["syndrome"], &line["meaning"]), (&0x10.into(), &meaning(0x10).into()));
    let text = human::event(line.as_object().unwrap(), false);
    assert_eq!(
        text,
        "0.001234 [3] CREATE_MKEY uid=0x7 mkc.lr=1 mkc.len=0x1000 = BAD_PARAM_ERR (syndrome 0x10: \
         relaxed_ordering_write must be 1)"
    );
}

#[test]
fn a_long_tail_is_summarised_unless_everything_is_wanted() {
    let mut input = CreateMkeyIn::with_tail(800);
    input.set_opcode(0x200);
    input.klm_pas_mtt_mut().fill(0xab);
    let input = input.as_bytes();
    let line = decode_one(input, &[0; 16]);
    assert_eq!(line["in"]["klm_pas_mtt"]["bytes"], 800);
    assert_eq!(line["in"]["klm_pas_mtt"]["head"], "ab".repeat(64));
    let line = decode_full(input, &[0; 16], 0, true);
    assert_eq!(line["in"]["klm_pas_mtt"], "ab".repeat(800));
}

#[test]
fn a_capability_area_is_decoded_by_its_own_layout() {
    // QUERY_HCA_CAP, general, current.
    let input = [0x01, 0x00, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut area = CmdHcaCap::zeroed();
    area.set_log_max_qp(18);
    let mut output = vec![0; 16];
    output.extend_from_slice(area.as_bytes());
    output.resize(0x1010, 0);
    let line = decode_one(&input, &output);
    assert_eq!(line["op"], "QUERY_HCA_CAP");
    assert_eq!(line["out"], serde_json::json!({"caps.general.log_max_qp": 18}));
}

#[test]
fn a_register_is_decoded_by_its_own_layout() {
    let mut input = vec![0x08, 0x05, 0, 0, 0, 0, 0, 1, 0, 0, 0x50, 0x04, 0, 0, 0, 0];
    let mut ptys = PtysReg::zeroed();
    ptys.set_local_port(1);
    input.extend_from_slice(ptys.as_bytes());
    ptys.set_eth_proto_oper(1 << 22);
    let mut output = vec![0; 16];
    output.extend_from_slice(ptys.as_bytes());
    let line = decode_one(&input, &output);
    assert_eq!(line["op"], "ACCESS_REG");
    assert_eq!(line["in"], serde_json::json!({"register_id": 0x5004, "PTYS.local_port": 1}));
    assert_eq!(line["out"], serde_json::json!({"PTYS.local_port": 1, "PTYS.eth_proto_oper": 1 << 22}));
}

#[test]
fn a_register_or_command_without_a_layout_is_shown_raw() {
    let mut input = vec![0x08, 0x05, 0, 0, 0, 0, 0, 1, 0, 0, 0xff, 0xee, 0, 0, 0, 0];
    input.extend_from_slice(&[1, 2, 3, 4]);
    assert_eq!(decode_one(&input, &[0; 16])["in"]["0xffee"], "01020304");
    let unknown = [0x0f, 0xff, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9, 0, 0, 0, 0];
    let line = decode_one(&unknown, &[2, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!((&line["op"], &line["op_mod"]), (&"OPCODE_0xfff".into(), &2.into()));
    assert_eq!(line["in"]["raw"], "0909090900000000");
    assert_eq!((&line["status"], &line["syndrome"]), (&"BAD_OP_ERR".into(), &1.into()));
}

#[test]
fn a_text_field_is_shown_as_text() {
    // SET_DRIVER_VERSION
    let mut input = vec![0x01, 0x0d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    input.extend_from_slice(b"Linux,mlx5_core,7.3.4");
    input.resize(0x50, 0);
    let line = decode_one(&input, &[0; 16]);
    assert_eq!(line["in"], serde_json::json!({"driver_version": "Linux,mlx5_core,7.3.4"}));
}

#[test]
fn a_command_that_was_not_delivered_says_why() {
    let line = decode_full(&[], &[], 2, false);
    assert_eq!((&line["delivery"], &line["delivery_name"]), (&2.into(), &"TOK_ERR".into()));
    assert!(line.get("status").is_none());
    assert!(human::event(line.as_object().unwrap(), false).ends_with("= DELIVERY ERROR TOK_ERR"));
    // Run, but its output found no memory.
    let line = decode_full(&create_mkey(true), &[0; 16], 6, false);
    assert!(human::event(line.as_object().unwrap(), false).ends_with("= DELIVERY ERROR FW_ERR = OK"));
}

#[test]
fn truncated_commands_of_every_opcode_are_decoded_without_panic() {
    let sink = Shared::default();
    let trace = trace_into(&sink, false);
    let mut count = 0;
    for (opcode, _) in crate::prm::Opcode::ALL {
        for len in [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 64, 0x10f, 0x110, 0x3ff, 0x1010, 0x1011] {
            for fill in [0u8, 0xff] {
                let mut input = vec![fill; len];
                for (to, from) in input.iter_mut().zip(opcode.0.to_be_bytes()) {
                    *to = from;
                }
                let output = vec![fill; len];
                trace.command(&CommandRecord {
                    time_ns: 0,
                    slot: 0,
                    token: 0,
                    input: &input,
                    output: &output,
                    delivery: 0,
                });
                count += 1;
            }
        }
    }
    assert_eq!(trace.lines(), count);
    let text: String = sink.lines().iter().map(|l| l.to_string() + "\n").collect();
    let counts = human::print(text.as_bytes(), io::sink(), &human::Options::default()).unwrap();
    assert_eq!(counts.shown, count);
}

#[test]
fn the_header_names_version_profile_and_configuration() {
    let sink = Shared::default();
    trace_into(&sink, false);
    let lines = sink.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["cx10_trace"], FORMAT);
    assert_eq!(lines[0]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(lines[0]["profile"], "connectx10-c2c");
    assert_eq!(lines[0]["config"]["mkey.strict"], "create");
}

#[test]
fn a_trace_that_is_off_is_not_enabled_and_swallows_events() {
    let trace = Trace::off();
    assert!(!trace.enabled());
    trace.event(0, &Event::Irq { vector: 1 });
    trace.flush();
    assert_eq!(trace.lines(), 0);
}

#[test]
fn a_trace_that_cannot_be_written_switches_itself_off() {
    let sink = Shared::default();
    let trace = trace_into(&sink, false);
    let clone = trace.clone();
    assert!(trace.enabled() && clone.enabled());
    sink.broken.store(true, Ordering::Relaxed);
    trace.event(0, &Event::Irq { vector: 1 });
    assert!(!trace.enabled() && !clone.enabled());
    sink.broken.store(false, Ordering::Relaxed);
    trace.event(0, &Event::Irq { vector: 1 });
    assert_eq!(sink.lines().len(), 1, "nothing after the gap");
}

#[test]
fn a_full_disk_switches_the_trace_off_and_the_device_goes_on() {
    let full = PathBuf::from("/dev/full");
    if !full.exists() {
        panic!("this test needs /dev/full");
    }
    let made = Trace::to_file(&full, &Header::default(), Options::default(), meaning);
    assert!(made.is_err(), "the header is written at once, so that the user learns it at the start");
}

#[test]
fn every_event_has_its_line() {
    let sink = Shared::default();
    let trace = trace_into(&sink, false);
    let refusal = KeyRefusal { reason: "why".into(), field: "free".into(), value: 1, uid: 5, ..KeyRefusal::default() };
    let events = [
        Event::Key { kind: KeyKind::Window, via: "CREATE_MKEY", verdict: KeyVerdict::Refused(&refusal) },
        Event::Key {
            kind: KeyKind::Pa,
            via: "CREATE_MKEY",
            verdict: KeyVerdict::Created {
                index: 0x101,
                order: KeyOrder { relaxed_write: true, relaxed_read: false, relaxed_read_after_write: true },
            },
        },
        Event::Object { kind: "cq", id: 4, change: "created" },
        Event::Reset { kind: "flr" },
        Event::DmaError { iova: 0x1000, len: 64, dir: "write", class: "Eqe", reason: "unmapped" },
        Event::Eqe { eqn: 1, event_type: 0xa, sub_type: 0 },
        Event::Irq { vector: 3 },
        Event::Doorbell { kind: "send queue", uar: 3, value: 0x10 },
        Event::Vmm { change: "attached" },
    ];
    for event in &events {
        trace.event(2000, event);
    }
    let lines = sink.lines();
    let text: Vec<_> = lines[1..].iter().map(|l| human::event(l.as_object().unwrap(), false)).collect();
    assert_eq!(
        text,
        [
            "0.000002     key window by CREATE_MKEY refused: why (free=1 uid=5 pd=0 start_addr=0 length=0)",
            "0.000002     key pa by CREATE_MKEY created index=0x101 relaxed=true relaxed_read=false unordered=true",
            "0.000002     object kind=cq id=4 change=created",
            "0.000002     reset kind=flr",
            "0.000002     dma_error iova=0x1000 len=0x40 dir=write class=Eqe reason=unmapped",
            "0.000002     eqe eqn=1 type=0xa sub_type=0",
            "0.000002     irq vector=3",
            "0.000002     doorbell kind=\"send queue\" uar=3 value=0x10",
            "0.000002     vmm change=attached",
        ]
    );
}

#[test]
fn a_driver_on_its_way_up_can_be_followed_in_the_trace() {
    use crate::profile::Profile;
    use crate::testing::Rig;
    let sink = Shared::default();
    let profile = Profile::with("connectx10-c2c", &["pages.boot=3", "pages.init=0"]).unwrap();
    let mut rig = Rig::traced(profile, trace_into(&sink, false));
    rig.bring_up();
    rig.ok(&Rig::input(0x100, 1, 16), 0x1010);
    rig.exec(&Rig::input(0xfff, 0, 16), 16);
    rig.function.reset(crate::device::function::ResetKind::FunctionLevel);
    let lines = sink.lines();
    let text: Vec<_> = lines[1..].iter().map(|l| human::event(l.as_object().unwrap(), false)).collect();
    let find =
        |part: &str| text.iter().find(|l| l.contains(part)).unwrap_or_else(|| panic!("{part}: {text:#?}")).clone();
    assert_eq!(find("ENABLE_HCA"), "0.000000 [0] ENABLE_HCA = OK");
    assert!(find("QUERY_PAGES op_mod=0x1").ends_with("= OK num_pages=3"), "{}", find("QUERY_PAGES op_mod=0x1"));
    assert!(find("MANAGE_PAGES op_mod=0x1").contains("input_num_entries=3"), "{}", find("MANAGE_PAGES op_mod=0x1"));
    assert!(find("QUERY_HCA_CAP op_mod=0x1 = OK").contains("caps.general."));
    assert!(find("OPCODE_0xfff").contains("= BAD_OP_ERR (syndrome 0x"));
    assert!(find("reset kind=").starts_with("0.000000     reset kind="));
    let failed = human::Options { failed: true, ..human::Options::default() };
    let all: String = lines.iter().map(|l| l.to_string() + "\n").collect();
    assert_eq!(human::print(all.as_bytes(), io::sink(), &failed).unwrap().shown, 1, "only the unknown opcode");
}
