//! What the guest is told and what it tells: parameters in the initramfs, JSON lines on a virtio-serial port.
//!
//! The programs on the other side are `qemu/guest/init` and `qemu/guest/agent.py`; this program carries them and appends
//! them, with the parameters, to the kernel's initramfs as a further cpio archive (Linux `init/initramfs.c` unpacks
//! concatenated archives in order, later files replace earlier ones).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const INIT: &[u8] = include_bytes!("../../qemu/guest/init");
const AGENT: &[u8] = include_bytes!("../../qemu/guest/agent.py");

/// Names of the virtio-serial ports.
pub const PORT_REPORT: &str = "org.cx10.report";
/// Standard input of the command.
pub const PORT_STDIN: &str = "org.cx10.stdin";
/// Standard output of the command.
pub const PORT_STDOUT: &str = "org.cx10.stdout";
/// Standard error of the command.
pub const PORT_STDERR: &str = "org.cx10.stderr";
/// Mount tag of the shared directory.
pub const SHARE_TAG: &str = "cx10-host";
/// Serial number of the root disk.
pub const DISK_ROOT: &str = "cx10-root";
/// Serial number of the disk with the kernel's modules.
pub const DISK_MODULES: &str = "cx10-modules";

/// Parameters of the guest's agent (`params.json`).
#[derive(Clone, Debug, Default, Serialize)]
pub struct Params {
    /// Command, each argument's bytes as Latin-1: an argument need not be UTF-8.
    pub command: Vec<String>,
    /// Run a shell on the terminal.
    pub shell: bool,
    /// The host's directory is shared.
    pub share: bool,
    /// A guest without the device is a problem worth reporting.
    pub expect_device: bool,
    /// Rows and columns of the terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<[u16; 2]>,
    /// `TERM` of the terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<String>,
    /// Additional environment of the command.
    pub env: BTreeMap<String, String>,
    /// The first and the last of the seeds that take turns: the command is run once with each, the driver started anew in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<[u64; 2]>,
}

/// Bytes as text that JSON can carry and the agent turns back.
pub fn latin1(argument: &OsStr) -> String {
    argument.as_bytes().iter().copied().map(char::from).collect()
}

impl Params {
    /// Sets the command.
    pub fn command(mut self, command: &[OsString]) -> Self {
        self.command = command.iter().map(|a| latin1(a)).collect();
        self
    }
}

/// A file of a cpio archive.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Path without leading slash.
    pub name: &'a str,
    /// Permission bits.
    pub mode: u32,
    /// Contents.
    pub data: &'a [u8],
}

/// Appends our init, agent and parameters to an initramfs, and further programs that lie beside the agent.
pub fn append_to_initramfs(
    initramfs: &mut Vec<u8>,
    params: &Params,
    programs: &[(&str, &[u8])],
) -> serde_json::Result<()> {
    // init looks for `"share": true` with grep, so the form with spaces is used.
    let text = serde_json::to_vec_pretty(params)?;
    let names: Vec<String> = programs.iter().map(|(name, _)| format!("cx10/{name}")).collect();
    let mut files = vec![
        File { name: "init", mode: 0o755, data: INIT },
        File { name: "cx10/agent.py", mode: 0o644, data: AGENT },
        File { name: "cx10/params.json", mode: 0o600, data: &text },
    ];
    files.extend(names.iter().zip(programs).map(|(name, (_, data))| File { name, mode: 0o644, data }));
    append_files(initramfs, &files);
    Ok(())
}

/// Appends an archive in the `newc` format; directories of the names are made.
pub fn append_files(initramfs: &mut Vec<u8>, files: &[File<'_>]) {
    pad(initramfs, 4);
    let mut inode = 1u32;
    let mut dirs: Vec<&str> = Vec::new();
    for file in files {
        if let Some((dir, _)) = file.name.rsplit_once('/') {
            if !dirs.contains(&dir) {
                dirs.push(dir);
                entry(initramfs, inode, dir, 0o040_755, &[]);
                inode += 1;
            }
        }
        entry(initramfs, inode, file.name, 0o100_000 | file.mode, file.data);
        inode += 1;
    }
    entry(initramfs, 0, "TRAILER!!!", 0, &[]);
}

fn entry(out: &mut Vec<u8>, inode: u32, name: &str, mode: u32, data: &[u8]) {
    // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
    let (size, namesize) = (data.len() as u32, name.len() as u32 + 1);
    out.extend_from_slice(b"070701");
    for field in [inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, namesize, 0] {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    pad(out, 4);
    out.extend_from_slice(data);
    pad(out, 4);
}

fn pad(out: &mut Vec<u8>, to: usize) {
    out.resize(out.len().next_multiple_of(to), 0);
}

/// A line from the guest.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The guest got this far.
    Stage {
        /// `booted`, `new_id`, `bound`, `netdev`, `rdma`, `command`, `seed`, `shell`.
        name: String,
        /// Seconds since the kernel's start.
        #[serde(default)]
        uptime: f64,
        /// Which driver, device, ….
        #[serde(default)]
        detail: String,
    },
    /// What the guest sees of the device.
    Facts {
        /// The facts.
        facts: Box<Facts>,
    },
    /// The command has ended with one of the seeds that take turns.
    Run(SeedRun),
    /// The guest is done and powers off.
    Exit {
        /// Exit status of the command or shell, if there was one. Where it ran several times the first that is not 0.
        status: Option<u8>,
        /// Each run of the command, where seeds take turns.
        #[serde(default)]
        runs: Vec<SeedRun>,
        /// Why it could not be run with all of them.
        #[serde(default)]
        problems: Vec<String>,
        /// Kernel messages of the whole run that are warnings or about the device.
        #[serde(default)]
        kernel_log: Vec<LogLine>,
        /// Seconds since the kernel's start.
        #[serde(default)]
        uptime: f64,
    },
}

/// One of several runs of the command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeedRun {
    /// The seed of the device's life.
    pub seed: u64,
    /// Exit status.
    pub status: u8,
    /// Seconds, without the start of the driver.
    #[serde(default)]
    pub seconds: f64,
}

/// What the guest sees, collected after the driver is bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// CPUs.
    pub cpus: u32,
    /// PCI functions of vendor 15b3.
    pub devices: Vec<PciDevice>,
    /// `rdma -j link`.
    pub rdma_link: serde_json::Value,
    /// `devlink -j dev info`.
    pub devlink: serde_json::Value,
    /// Kernel messages that are warnings or about the device.
    pub kernel_log: Vec<LogLine>,
    /// What did not come up, in words.
    pub problems: Vec<String>,
    /// Seconds since the kernel's start when this was collected.
    pub uptime: f64,
}

/// A PCI function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciDevice {
    /// Domain, bus, device, function.
    pub bdf: String,
    /// Vendor and device.
    pub id: String,
    /// Revision.
    pub revision: String,
    /// Bound driver.
    pub driver: Option<String>,
    /// `lspci -nn -vv`.
    pub lspci: String,
    /// Network devices.
    pub netdevs: Vec<NetDevice>,
    /// RDMA devices.
    pub rdma: Vec<RdmaDevice>,
}

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetDevice {
    /// Name.
    pub name: String,
    /// `up`, `down`, ….
    pub operstate: String,
    /// Hardware address.
    pub mac: String,
    /// `ethtool -i`.
    pub ethtool: String,
    /// IP addresses with prefix length.
    pub addresses: Vec<String>,
}

/// An RDMA device, port 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RdmaDevice {
    /// Name.
    pub name: String,
    /// State of the port.
    pub state: String,
    /// Firmware version.
    pub firmware: String,
    /// Board.
    pub board_id: String,
    /// GID table.
    pub gids: Vec<Gid>,
    /// `ibv_devinfo -v`.
    pub devinfo: String,
}

/// An entry of the GID table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gid {
    /// Index.
    pub index: u32,
    /// Value.
    pub gid: String,
    /// `RoCE v2`, ….
    #[serde(rename = "type")]
    pub kind: String,
}

/// A kernel message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogLine {
    /// 0 emergency … 7 debug.
    pub level: u8,
    /// Seconds.
    pub time: f64,
    /// Text.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive back: name, mode, data.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            let field = |n: usize| {
                u32::from_str_radix(std::str::from_utf8(&bytes[6 + 8 * n..14 + 8 * n]).unwrap(), 16).unwrap()
            };
            assert_eq!(&bytes[..6], b"070701");
            let (mode, size, namesize) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..110 + namesize - 1].to_vec()).unwrap();
            if name == "TRAILER!!!" {
                return found;
            }
            let data = (110 + namesize).next_multiple_of(4);
            found.push((name, mode, bytes[data..data + size].to_vec()));
            bytes = &bytes[(data + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn files_are_appended_as_an_aligned_archive_with_their_directories() {
        let mut out = vec![1, 2, 3];
        append_files(
            &mut out,
            &[
                File { name: "init", mode: 0o755, data: b"#!x" },
                File { name: "cx10/a", mode: 0o600, data: b"12345" },
                File { name: "cx10/b", mode: 0o644, data: b"" },
            ],
        );
        assert_eq!(&out[..4], [1, 2, 3, 0]);
        let want = [
            ("init", 0o100_755, b"#!x".to_vec()),
            ("cx10", 0o040_755, vec![]),
            ("cx10/a", 0o100_600, b"12345".to_vec()),
            ("cx10/b", 0o100_644, vec![]),
        ];
        let got = read(&out[4..]);
        assert_eq!(got.iter().map(|(n, m, d)| (n.as_str(), *m, d.clone())).collect::<Vec<_>>(), want);
    }

    #[test]
    fn a_command_keeps_bytes_that_are_not_utf8() {
        let params = Params::default().command(&["a b".into(), OsStr::from_bytes(b"\xff\xc3\xa9").into()]);
        assert_eq!(params.command, ["a b", "\u{ff}\u{c3}\u{a9}"]);
    }

    #[test]
    fn the_parameters_have_the_form_that_init_looks_for() {
        let mut out = Vec::new();
        append_to_initramfs(&mut out, &Params { share: true, ..Params::default() }, &[("walk.py", b"pass")]).unwrap();
        assert_eq!(read(&out).last().unwrap(), &("cx10/walk.py".to_owned(), 0o100_644, b"pass".to_vec()));
        let files = read(&out);
        let (_, _, text) = files.iter().find(|(name, ..)| name == "cx10/params.json").unwrap();
        assert!(String::from_utf8_lossy(text).contains("\"share\": true"));
        assert!(String::from_utf8_lossy(INIT).contains("'\"share\": *true'"));
    }

    #[test]
    fn events_of_the_agent_are_read_and_additions_ignored() {
        let line = r#"{"event":"stage","name":"bound","uptime":7.5,"detail":"x","new":1}"#;
        let want = Event::Stage { name: "bound".into(), uptime: 7.5, detail: "x".into() };
        assert_eq!(serde_json::from_str::<Event>(line).unwrap(), want);
        let line = r#"{"event":"exit","status":3,"kernel_log":[{"level":4,"time":1.5,"text":"t"}],"uptime":9}"#;
        let Event::Exit { status, kernel_log, .. } = serde_json::from_str(line).unwrap() else { panic!() };
        assert_eq!((status, kernel_log[0].text.as_str()), (Some(3), "t"));
        let line = r#"{"event":"exit","status":1,"runs":[{"seed":7,"status":1,"seconds":0.5}],"problems":["x"]}"#;
        let Event::Exit { runs, problems, .. } = serde_json::from_str(line).unwrap() else { panic!() };
        assert_eq!((runs, problems), (vec![SeedRun { seed: 7, status: 1, seconds: 0.5 }], vec!["x".to_string()]));
        let line = r#"{"event":"run","seed":18446744073709551615,"status":2,"seconds":1}"#;
        let want = Event::Run(SeedRun { seed: u64::MAX, status: 2, seconds: 1.0 });
        assert_eq!(serde_json::from_str::<Event>(line).unwrap(), want);
        let line = r#"{"event":"facts","facts":{"release":"7.3.4","devices":[{"bdf":"0000:01:00.0","driver":null}]}}"#;
        let Event::Facts { facts } = serde_json::from_str(line).unwrap() else { panic!() };
        assert_eq!((facts.devices[0].bdf.as_str(), &facts.devices[0].driver), ("0000:01:00.0", &None));
    }
}
