//! Longer texts of `--help` and the manual pages.

/// Behind the help of `cx10`.
pub const TOP: &str = "\
First steps:
  cx10 run                              boot a guest, bind the driver, report
  cx10 run -- ibv_devinfo               run a command in the guest
  cx10 run --order random -- ./my-test  the same, with memory accesses in another legal order
  cx10 serve --socket /tmp/cx10.sock    the device alone, for your own QEMU
  cx10 conform                          is a kernel ready for such hardware?
  cx10 litmus                           the ordering contract, tested on this build
  cx10 shrink o.log -- cx10 run -- CMD  which change of order makes CMD fail
  cx10 profile show                     what the device is and can do
  cx10 help SUBCOMMAND                  examples for each subcommand

Exit status:
  0    clean
  1    usage or set-up error (nothing can be said about the guest)
  2    the guest broke the ordering contract, for example by a strict memory key
  3    a check of cx10 itself failed (nothing can be said about the guest)
  4 5  of `cx10 shrink`: nothing to find; a limit was reached
  A command given to `cx10 run` passes its own status through, unless a check of cx10 failed.

Environment:
  CX10_LOG    default of --log";

/// Behind the help of `cx10 run`.
pub const RUN: &str = "\
The guest is a small Debian system that is built once and cached (by scripts/run, in ~/.cache/cx10 or $CX10_CACHE). The \
driver is the one of the guest kernel, unmodified. The policies of --order and the rules of --wire-fault are described by \
`cx10 help serve`.

Examples:
  cx10 run                                       boot, bind, report
  cx10 run -- ibv_devinfo -v                     run a command, pass its status through
  cx10 run --shell                               look around in the guest
  cx10 run --kernel 6.12                         a kernel that does not know the PCI id
  cx10 run --kernel ~/linux -- ./my-test         your own kernel build tree
  cx10 run --profile connectx7 -- ./my-test      the same test where strong ordering is allowed
  cx10 run --set mkey.exempt=memic,window        let some kinds of strict keys pass
  cx10 run --set caps.general.imaicl=0           do not advertise memory windows
  cx10 run --wire-fault drop:service=rc,every=100 -- ./my-test    one packet in a hundred is lost
  cx10 run --order random --seed 7 --check -- ./my-test           memory accesses in any legal order
  cx10 run --order random --seed 1..50 -- ./my-test               with fifty seeds in one boot
  cx10 run --order tail-first --order-log /tmp/o.log -- ./my-test   ... what was done is recorded
  cx10 run --replay /tmp/o.log -- ./my-test                         ... and done again
  cx10 run --trace /tmp/t.jsonl && cx10 trace /tmp/t.jsonl --failed

Exit status: 0 clean, 1 set-up error or a guest that crashed or reached --timeout, 2 the guest broke the ordering contract, 3 a \
check of cx10 failed; with CMD, the status of CMD, unless a check of cx10 failed; 128 and its number after a signal.";

/// Behind the help of `cx10 conform`.
pub const CONFORM: &str = "\
Boots guests with each kernel and makes memory keys in every way that the kernel has; the device tells which keys it was \
asked for. A row's answer is `ready`, `absent` (the kernel, a module or the device does not have this), `finding` or `crash`.

Parts:
  flags         access flags that are optional, on every path of user space
  internal      keys that the driver makes for itself
  enforcement   what a user sees of a refusal, for each way to enforce
  unordered     keys without order between READ and WRITE
  protocols     kernel protocols (NVMe, NFS, iSER, SRP, SMC-R, RDS) under every legal order
A kernel that crashes in a step has that in the row; the guest is booted again and the walk goes on. The walk of one kernel \
takes some minutes without hardware virtualisation.

Examples:
  cx10 conform                                   the default kernel, all parts
  cx10 conform --kernel ~/linux                  your own build tree
  cx10 conform -k 7.3 -k 6.12 --json r.json --html r.html
  cx10 conform --from r.json --html r.html       show a stored result
  cx10 conform --kernel ~/linux --expect r.json  has this tree become worse? For a CI job

Exit status: 0 all rows ready or absent, 2 there are findings, 1 set-up error, 3 the device failed. With --expect: 0 \
nothing is worse than in the file, 2 something is.";

/// Behind the help of `cx10 serve`.
pub const SERVE: &str = "\
Serves one VMM at a time; when one disconnects the function is reset and the next may come. SIGINT or SIGTERM ends the \
program, removes the socket and writes the report.

Doorbells: with --doorbells trap each is a message, and a quiet guest costs no processor time. With --doorbells poll the VMM \
maps the doorbell pages and the device looks at them: faster by far, and the only way where the VMM cannot emulate the \
guest's stores (64-byte stores on arm64). It keeps one processor busy while traffic flows and about a tenth of one while \
the guest is quiet.

Wire faults: --wire-fault ACTION:KEY=VALUE,... loses, doubles or delays packets, also those from the \
function to itself. A rule counts the packets that agree with it and hits some of them; a packet is \
hit by the first rule that wants it.
  drop, duplicate, delay    what becomes of a packet; delay:us=N is N microseconds late
  qpn=N source=N dest=N     queue pair at either end, that sends, that receives; or any
  service=rc|uc|ud|xrc|any  transport service
  kind=WORD                 request, send, write, read, atomic, response, read-response,
                            atomic-response, ack, any
  psn=N                     sequence number
  nth=N every=N times=N     first packet that is hit, from 1; distance of the next; how many in all
With nth or psn but not every, one packet is hit; with none of these, all. The report has counts for \
each rule.

Order: --order POLICY lets memory accesses be performed in another order than they were issued, any \
that the contract (order.profile) allows and none that it forbids:
  in-order      as issued
  random        every piece at a time of its own
  lifo          what was issued last comes first
  tail-first    the last piece of each packet first, the rest held: for who polls the last byte
  hold-one      one piece of each packet held
  qp-skew       the data of some queue pairs held, of others not
  read-early    reads at once, writes held
  read-late     writes at once, reads held
  pct(DEPTH)    queues have priorities that change DEPTH-1 times
Contracts: cx10-unordered, cx10-ro, cx10-worst, pcie-strong, pcie-relaxed, pcie-unordered; `cx10 \
profile keys order` has the knobs in which they differ, each of them can be set: --set \
order.raw_scope=bytes. --seed N decides alike each time for the same accesses; with --seed 1..50 each \
start of a driver has the next seed, and `cx10 run` starts it for each and names those with which its \
command failed (CX10_SEED tells the command). --order-log and \
--replay repeat even the interleaving of queues. --illegal MODE breaks a promise on purpose: a \
correct driver must fail.

Examples:
  cx10 serve --socket /tmp/cx10.sock
  cx10 serve --socket /tmp/cx10.sock --doorbells poll
  cx10 serve --socket /tmp/cx10.sock --set mkey.strict=enable --trace t.jsonl --report r.json
  cx10 serve --socket /tmp/cx10.sock --wire-fault drop:kind=ack,every=50
  cx10 serve --socket /tmp/cx10.sock --order hold-one --seed 3 --check

QEMU 11.1 or later, guest memory shared, and a PCIe root port so that the PCIe capability reaches the \
driver:
  qemu-system-x86_64 -machine q35,memory-backend=mem \\
    -object memory-backend-memfd,id=mem,size=2G,share=on -m 2G \\
    -device pcie-root-port,id=rp0 \\
    -device '{\"driver\":\"vfio-user-pci\",\"bus\":\"rp0\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/cx10.sock\"}}' ...

Exit status: 0 clean, 1 set-up error, 2 a guest broke the ordering contract, 3 a check of cx10 failed.";

/// Behind the help of `cx10 trace`.
pub const TRACE: &str = "\
One line an event: time in seconds, [slot] COMMAND field=value ... = STATUS (syndrome: meaning) field=value ... Fields have \
their PRM names (PRM: the vendor's reference manual, as the kernel's mlx5_ifc.h has it); fields that are zero are left out.

Examples:
  cx10 trace t.jsonl
  cx10 trace t.jsonl --failed                    failed commands and refused keys
  cx10 trace t.jsonl --op CREATE_MKEY --full
  cx10 trace t.jsonl --follow                    while the guest runs
  cx10 trace t.jsonl --count                     which commands, how many, what failed
  jq -r 'select(.ev == \"key\")' t.jsonl           the file is JSON, one object a line";

/// Behind the help of `cx10 litmus`.
pub const LITMUS: &str = "\
A litmus program is a few DMA transactions of the device and a few processors that load and store. All of its schedules are \
run on the ordering engine of this build, and the outcomes are compared with those that a model derives from axioms, with \
no code in common. The engine is sound if it produces nothing that the model forbids, complete if it produces all the rest.

Modes:
  S R U       strict, relaxed, unordered keys on PCIe
  NS NR NU    the same on a fabric without order; in NR and NU strict writes do not exist; NU is
              what the device is

A program file has one program, or {\"tests\": [PROGRAM, ...]}. A program:
  device   transactions in issue order:
    kind     W write, R read, A fetch-and-add, C completion entry, E event entry, I interrupt,
             M command output, K control read
    queue    stream: a queue pair and direction
    at       granules, ascending; the last one of an entry is its owner byte
    values   what is written or added: numbers, or {\"reg\": NAME, \"plus\": N}
    into     registers that receive what is read; null for none
    waw raw  SO or RO: the key's attributes, instead of the mode's
    fence    local, read or strong
    after    labels that must be done first; label is its own
    node     memory domain [default: B]; chain: completion queue of C, E, I [default: cq_QUEUE]
  cpus     lists of steps: {\"kind\": \"load\", \"at\": G, \"into\": REG}
           or {\"kind\": \"store\", \"at\": G, \"value\": N}; label, after
  set      knobs: raw_scope, atomic, ack, fence2
  ask      the outcome in question: registers, and GRANULE@end for final values; all is 0 at first
  allowed, outcomes    optional claims by mode, which are checked
At most 16 transactions, 8 processors, 64 accesses in all.

Examples:
  cx10 litmus                                    the table: is each outcome in question allowed?
  cx10 litmus C1 D --mode NU --outcomes          one program and a group, with all outcomes
  cx10 litmus A2 --mode NU --outcomes --explain  how it comes to each outcome
  cx10 litmus C2 E5 --set raw_scope=bytes        an open question, answered the other way
  cx10 litmus A1 --source > mine.json            a file to start from
  cx10 litmus --file mine.json --mode NU --json | jq .outcomes
  cx10 litmus --random 1000 --seed 7             programs that nobody thought of
  cx10 litmus --mutants                          would the table notice a missing rule?

Exit status: 0 engine and model agree, 1 usage error or a program that is too large, 3 the engine is unsound or incomplete, or a \
claim of the program is wrong.";

/// Behind the help of `cx10 shrink`.
pub const SHRINK: &str = "\
An overtake is an access of the device, or a piece of one, that became visible before one that was issued earlier. A run under \
a policy like `random` has thousands; this command runs CMD again and again with fewer and fewer of those that FILE recorded, \
everything else in order, until none can be taken away without CMD passing.

CMD starts `cx10 run` or `cx10 serve`, itself or in a script; give it the command that failed. The environment variable \
CX10_SHRINK names a directory with the order of each run; it reaches cx10 unless something clears the environment (with sudo: \
--preserve-env=CX10_SHRINK), and there it goes before --order, --seed, --replay and --order-log. The device must be configured \
as it was; the contract and its knobs are those of FILE. What CMD leaves running in its process group is ended before the next run.

Status 0 of CMD is a pass. The status that it ends with when all overtakes of FILE are allowed is the failure; any other is \
told and counted as a pass. First it is made sure that CMD fails with all overtakes and passes in order.

The remaining overtakes are told in sentences on standard error, and printed to standard output as a program for `cx10 litmus \
--file`, with guest addresses (0xADDRESS+BYTES), queue pairs and keys.

Examples:
  cx10 run --order random --seed 3 --order-log o.log -- ./my-test           fails
  cx10 shrink o.log -- cx10 run --order random --seed 3 -- ./my-test        why?
  cx10 shrink o.log --tries 3 --keep o.set -o o.json -- ./fails-sometimes.sh
  cx10 run --replay o.log --overtakes o.set -- ./my-test       fails, with nothing else out of order
  cx10 litmus --file o.json --mode NU --outcomes --explain

Exit status: 0 the smallest set was found, 1 usage or set-up error, 4 there is nothing to find: the failure does not come again, \
or not from the order; 5 a limit was reached and a smaller set may exist. 128 and its number after a signal. With 5 and after \
a signal the smallest set so far is told and printed.";

/// Behind the help of `cx10 profile`.
pub const PROFILE: &str = "\
A profile says what the function is: PCI identity, capabilities by PRM name, and the ordering policy. A TOML file of your own \
can inherit one:

  # my.toml
  inherits = \"connectx10-c2c\"
  [mkey]
  exempt = [\"memic\"]
  [caps.general]
  imaicl = 0

Examples:
  cx10 profile list
  cx10 profile show connectx7
  cx10 profile show --set mkey.strict=off        every line that an option changed says so
  cx10 profile diff connectx10-c2c connectx7
  cx10 profile keys mkey                         what can be set, and to what
  cx10 profile fields general order              capability fields whose name contains `order`
  cx10 run --profile ./my.toml";

/// Behind the help of `cx10 completions`.
pub const COMPLETIONS: &str = "\
Examples:
  cx10 completions bash > /etc/bash_completion.d/cx10
  cx10 completions zsh > ~/.zfunc/_cx10
  cx10 completions fish > ~/.config/fish/completions/cx10.fish";

/// Behind the help of `cx10 man`.
pub const MAN: &str = "\
Examples:
  cx10 man | man -l -
  cx10 man run | man -l -
  cx10 man --out /usr/local/share/man/man1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_broken_by_the_terminal_and_lists_fit_into_it() {
        for text in [TOP, RUN, CONFORM, SERVE, TRACE, LITMUS, SHRINK, PROFILE, COMPLETIONS, MAN] {
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
                assert!(!(prose(pair[0]) && prose(pair[1])), "a break by hand: {pair:?}");
            }
            // A line to copy is whole, however long.
            for line in lines.iter().filter(|line| line.starts_with(' ') && !line.contains("-device '")) {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }
}
