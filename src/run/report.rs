//! What a run came to, for people and as JSON.

use super::accel::Decided;
use super::guest::{Facts, LogLine, SeedRun};
use super::tools;
use crate::trace::report::{KeyRefusal, Order, OrderReplay, Overtaking, RunSummary, Verdict, WireFault};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

/// Version of the JSON form. Raised when a field changes its meaning or goes away, not when one is added.
pub const SCHEMA: u32 = 1;

/// Lines of a list that the report for people shows; the JSON form has all.
const SHOWN: usize = 12;

/// Microseconds after which a guest without hardware virtualisation has often not looked yet.
const SHORT_HOLD: u32 = 1000;

/// How the guest ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GuestExit {
    /// Exit status of the command or shell, if there was one.
    pub status: Option<u8>,
    /// Each run of the command, where seeds took turns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<SeedRun>,
    /// Why it could not be run with all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Kernel messages of the whole run that are warnings or about the device.
    pub kernel_log: Vec<LogLine>,
    /// Seconds since the kernel's start.
    pub uptime: f64,
}

/// Where the time went.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Seconds since the kernel's start by stage of the guest.
    pub stages: BTreeMap<String, f64>,
    /// Seconds from the start of QEMU to the end of the device.
    pub total: f64,
}

/// Everything that is known about a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of this form.
    pub schema: u32,
    /// How the guest's CPUs were run.
    pub accel: Decided,
    /// Guest memory.
    pub memory_mib: u64,
    /// Command that was run.
    pub command: Vec<String>,
    /// What the guest saw after the driver was bound.
    pub guest: Option<Facts>,
    /// How the guest ended; absent if it was left.
    pub exit: Option<GuestExit>,
    /// Where the time went.
    pub times: Times,
    /// The device's own summary; absent for a guest without the device.
    pub device: Option<RunSummary>,
}

impl Report {
    /// Exit code. Our own failure outweighs everything, because nothing else counts then; a command's status comes next;
    /// without a command it is 2 for a breach of the contract and 1 if the driver did not come up.
    pub fn exit_code(&self) -> u8 {
        let verdict = self.device.as_ref().map_or(Verdict::Clean, RunSummary::verdict);
        if verdict == Verdict::Internal {
            return verdict.exit_code();
        }
        if let Some(status) = self.exit.as_ref().and_then(|exit| exit.status) {
            return status;
        }
        let problems = self.guest.as_ref().is_some_and(|guest| !guest.problems.is_empty());
        if verdict == Verdict::Clean && problems { 1 } else { verdict.exit_code() }
    }

    /// The JSON form, the device's verdict and the exit code included.
    pub fn to_json(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).unwrap_or(serde_json::Value::Null);
        if let Some(map) = value.as_object_mut() {
            if let Some(device) = &self.device {
                map.insert("device".into(), device.to_json());
            }
            map.insert("exit_code".into(), self.exit_code().into());
        }
        value
    }

    /// Writes the JSON form; a regular file appears complete or not at all.
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(&self.to_json())?;
        text.push('\n');
        crate::files::write_whole(path, &text)
    }

    /// Prints the form for people. A closed pipe is no error.
    pub fn print(&self, to_stderr: bool) {
        let text = self.to_text();
        let _ =
            if to_stderr { io::stderr().write_all(text.as_bytes()) } else { io::stdout().write_all(text.as_bytes()) };
    }

    /// The form for people.
    pub fn to_text(&self) -> String {
        let mut out = Text::default();
        self.guest_lines(&mut out);
        if let Some(device) = &self.device {
            device_lines(device, &mut out);
        }
        self.kernel_lines(&mut out);
        if let Some(exit) = &self.exit {
            command_line(exit, &mut out);
            out.list("problem", &self.wrong_turns(exit));
        }
        if let Some(device) = &self.device {
            out.line("verdict", &self.verdict_text(device));
            self.hint(device, &mut out);
        }
        out.0
    }

    /// A driver that was started more than once for each run of the command has used up the seeds of others.
    fn wrong_turns(&self, exit: &GuestExit) -> Vec<String> {
        let lives = self.device.iter().filter_map(|device| device.order.as_ref()).map(|order| order.lives.len());
        let wrong = |lives: &usize| !exit.runs.is_empty() && exit.problems.is_empty() && *lives != exit.runs.len();
        let told = lives.filter(wrong).map(|lives| {
            format!(
                "the driver was started {lives} times for {} runs of the command, each time with the next seed: CX10_SEED and \
                 the seeds that are named here are not those that decided. Give such a command one seed at a time",
                exit.runs.len()
            )
        });
        told.collect()
    }

    /// What is judged, and how: of the device always, of the command where it failed.
    fn verdict_text(&self, device: &RunSummary) -> String {
        let verdict = device.verdict();
        let order = device.order.as_ref().map(|_| format!(" ({})", device.policy)).unwrap_or_default();
        let judged = format!("{}: {}{order}", verdict.name(), verdict.meaning());
        let problems = self.guest.as_ref().is_none_or(|guest| !guest.problems.is_empty());
        match self.exit.as_ref().and_then(|exit| exit.status) {
            _ if verdict == Verdict::Internal => judged,
            Some(0) => judged,
            Some(_)
                if self
                    .exit
                    .iter()
                    .all(|exit| !exit.runs.is_empty() && exit.runs.iter().all(|run| run.status == 0)) =>
            {
                format!("NOT RUN WITH ALL SEEDS; of the device: {judged}")
            }
            Some(status) => format!("COMMAND FAILED (exit status {status}); of the device: {judged}"),
            None if problems => format!("THE DRIVER DID NOT COME UP; of the device: {judged}"),
            None => judged,
        }
    }

    /// What a failure under a policy that reorders may mean, and what a success does not.
    fn hint(&self, device: &RunSummary, out: &mut Text) {
        // A broken promise is no order that the contract allows.
        let reorders = |order: &&Order| order.policy != "in-order" && order.illegal.is_none();
        let Some(order) = device.order.as_ref().filter(reorders) else { return };
        if self.exit.as_ref().is_some_and(|exit| exit.status == Some(0)) {
            return self.passed_hint(order, out);
        }
        if self.exit.as_ref().is_some_and(|exit| exit.status.is_none()) {
            return;
        }
        let failed = self.exit.iter().flat_map(|exit| &exit.runs).find(|run| run.status != 0);
        let seed = failed.map_or(order.seed, |run| run.seed);
        out.line(
            "hint",
            &format!(
                "data became visible in an order that the contract allows ({}, seed {seed}). Software that polls memory \
                 for data, its last byte or a flag, instead of a completion, takes stale data for new then, or hangs. \
                 Run it again with --order in-order: what still fails there is not about order",
                order.policy
            ),
        );
    }

    fn passed_hint(&self, order: &Order, out: &mut Text) {
        if order.tails > 0 {
            out.line(
                "hint",
                &format!(
                    "the last bytes of {} writes were visible before the rest. Software that polls the last byte and looks at \
                     no other does not notice, as ib_write_lat: what it measures then is the latency of that byte, not of the \
                     message",
                    order.tails
                ),
            );
        }
        let hold = order.settings.get("hold").and_then(|hold| hold.parse().ok()).unwrap_or(0);
        if self.accel == Decided::Tcg && hold < SHORT_HOLD {
            out.line(
                "hint",
                &format!(
                    "accesses were held for {hold} us at most, and this guest, without hardware virtualisation, seldom looks so \
                     soon: --set order.hold=5000 --set order.max_delay=5000 hold them longer"
                ),
            );
        }
    }

    fn guest_lines(&self, out: &mut Text) {
        let Some(guest) = &self.guest else {
            out.line("guest", "left before it reported");
            return;
        };
        let booted = self.times.stages.get("booted").copied().unwrap_or_default();
        out.line(
            "guest",
            &format!(
                "Linux {}, {} CPUs, {} MiB, {}; up after {booted:.1} s, reported after {:.1} s",
                guest.release,
                guest.cpus,
                self.memory_mib,
                self.accel.name(),
                guest.uptime
            ),
        );
        for device in &guest.devices {
            let driver = device.driver.as_deref().unwrap_or("no driver");
            out.line("pci", &format!("{} {} {driver}", device.bdf, device.id));
            out.list("lspci", &tools::lspci(&device.lspci));
            for net in &device.netdevs {
                out.line("netdev", &format!("{} {} {} {}", net.name, net.operstate, net.mac, net.addresses.join(" ")));
            }
            for rdma in &device.rdma {
                let state = rdma.state.rsplit(": ").next().unwrap_or_default();
                let v2 = rdma.gids.iter().filter(|gid| gid.kind == "RoCE v2").count();
                out.line(
                    "rdma",
                    &format!("{} port 1 {state}, firmware {}, {v2} RoCE v2 GIDs", rdma.name, rdma.firmware),
                );
            }
        }
        out.list("link", &tools::rdma_link(&guest.rdma_link));
        out.list("devlink", &tools::devlink(&guest.devlink));
        for rdma in guest.devices.iter().flat_map(|device| &device.rdma) {
            out.all("devinfo", &tools::devinfo(&rdma.devinfo));
        }
        out.list("problem", &guest.problems);
    }

    fn kernel_lines(&self, out: &mut Text) {
        let log = match (&self.exit, &self.guest) {
            (Some(exit), _) => &exit.kernel_log,
            (None, Some(guest)) => &guest.kernel_log,
            (None, None) => return,
        };
        // Warnings of the drivers under test; those of the machine are in the JSON form.
        let lines: Vec<String> = log
            .iter()
            .filter(|line| line.level <= 4 && (line.text.contains("mlx5") || line.text.contains("infiniband")))
            .map(|line| format!("[{:9.3}] {}", line.time, line.text))
            .collect();
        out.list("kernel", &lines);
    }
}

fn device_lines(device: &RunSummary, out: &mut Text) {
    let RunSummary { profile, pci_id, firmware, policy, .. } = device;
    out.line("device", &format!("{profile} {pci_id}, firmware {firmware}, policy {policy}"));
    let failed: u64 = device.commands.failures.iter().map(|f| f.count).sum::<u64>() + device.commands.failures_omitted;
    out.line("commands", &format!("{} served, {failed} failed", device.commands.served));
    let failures: Vec<String> = device
        .commands
        .failures
        .iter()
        .map(|f| {
            let (opcode, status, syndrome, meaning) = (&f.opcode, &f.status, f.syndrome, &f.meaning);
            format!("{opcode} {status} (syndrome {syndrome:#08x}: {meaning}){}", times(f.count))
        })
        .collect();
    out.list("failed", &failures);
    out.line(
        "keys",
        &format!(
            "{} created{}, {} enabled by UMR{}, {} refused",
            device.keys.total_created(),
            kinds(&device.keys.created),
            device.keys.enabled.values().sum::<u64>(),
            kinds(&device.keys.enabled),
            device.keys.total_refused()
        ),
    );
    let rdma = &device.rdma;
    if rdma.requests > 0 || rdma.packets > 0 {
        out.line(
            "rdma",
            &format!(
                "{} requests, {} packets, {} bytes; {} failed, {} refused by the peer, {} not ready, {} sent again{}",
                rdma.requests,
                rdma.packets,
                rdma.bytes,
                rdma.failed,
                rdma.refused,
                rdma.receiver_not_ready,
                rdma.retries,
                match rdma.page_faults {
                    0 => String::new(),
                    faults => format!(", {faults} page faults"),
                }
            ),
        );
    }
    out.list("refused", &device.keys.refused.iter().map(refusal).collect::<Vec<_>>());
    let unimplemented: Vec<String> = [
        ("opcode", &device.unimplemented.opcodes),
        ("doorbell", &device.unimplemented.doorbells),
        ("register", &device.unimplemented.registers),
    ]
    .iter()
    .flat_map(|(what, names)| names.iter().map(move |(name, count)| format!("{what} {name}{}", times(*count))))
    .collect();
    out.list("missing", &unimplemented);
    let fault = |f: &WireFault| format!("{}: {} of {} packets", f.rule, f.hit, f.seen);
    if let Some(order) = &device.order {
        order_lines(order, out);
    }
    out.list("fault", &device.wire_faults.iter().map(fault).collect::<Vec<_>>());
    out.list("dma error", &counted(&device.dma_errors));
    out.list("violation", &counted(&device.violations));
    out.list("internal", &device.internal_failures);
}

/// What the command came to, and with which seeds it did not end with 0.
fn command_line(exit: &GuestExit, out: &mut Text) {
    let Some(status) = exit.status else { return };
    if exit.runs.is_empty() {
        return out.line("command", &format!("exit status {status}"));
    }
    let lines = seed_lines(&exit.runs);
    out.line("command", &lines[0]);
    out.all("failed", &lines[1..]);
    out.list("problem", &exit.problems);
}

/// What the command came to with each of some seeds: how many passed, then a line for each way to fail.
pub(super) fn seed_lines(runs: &[SeedRun]) -> Vec<String> {
    let mut failed: BTreeMap<u8, Vec<String>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.status != 0) {
        failed.entry(run.status).or_default().push(run.seed.to_string());
    }
    let passed = runs.iter().filter(|run| run.status == 0).count();
    let lines = failed.iter().map(|(status, seeds)| format!("exit status {status} with seeds {}", seeds.join(", ")));
    std::iter::once(format!("exit status 0 with {passed} of {} seeds", runs.len())).chain(lines).collect()
}

fn order_lines(order: &Order, out: &mut Text) {
    if let Some(mode) = &order.illegal {
        out.line("ILLEGAL", &format!("{mode}: the device broke its contract on purpose; a correct driver must fail"));
    }
    let setting = |name: &str| order.settings.get(name).map_or("", String::as_str);
    let applied: u64 = order.applied.values().sum();
    let reasons: Vec<String> = order.applied.iter().map(|(why, count)| format!("{count} {why}")).collect();
    out.line(
        "order",
        &format!(
            "{} accesses issued, {applied} parts performed ({}), {} held, {} drains, {} dropped, {} lost",
            order.issued,
            reasons.join(", "),
            order.held,
            order.drains,
            order.discarded,
            order.lost
        ),
    );
    if order.lost > 0 {
        let what =
            "accesses failed when their time came, after their completions or with them: the VMM took the memory away";
        out.line("lost", &format!("{} {what}, or cx10 is wrong", order.lost));
    }
    out.line(
        "limits",
        &format!(
            "delay {} us, hold {} us, {} bytes, {} accesses; at most {} bytes and {} accesses were pending, the oldest {} us",
            setting("max_delay"),
            setting("hold"),
            setting("max_bytes"),
            setting("max_transactions"),
            order.most_bytes,
            order.most_pending,
            order.longest_us
        ),
    );
    out.list("overtaken", &order.overtaken.iter().map(overtaking).collect::<Vec<_>>());
    out.list("never", &never(order));
    if let Some(replay) = &order.replay {
        let OrderReplay { diverged, remaining, beyond, cut } = replay;
        let mut text = format!("{diverged} parts out of turn, {remaining} recorded ones did not come");
        if *beyond > 0 {
            text += &format!(", {beyond} came after the record's end (in the policy's order)");
        }
        if let Some(cut) = cut {
            text += &format!("; the record is less than its run: {cut}");
        }
        out.line("replay", &text);
    }
    if let Some(cut) = &order.log_cut {
        out.line("order log", &format!("less than the run: {cut}"));
    }
    let checked = match &order.check {
        None => "no (--check)".to_owned(),
        Some(check) if check.legal => {
            format!("legal: {} accesses, {} parts, {} drains", check.issued, check.applied, check.drains)
        }
        Some(check) => {
            let lives = order.lives.iter().filter(|life| life.violations > 0).map(|life| life.seed.to_string());
            let lives: Vec<String> = lives.collect();
            let seeds = if lives.is_empty() { String::new() } else { format!(", with seeds {}", lives.join(", ")) };
            format!("NOT LEGAL: {} violations of the contract{seeds}", check.violations)
        }
    };
    out.line("checked", &checked);
    if let Some(check) = order.check.as_ref().filter(|check| !check.legal) {
        out.list("not legal", &check.described);
    }
}

/// What was allowed among the accesses that there were and did not happen: a line for each kind that could have come first.
fn never(order: &Order) -> Vec<String> {
    let mut kinds: Vec<(&str, [Vec<&str>; 3])> = Vec::new();
    for pair in order.never.iter().filter(|pair| pair.met) {
        if kinds.last().is_none_or(|(later, _)| *later != pair.later) {
            kinds.push((&pair.later, Default::default()));
        }
        let Some((_, places)) = kinds.last_mut() else { continue };
        match &pair.earlier {
            None => places[0].push("earlier parts of its own"),
            Some(earlier) => places[if pair.same_stream { 1 } else { 2 }].push(earlier),
        }
    }
    let mut lines: Vec<String> = kinds
        .into_iter()
        .map(|(later, places)| {
            let ends = ["", " of the same queue", " of another queue"];
            let groups = places.iter().zip(ends).filter(|(group, _)| !group.is_empty());
            let groups: Vec<String> = groups.map(|(group, end)| format!("{}{end}", group.join(", "))).collect();
            format!("{later} over {}", groups.join("; "))
        })
        .collect();
    if !order.absent.is_empty() {
        lines.push(format!("anything with what was not there: {}", order.absent.join(", ")));
    }
    lines
}

fn overtaking(pair: &Overtaking) -> String {
    let what = match &pair.earlier {
        None => format!("{}: later parts before earlier ones", pair.later),
        Some(earlier) => {
            let place = if pair.same_stream { "the same queue" } else { "another queue" };
            format!("{} over {earlier} of {place}", pair.later)
        }
    };
    if pair.count > 0 { format!("{what}{}", times(pair.count)) } else { what }
}

fn counted(names: &BTreeMap<String, u64>) -> Vec<String> {
    names.iter().map(|(name, count)| format!("{name}{}", times(*count))).collect()
}

fn times(count: u64) -> String {
    if count == 1 { String::new() } else { format!(", {count} times") }
}

fn kinds(counts: &BTreeMap<String, u64>) -> String {
    let kinds: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) }
}

fn refusal(refusal: &KeyRefusal) -> String {
    let KeyRefusal { kind, via, field, value, uid, driver_path, reason, count, .. } = refusal;
    let who = if *uid == 0 { "kernel".to_string() } else { format!("uid {uid:#x}") };
    let place = if driver_path.is_empty() { String::new() } else { format!(", likely {driver_path}") };
    format!("{kind} key by {via} from {who}{place}: {field}={value:#x}: {reason}{}", times(*count))
}

/// Lines with a label column.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, label: &str, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{label:<10}{}", text.trim_end());
    }

    fn all(&mut self, label: &str, lines: &[String]) {
        lines.iter().for_each(|line| self.line(label, line));
    }

    fn list(&mut self, label: &str, lines: &[String]) {
        self.all(label, &lines[..lines.len().min(SHOWN)]);
        if lines.len() > SHOWN {
            self.line(label, &format!("… and {} more, see --json", lines.len() - SHOWN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::guest::{Gid, NetDevice, PciDevice, RdmaDevice};
    use super::*;

    fn report() -> Report {
        let rdma = RdmaDevice {
            name: "mlx5_0".into(),
            state: "4: ACTIVE".into(),
            firmware: "50.48.1000".into(),
            gids: vec![Gid { index: 1, gid: "fe80::1".into(), kind: "RoCE v2".into() }],
            ..RdmaDevice::default()
        };
        let net = NetDevice { name: "eth0".into(), operstate: "up".into(), ..NetDevice::default() };
        let device = PciDevice {
            bdf: "0000:01:00.0".into(),
            id: "15b3:2101".into(),
            driver: Some("mlx5_core".into()),
            netdevs: vec![net],
            rdma: vec![rdma],
            ..PciDevice::default()
        };
        Report {
            schema: SCHEMA,
            accel: Decided::Tcg,
            memory_mib: 1024,
            command: vec![],
            guest: Some(Facts { release: "7.3.4".into(), devices: vec![device], ..Facts::default() }),
            exit: Some(GuestExit::default()),
            times: Times::default(),
            device: Some(RunSummary::new()),
        }
    }

    fn refused() -> RunSummary {
        let mut summary = RunSummary::new();
        summary.keys.note_refused(KeyRefusal {
            kind: "window".into(),
            via: "CREATE_MKEY".into(),
            ordering: true,
            field: "relaxed_ordering_write".into(),
            reason: "relaxed writes are required".into(),
            driver_path: "mlx5_ib_alloc_mw".into(),
            ..KeyRefusal::default()
        });
        summary
    }

    #[test]
    fn a_clean_run_is_0_and_a_driver_that_did_not_come_up_is_1() {
        let mut report = report();
        assert_eq!(report.exit_code(), 0);
        report.guest.as_mut().unwrap().problems.push("no driver bound".into());
        assert_eq!(report.exit_code(), 1);
    }

    #[test]
    fn a_breach_of_the_contract_is_2_unless_a_command_has_a_status() {
        let mut report = Report { device: Some(refused()), ..report() };
        assert_eq!(report.exit_code(), 2);
        report.exit.as_mut().unwrap().status = Some(0);
        assert_eq!(report.exit_code(), 0);
        report.exit.as_mut().unwrap().status = Some(17);
        assert_eq!(report.exit_code(), 17);
    }

    #[test]
    fn our_own_failure_is_3_whatever_the_command_says() {
        let mut report = report();
        report.exit.as_mut().unwrap().status = Some(0);
        report.device.as_mut().unwrap().internal_failure("checker");
        assert_eq!(report.exit_code(), 3);
    }

    #[test]
    fn the_text_names_driver_port_refusal_and_verdict() {
        let text = Report { device: Some(refused()), ..report() }.to_text();
        for part in [
            "0000:01:00.0 15b3:2101 mlx5_core",
            "mlx5_0 port 1 ACTIVE, firmware 50.48.1000, 1 RoCE v2 GIDs",
            "window key by CREATE_MKEY from kernel, likely mlx5_ib_alloc_mw: relaxed_ordering_write=0x0",
            "verdict   contract violation",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn the_verdict_says_whom_it_is_about() {
        let verdict = |report: &Report| {
            let text = report.to_text();
            text.lines().find_map(|line| line.strip_prefix("verdict   ")).unwrap().to_owned()
        };
        let mut report = report();
        assert_eq!(verdict(&report), "clean: no key was refused, no check of cx10 failed");
        report.exit.as_mut().unwrap().status = Some(1);
        let failed =
            "COMMAND FAILED (exit status 1); of the device: clean: no key was refused, no check of cx10 failed";
        assert_eq!(verdict(&report), failed);
        report.device.as_mut().unwrap().internal_failure("checker");
        assert!(verdict(&report).starts_with("internal failure: a check of cx10 failed"), "{}", verdict(&report));
        report.exit.as_mut().unwrap().status = None;
        report.device = Some(RunSummary::new());
        report.guest.as_mut().unwrap().problems.push("no driver bound".into());
        assert!(verdict(&report).starts_with("THE DRIVER DID NOT COME UP; of the device: clean"));
    }

    #[test]
    fn what_never_happened_is_a_line_for_each_kind_of_access_that_was_there() {
        let pair = |later: &str, earlier: Option<&str>, same_stream, met| Overtaking {
            later: later.into(),
            earlier: earlier.map(str::to_owned),
            same_stream,
            count: 0,
            met,
        };
        let never = vec![
            pair("write", Some("read"), true, true),
            pair("write", Some("event"), false, true),
            pair("write", Some("interrupt"), false, true),
            pair("write", Some("atomic"), true, false),
            pair("write", None, true, true),
            pair("event", Some("write"), false, true),
        ];
        let order = Order { never, absent: vec!["atomic".into()], ..Order::default() };
        let lines = [
            "write over earlier parts of its own; read of the same queue; event, interrupt of another queue",
            "event over write of another queue",
            "anything with what was not there: atomic",
        ];
        assert_eq!(super::never(&order), lines);
    }

    #[test]
    fn the_text_says_what_each_wire_fault_hit() {
        let mut report = report();
        let rule = "drop:nth=3,times=1".to_string();
        report.device.as_mut().unwrap().wire_faults.push(WireFault { rule, seen: 40, hit: 1 });
        assert!(report.to_text().contains("fault     drop:nth=3,times=1: 1 of 40 packets"), "{}", report.to_text());
        assert_eq!(report.to_json()["device"]["wire_faults"][0]["hit"], 1);
    }

    #[test]
    fn the_text_names_the_seeds_that_a_command_failed_with() {
        let mut report = report();
        let run = |seed, status| SeedRun { seed, status, seconds: 1.0 };
        let exit = report.exit.as_mut().unwrap();
        exit.status = Some(1);
        exit.runs = vec![run(3, 0), run(4, 1), run(5, 0), run(6, 137), run(7, 1)];
        exit.problems = vec!["seed 8: unbind".into()];
        let order = Order { policy: "random".into(), seed: 3, ..Order::default() };
        report.device.as_mut().unwrap().order = Some(order);
        let text = report.to_text();
        for line in [
            "command   exit status 0 with 2 of 5 seeds\n",
            "failed    exit status 1 with seeds 4, 7\n",
            "failed    exit status 137 with seeds 6\n",
            "problem   seed 8: unbind\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(text.contains("(random, seed 4)"), "{text}");
        assert_eq!(report.to_json()["exit"]["runs"][1]["seed"], 4);
        assert_eq!(report.exit_code(), 1);
    }

    #[test]
    fn seeds_that_are_not_those_that_decided_or_were_not_run_are_told() {
        use crate::trace::report::{OrderCheck, OrderLife};
        let mut report = report();
        let exit = report.exit.as_mut().unwrap();
        exit.status = Some(0);
        exit.runs = [3, 4].map(|seed| SeedRun { seed, status: 0, seconds: 1.0 }).to_vec();
        let life = |seed, violations| OrderLife { seed, issued: 9, violations };
        let check = OrderCheck { legal: false, violations: 5, ..OrderCheck::default() };
        let lives = vec![life(3, 1), life(4, 0), life(5, 4)];
        let order = Order { policy: "random".into(), lives, check: Some(check), ..Order::default() };
        report.device.as_mut().unwrap().order = Some(order);
        let text = report.to_text();
        assert!(text.contains("problem   the driver was started 3 times for 2 runs of the command"), "{text}");
        assert!(text.contains("checked   NOT LEGAL: 5 violations of the contract, with seeds 3, 5\n"), "{text}");
        let order = report.device.as_mut().unwrap().order.as_mut().unwrap();
        order.lives.pop();
        assert!(!report.to_text().contains("problem"), "{}", report.to_text());

        let exit = report.exit.as_mut().unwrap();
        exit.status = Some(1);
        exit.problems = vec!["seed 5: bind".into(), "the command was not run with seeds 5 to 9".into()];
        report.device.as_mut().unwrap().order.as_mut().unwrap().lives.push(life(5, 0));
        let text = report.to_text();
        assert!(text.contains("NOT RUN WITH ALL SEEDS; of the device: clean"), "{text}");
        assert!(!text.contains("was started 3 times") && text.contains("not run with seeds 5 to 9"), "{text}");
    }

    #[test]
    fn a_success_is_told_what_it_does_not_mean() {
        let mut report = report();
        report.exit.as_mut().unwrap().status = Some(0);
        let settings = BTreeMap::from([("hold".to_string(), "200".to_string())]);
        let order = Order { policy: "tail-first".into(), tails: 7, settings, ..Order::default() };
        report.device.as_mut().unwrap().order = Some(order);
        let text = report.to_text();
        assert!(text.contains("hint      the last bytes of 7 writes were visible before the rest"), "{text}");
        assert!(text.contains("held for 200 us at most"), "{text}");
        report.accel = Decided::Kvm;
        assert!(!report.to_text().contains("held for"), "{}", report.to_text());
        report.device.as_mut().unwrap().order.as_mut().unwrap().policy = "in-order".into();
        assert!(!report.to_text().contains("hint"), "{}", report.to_text());
    }

    #[test]
    fn long_lists_are_cut_in_the_text_only() {
        let mut report = report();
        for n in 0..40 {
            report.device.as_mut().unwrap().command("CREATE_QP", 3, "BAD_PARAM", n, "why");
        }
        let text = report.to_text();
        assert_eq!(text.lines().filter(|l| l.starts_with("failed")).count(), SHOWN + 1);
        assert!(text.contains("and 28 more"), "{text}");
        let json = report.to_json();
        assert_eq!(json["device"]["commands"]["failures"].as_array().unwrap().len(), 40);
        assert_eq!(json["device"]["verdict"], "clean");
        assert_eq!(json["exit_code"], 0);
    }
}
