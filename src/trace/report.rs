//! What a run amounts to: counters, refusals and the verdict, as one value that serialises to the `--report` file.
//!
//! The device fills a [`RunSummary`] as it works; `cx10 run` renders it for people, `--report FILE` writes it as JSON.
//! Everything a guest can multiply is counted, not stored: distinct entries are bounded (see [`MAX_DISTINCT`]) and what
//! does not fit is counted in a field of its own, so that a guest cannot make the summary grow and nothing is lost silently.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the JSON form. Raised when a field changes its meaning or goes away, not when one is added.
pub const SCHEMA: u32 = 1;

/// Most distinct entries kept in one list of the summary; further ones only raise the list's `omitted` counter.
pub const MAX_DISTINCT: usize = 256;

/// Outcome of a run, and with it the exit code of `cx10 serve` and of a `cx10 run` without a guest command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing was refused and nothing of ours failed.
    Clean,
    /// The guest broke the ordering contract, for example by asking for a key without relaxed ordering.
    ContractViolation,
    /// Our own checker or an internal consistency check failed: the run proves nothing about the guest.
    Internal,
}

impl Verdict {
    /// Exit code: 0 clean, 2 contract violation, 3 internal. (1 is a usage or set-up error and never a verdict.)
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Clean => 0,
            Verdict::ContractViolation => 2,
            Verdict::Internal => 3,
        }
    }

    /// The name that the report and the JSON file show.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Clean => "clean",
            Verdict::ContractViolation => "contract violation",
            Verdict::Internal => "internal failure",
        }
    }

    /// What it says.
    pub fn meaning(self) -> &'static str {
        match self {
            Verdict::Clean => "no key was refused, no check of cx10 failed",
            Verdict::ContractViolation => "the guest asked for an order that the device does not keep",
            Verdict::Internal => "a check of cx10 failed, which makes all else worthless",
        }
    }
}

/// One way in which commands failed, with how often it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandFailure {
    /// PRM name of the command, or `OPCODE_0x…` for an unknown one.
    pub opcode: String,
    /// PRM name of the status, for example `BAD_PARAM`.
    pub status: String,
    /// Syndrome, distinct for each check of the device.
    pub syndrome: u32,
    /// What the syndrome means; empty if the device gives no text.
    pub meaning: String,
    /// How many commands failed so.
    pub count: u64,
}

/// A key that was refused: everything needed to find the code that asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRefusal {
    /// Kind of key, as in `mkey.exempt` (`pa`, `mtt`, `free`, `window`, …).
    pub kind: String,
    /// How the key would have come into being: `CREATE_MKEY`, `UMR`, ….
    pub via: String,
    /// True if the ordering contract refused it, false for any other error in the context.
    pub ordering: bool,
    /// Field of the context that decided, by PRM name.
    pub field: String,
    /// Value the guest gave that field.
    pub value: u64,
    /// Why, in a sentence.
    pub reason: String,
    /// Syndrome that the guest got.
    pub syndrome: u32,
    /// PRM name of the access mode.
    pub access_mode: String,
    /// User context that asked; 0 is the kernel.
    pub uid: u16,
    /// Protection domain in the context.
    pub pd: u32,
    /// Start address in the context.
    pub start_addr: u64,
    /// Length in the context (0 with `length64`).
    pub length: u64,
    /// Access rights, for example `lr lw rr rw a`.
    pub access: String,
    /// Further flags that were set, for example `free umr_en length64`.
    pub flags: String,
    /// Likely place in the driver that made the request; empty if the fingerprint is unknown.
    pub driver_path: String,
    /// How many keys were refused so (same kind, way, field, value, syndrome, uid and driver path).
    pub count: u64,
}

impl KeyRefusal {
    fn same_cause(&self, other: &KeyRefusal) -> bool {
        self.kind == other.kind
            && self.via == other.via
            && self.field == other.field
            && self.value == other.value
            && self.syndrome == other.syndrome
            && self.uid == other.uid
            && self.driver_path == other.driver_path
    }
}

/// Commands of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Commands {
    /// All commands that were taken from the queue.
    pub served: u64,
    /// The same by PRM name.
    pub by_opcode: BTreeMap<String, u64>,
    /// Failures by opcode, status and syndrome.
    pub failures: Vec<CommandFailure>,
    /// Failures that found no place in `failures`.
    pub failures_omitted: u64,
    /// Commands that were answered with a delivery error, by its name.
    pub delivery_errors: BTreeMap<String, u64>,
}

/// Memory keys of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Keys {
    /// Keys created, by kind.
    pub created: BTreeMap<String, u64>,
    /// Keys that a UMR made usable, by kind; each key once, however often it is used again.
    pub enabled: BTreeMap<String, u64>,
    /// Keys destroyed (a reset or a teardown destroys what is left).
    pub destroyed: u64,
    /// Keys whose context asked for relaxed writes when they were created, or when a UMR enabled them if that decides.
    pub relaxed: u64,
    /// The same of keys that were not relaxed but exempt or not judged, by kind.
    pub strict_tolerated: BTreeMap<String, u64>,
    /// Refusals, by cause.
    pub refused: Vec<KeyRefusal>,
    /// Refusals that found no place in `refused`.
    pub refused_omitted: u64,
    /// Refusals by the ordering contract, those of `refused_omitted` included.
    pub ordering_refused: u64,
}

impl Keys {
    /// A key was created. `relaxed` says whether its context asks for relaxed writes, if that is its last word.
    pub fn note_created(&mut self, kind: &str, relaxed: Option<bool>) {
        bump(&mut self.created, kind, 1);
        self.note_ordering(kind, relaxed);
    }

    /// A UMR made a key usable, or changed the ordering of one that is; `relaxed` as above.
    pub fn note_enabled(&mut self, kind: &str, first: bool, relaxed: Option<bool>) {
        if first {
            bump(&mut self.enabled, kind, 1);
        }
        self.note_ordering(kind, relaxed);
    }

    fn note_ordering(&mut self, kind: &str, relaxed: Option<bool>) {
        match relaxed {
            Some(true) => self.relaxed += 1,
            Some(false) => bump(&mut self.strict_tolerated, kind, 1),
            None => {}
        }
    }

    /// `count` keys were destroyed.
    pub fn note_destroyed(&mut self, count: u64) {
        self.destroyed += count;
    }

    /// A key was refused. Returns true if this cause was not seen before, so that the caller logs it once.
    pub fn note_refused(&mut self, refusal: KeyRefusal) -> bool {
        if refusal.ordering {
            self.ordering_refused += 1;
        }
        let list = &mut self.refused;
        if let Some(seen) = list.iter_mut().find(|r| r.same_cause(&refusal)) {
            seen.count += 1;
            return false;
        }
        if list.len() >= MAX_DISTINCT {
            self.refused_omitted += 1;
            return false;
        }
        list.push(KeyRefusal { count: 1, ..refusal });
        true
    }

    /// Keys created, all kinds.
    pub fn total_created(&self) -> u64 {
        self.created.values().sum()
    }

    /// Keys refused, all causes.
    pub fn total_refused(&self) -> u64 {
        self.refused.iter().map(|r| r.count).sum::<u64>() + self.refused_omitted
    }
}

/// Firmware pages: what the function asked of the driver and what it gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pages {
    /// Pages that the driver gave.
    pub given: u64,
    /// Pages that the driver took back.
    pub reclaimed: u64,
    /// Pages that a reset dropped without the driver asking for them.
    pub dropped_by_reset: u64,
    /// Pages held now.
    pub held: u64,
    /// How often a command waited for the driver to give pages.
    pub waits: u64,
}

/// What the guest used that this program does not implement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unimplemented {
    /// Commands answered with BAD_OP, by name.
    pub opcodes: BTreeMap<String, u64>,
    /// Doorbells of queues that are stored but not run, by kind.
    pub doorbells: BTreeMap<String, u64>,
    /// Access registers answered as unsupported, by name or number.
    pub registers: BTreeMap<String, u64>,
}

/// A rule of `wire.fault` and what it came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireFault {
    /// The rule as it is written.
    pub rule: String,
    /// Packets that agreed with it.
    pub seen: u64,
    /// Packets that it hit.
    pub hit: u64,
}

/// RDMA traffic of all queue pairs together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rdma {
    /// Work requests started.
    pub requests: u64,
    /// Packets sent.
    pub packets: u64,
    /// Bytes of payload in them.
    pub bytes: u64,
    /// Completions with an error that is not a flush.
    pub failed: u64,
    /// "Receiver not ready" answers taken.
    pub receiver_not_ready: u64,
    /// Times that packets were sent again.
    pub retries: u64,
    /// Acknowledgement timeouts among the reasons for that.
    pub timeouts: u64,
    /// Requests that the peer refused for good.
    pub refused: u64,
    /// Page faults of on-demand paging.
    #[serde(default)]
    pub page_faults: u64,
}

/// What overtook what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overtaking {
    /// What came first although it was issued later.
    pub later: String,
    /// What it overtook; nothing for the parts of one access.
    pub earlier: Option<String>,
    /// Whether both were of one queue.
    pub same_stream: bool,
    /// How often.
    pub count: u64,
    /// Whether there were accesses of both kinds in the run.
    #[serde(default)]
    pub met: bool,
}

/// What the checker of the order found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCheck {
    /// Whether all that was looked at is allowed.
    pub legal: bool,
    /// Accesses issued, parts performed and drains that it looked at.
    pub issued: u64,
    /// Parts performed.
    pub applied: u64,
    /// Drains.
    pub drains: u64,
    /// What was not allowed.
    pub violations: u64,
    /// The first of them, in words.
    pub described: Vec<String>,
}

/// A life of the device, from its initialization by a driver to the next; only where seeds take turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderLife {
    /// Its seed.
    pub seed: u64,
    /// Accesses issued.
    pub issued: u64,
    /// What the checker found not to be allowed.
    pub violations: u64,
}

/// How far a recorded order could be repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderReplay {
    /// Parts that were performed out of turn: what was recorded before them did not come in time.
    pub diverged: u64,
    /// Parts that were recorded and did not come.
    pub remaining: u64,
    /// Parts that were performed after the record's end, in the policy's order.
    #[serde(default)]
    pub beyond: u64,
    /// Why the record was less than its run.
    #[serde(default)]
    pub cut: Option<String>,
}

/// In which order memory accesses were performed. Without a policy that reorders there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Order {
    /// How the order was chosen.
    pub policy: String,
    /// The contract: a profile and what differs from it.
    pub profile: String,
    /// What all decisions are derived from; the first of the seeds that took turns.
    pub seed: u64,
    /// The lives of the device, if each had a seed of its own.
    pub lives: Vec<OrderLife>,
    /// The promise that was broken on purpose.
    pub illegal: Option<String>,
    /// All settings by name.
    pub settings: BTreeMap<String, String>,
    /// Accesses issued.
    pub issued: u64,
    /// Parts performed, by the reason for the time.
    pub applied: BTreeMap<String, u64>,
    /// Parts that the policy delayed.
    pub held: u64,
    /// Writes whose last bytes came before others of them.
    pub tails: u64,
    /// Drains.
    pub drains: u64,
    /// Accesses that a reset dropped.
    pub discarded: u64,
    /// Parts that memory refused when their time came.
    pub lost: u64,
    /// Most accesses that were pending at a time.
    pub most_pending: u64,
    /// Most bytes that were pending at a time.
    pub most_bytes: u64,
    /// Longest time from issue to performance, in microseconds.
    pub longest_us: u64,
    /// Overtakings that happened.
    pub overtaken: Vec<Overtaking>,
    /// Overtakings that the contract allows and that never happened.
    pub never: Vec<Overtaking>,
    /// Kinds of accesses that the run did not have.
    pub absent: Vec<String>,
    /// What a repeated order came to.
    pub replay: Option<OrderReplay>,
    /// Why the order log that was written is less than the run.
    pub log_cut: Option<String>,
    /// What the checker found, if it looked on.
    pub check: Option<OrderCheck>,
}

/// End-of-run summary of the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSummary {
    /// Version of this form ([`SCHEMA`]).
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// Name of the device profile.
    pub profile: String,
    /// PCI id, for example `15b3:2101`.
    pub pci_id: String,
    /// Firmware version shown to the guest.
    pub firmware: String,
    /// Ordering policy in force.
    pub policy: String,
    /// What reordering came to, if there was any.
    pub order: Option<Order>,
    /// Effective configuration (capabilities left out: the trace has them).
    pub config: serde_json::Value,
    /// VMMs that were served.
    pub vmms: u64,
    /// Commands.
    pub commands: Commands,
    /// Memory keys.
    pub keys: Keys,
    /// RDMA packets and what went wrong with them.
    pub rdma: Rdma,
    /// Objects alive now, by kind; only kinds with at least one.
    pub objects_alive: BTreeMap<String, u64>,
    /// Firmware pages.
    pub pages: Pages,
    /// What was asked for and is not implemented.
    pub unimplemented: Unimplemented,
    /// DMA accesses that the map refused, by reason.
    pub dma_errors: BTreeMap<String, u64>,
    /// Faults of the wire, rule by rule.
    pub wire_faults: Vec<WireFault>,
    /// Interrupts raised, all vectors.
    pub interrupts: u64,
    /// Resets by kind (`flr`, `device-reset`, `vmm-disconnect`, `teardown`).
    pub resets: BTreeMap<String, u64>,
    /// Other breaches of the ordering contract by the guest, by name.
    pub violations: BTreeMap<String, u64>,
    /// Failures of our own checks, in words. One is enough for the verdict `internal`.
    pub internal_failures: Vec<String>,
    /// Failures that found no place in `internal_failures`.
    pub internal_failures_omitted: u64,
}

/// Adds one to a named counter; a name too many (see [`MAX_DISTINCT`]) goes to `other`.
fn bump(map: &mut BTreeMap<String, u64>, name: &str, by: u64) {
    if let Some(n) = map.get_mut(name) {
        *n = n.saturating_add(by);
    } else {
        let key = if map.len() < MAX_DISTINCT { name } else { "other" };
        let n = map.entry(key.to_string()).or_default();
        *n = n.saturating_add(by);
    }
}

impl RunSummary {
    /// An empty summary that knows which program wrote it.
    pub fn new() -> Self {
        RunSummary {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_string(),
            policy: "in-order".to_string(),
            ..RunSummary::default()
        }
    }

    /// A command was answered. `status` and `meaning` are looked at only if `status_code` is not 0.
    pub fn command(&mut self, opcode: &str, status_code: u8, status: &str, syndrome: u32, meaning: &str) {
        self.commands.served += 1;
        bump(&mut self.commands.by_opcode, opcode, 1);
        if status_code == 0 {
            return;
        }
        let list = &mut self.commands.failures;
        if let Some(f) = list.iter_mut().find(|f| f.syndrome == syndrome && f.opcode == opcode && f.status == status) {
            f.count += 1;
        } else if list.len() < MAX_DISTINCT {
            list.push(CommandFailure {
                opcode: opcode.to_string(),
                status: status.to_string(),
                syndrome,
                meaning: meaning.to_string(),
                count: 1,
            });
        } else {
            self.commands.failures_omitted += 1;
        }
    }

    /// A command was answered with a delivery error.
    pub fn delivery_error(&mut self, name: &str) {
        bump(&mut self.commands.delivery_errors, name, 1);
    }

    /// The guest used an opcode that is not implemented. Returns true the first time.
    pub fn unimplemented_opcode(&mut self, name: &str) -> bool {
        let first = !self.unimplemented.opcodes.contains_key(name);
        bump(&mut self.unimplemented.opcodes, name, 1);
        first
    }

    /// The guest rang a doorbell that nothing serves. Returns true the first time.
    pub fn unimplemented_doorbell(&mut self, name: &str) -> bool {
        let first = !self.unimplemented.doorbells.contains_key(name);
        bump(&mut self.unimplemented.doorbells, name, 1);
        first
    }

    /// The guest used an access register that is not implemented. Returns true the first time.
    pub fn unimplemented_register(&mut self, name: &str) -> bool {
        let first = !self.unimplemented.registers.contains_key(name);
        bump(&mut self.unimplemented.registers, name, 1);
        first
    }

    /// The map refused a DMA access.
    pub fn dma_error(&mut self, reason: &str) {
        bump(&mut self.dma_errors, reason, 1);
    }

    /// The function was reset.
    pub fn reset(&mut self, kind: &str) {
        bump(&mut self.resets, kind, 1);
    }

    /// The guest broke the ordering contract in a way that is not a refused key.
    pub fn violation(&mut self, name: &str) {
        bump(&mut self.violations, name, 1);
    }

    /// One of our own checks failed.
    pub fn internal_failure(&mut self, what: impl Into<String>) {
        if self.internal_failures.len() < MAX_DISTINCT {
            self.internal_failures.push(what.into());
        } else {
            self.internal_failures_omitted += 1;
        }
    }

    /// The verdict: our own failure outweighs the guest's, because it makes every other statement worthless.
    pub fn verdict(&self) -> Verdict {
        if !self.internal_failures.is_empty() {
            Verdict::Internal
        } else if !self.violations.is_empty() || self.keys.ordering_refused > 0 {
            Verdict::ContractViolation
        } else {
            Verdict::Clean
        }
    }

    /// The JSON form, verdict and exit code included.
    pub fn to_json(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).unwrap_or(serde_json::Value::Null);
        if let Some(map) = value.as_object_mut() {
            map.insert("verdict".into(), serde_json::to_value(self.verdict()).unwrap_or_default());
            map.insert("exit_code".into(), self.verdict().exit_code().into());
        }
        value
    }

    /// Writes the JSON form to a file: to a temporary name beside it first, so that a reader never sees half of it.
    pub fn write_json(&self, path: &Path) -> std::io::Result<()> {
        let mut text = serde_json::to_string_pretty(&self.to_json())?;
        text.push('\n');
        crate::files::write_whole(path, &text)
    }

    /// Reads a report file again.
    pub fn read_json(path: &Path) -> std::io::Result<RunSummary> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(kind: &str) -> KeyRefusal {
        KeyRefusal {
            kind: kind.into(),
            via: "CREATE_MKEY".into(),
            ordering: true,
            field: "relaxed_ordering_write".into(),
            ..KeyRefusal::default()
        }
    }

    #[test]
    fn an_empty_run_is_clean() {
        assert_eq!(RunSummary::new().verdict(), Verdict::Clean);
        assert_eq!(RunSummary::new().verdict().exit_code(), 0);
    }

    #[test]
    fn a_key_refused_by_the_contract_makes_the_verdict_a_violation() {
        let mut s = RunSummary::new();
        assert!(s.keys.note_refused(refusal("window")));
        assert!(!s.keys.note_refused(refusal("window")), "same cause is counted, not repeated");
        assert!(s.keys.note_refused(refusal("memic")));
        assert_eq!(s.keys.refused[0].count, 2);
        assert_eq!(s.keys.total_refused(), 3);
        assert_eq!(s.verdict(), Verdict::ContractViolation);
        assert_eq!(s.verdict().exit_code(), 2);
    }

    #[test]
    fn a_key_refused_for_another_error_leaves_the_verdict_clean() {
        let mut s = RunSummary::new();
        s.keys.note_refused(KeyRefusal { ordering: false, ..refusal("mtt") });
        assert_eq!(s.verdict(), Verdict::Clean);
    }

    #[test]
    fn our_own_failure_outweighs_the_guests() {
        let mut s = RunSummary::new();
        s.keys.note_refused(refusal("window"));
        s.internal_failure("checker: CQE before data");
        assert_eq!(s.verdict(), Verdict::Internal);
        assert_eq!(s.verdict().exit_code(), 3);
    }

    #[test]
    fn failures_are_grouped_by_opcode_status_and_syndrome() {
        let mut s = RunSummary::new();
        s.command("CREATE_MKEY", 0, "OK", 0, "");
        s.command("CREATE_MKEY", 3, "BAD_PARAM", 7, "seven");
        s.command("CREATE_MKEY", 3, "BAD_PARAM", 7, "seven");
        s.command("CREATE_MKEY", 3, "BAD_PARAM", 8, "eight");
        assert_eq!(s.commands.served, 4);
        assert_eq!(s.commands.by_opcode["CREATE_MKEY"], 4);
        let got: Vec<_> = s.commands.failures.iter().map(|f| (f.syndrome, f.count)).collect();
        assert_eq!(got, [(7, 2), (8, 1)]);
    }

    #[test]
    fn a_guest_cannot_make_the_summary_grow_without_bound() {
        let mut s = RunSummary::new();
        for i in 0..10_000u32 {
            s.command(&format!("OPCODE_{i:#x}"), 2, "BAD_OP", i, "");
            s.keys.note_refused(KeyRefusal { value: i.into(), ..refusal("mtt") });
            s.dma_error(&format!("reason {i}"));
            s.internal_failure("x");
        }
        assert_eq!(s.commands.failures.len(), MAX_DISTINCT);
        assert_eq!(s.commands.failures_omitted, 10_000 - MAX_DISTINCT as u64);
        assert_eq!(s.commands.by_opcode.values().sum::<u64>(), 10_000);
        assert!(s.commands.by_opcode.len() <= MAX_DISTINCT + 1);
        assert_eq!(s.keys.total_refused(), 10_000);
        assert_eq!(s.dma_errors["other"], 10_000 - MAX_DISTINCT as u64);
        assert_eq!(s.internal_failures.len(), MAX_DISTINCT);
    }

    #[test]
    fn the_json_file_carries_the_verdict_and_reads_back() {
        let dir = std::env::temp_dir().join(format!("cx10-report-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("report.json");
        let mut s = RunSummary::new();
        s.keys.note_refused(refusal("window"));
        s.write_json(&path).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(value["verdict"], "contract-violation");
        assert_eq!(value["exit_code"], 2);
        assert_eq!(RunSummary::read_json(&path).unwrap(), s);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "no temporary file is left");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
