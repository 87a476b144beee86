//! Longer texts of `--help` and the manual pages.

/// Behind the help of `cx10`.
pub const TOP: &str = "\
First steps:
  cx10 run                              boot a guest, bind the driver, report
  cx10 run -- ibv_devinfo               run a command in the guest
  cx10 serve --socket /tmp/cx10.sock    the device alone, for your own QEMU
  cx10 profile show                     what the device is and can do
  cx10 help SUBCOMMAND                  examples for each subcommand

Exit status:
  0    clean
  1    usage or set-up error (nothing can be said about the guest)
  2    the guest broke the ordering contract, for example by a strict memory key
  3    a check of cx10 itself failed (nothing can be said about the guest)
  A command given to `cx10 run` passes its own status through.

Environment:
  CX10_LOG    default of --log";

/// Behind the help of `cx10 run`.
pub const RUN: &str = "\
The guest is a small Debian system that is built once and cached. The driver is the one of the guest kernel, unmodified.

Examples:
  cx10 run                                       boot, bind, report
  cx10 run -- ibv_devinfo -v                     run a command, pass its status through
  cx10 run --shell                               look around in the guest
  cx10 run --kernel 6.12                         a kernel that does not know the PCI id
  cx10 run --kernel ~/linux -- ./my-test         your own kernel build tree
  cx10 run --profile connectx7 -- ./my-test      the same test where strong ordering is allowed
  cx10 run --set mkey.exempt=memic,window        let some kinds of strict keys pass
  cx10 run --set caps.general.imaicl=0           do not advertise memory windows
  cx10 run --wire-fault drop:service=rc,every=100 -- ./my-test    one packet in a hundred is lost (cx10 help serve)
  cx10 run --trace /tmp/t.jsonl && cx10 trace /tmp/t.jsonl --failed

Exit status: 0 clean, 1 set-up error, 2 the guest broke the ordering contract, 3 a check of cx10 failed; with CMD, the status
of CMD.";

/// Behind the help of `cx10 serve`.
pub const SERVE: &str = "\
Serves one VMM at a time; when one disconnects the function is reset and the next may come. SIGINT or SIGTERM ends the
program, removes the socket and writes the report.

Doorbells: with --doorbells trap each is a message, and a quiet guest costs no processor time. With --doorbells poll the VMM
maps the doorbell pages and the device looks at them: faster by far, and the only way where the VMM cannot emulate the
guest's stores (64-byte stores on arm64). It keeps one processor busy while traffic flows and about a tenth of one while
the guest is quiet.

Wire faults: --wire-fault ACTION:KEY=VALUE,... loses, doubles or delays packets, also those from the
function to itself. A rule counts the packets that agree with it and hits some of them; a packet is
hit by the first rule that wants it.
  drop, duplicate, delay    what becomes of a packet; delay:us=N is N microseconds late, behind others
  qpn=N source=N dest=N     queue pair at either end, that sends, that receives; or any
  service=rc|uc|ud|xrc|any  transport service
  kind=WORD                 request, send, write, read, atomic, response, read-response,
                            atomic-response, ack, any
  psn=N                     sequence number
  nth=N every=N times=N     first packet that is hit, from 1 on; distance of the next; how many in all
With nth or psn but not every, one packet is hit; with none of these, all. The report has counts for
each rule.

Examples:
  cx10 serve --socket /tmp/cx10.sock
  cx10 serve --socket /tmp/cx10.sock --doorbells poll
  cx10 serve --socket /tmp/cx10.sock --set mkey.strict=enable --trace /tmp/t.jsonl --report /tmp/r.json

QEMU 11.1 or later, guest memory shared, and a PCIe root port so that the PCIe capability reaches the driver:
  qemu-system-x86_64 -machine q35,memory-backend=mem \\
    -object memory-backend-memfd,id=mem,size=2G,share=on -m 2G \\
    -device pcie-root-port,id=rp0 \\
    -device '{\"driver\":\"vfio-user-pci\",\"bus\":\"rp0\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/cx10.sock\"}}' ...

  cx10 serve --socket /tmp/cx10.sock --wire-fault drop:kind=ack,every=50 --wire-fault delay:us=500,nth=3

Exit status: 0 clean, 1 set-up error, 2 a guest broke the ordering contract, 3 a check of cx10 failed.";

/// Behind the help of `cx10 trace`.
pub const TRACE: &str = "\
One line an event: time in seconds, [slot] COMMAND field=value ... = STATUS (syndrome: meaning) field=value ... Fields have
their PRM names; fields that are zero are left out.

Examples:
  cx10 trace t.jsonl
  cx10 trace t.jsonl --failed                    failed commands and refused keys
  cx10 trace t.jsonl --op CREATE_MKEY --full
  cx10 trace t.jsonl --follow                    while the guest runs
  cx10 trace t.jsonl --count                     which commands, how many, what failed
  jq -r 'select(.ev == \"key\")' t.jsonl           the file is JSON, one object a line";

/// Behind the help of `cx10 profile`.
pub const PROFILE: &str = "\
A profile says what the function is: PCI identity, capabilities by PRM name, and the ordering policy. A TOML file of your own
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
