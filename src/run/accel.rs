//! KVM or emulation: decided by booting the guest's kernel once under KVM.
//!
//! `/dev/kvm` says little. There are hosts where it opens, creates machines and runs real-mode code, and then fails on
//! the first instruction that its own emulator does not know. So the kernel that is to be tested is booted with an init
//! that only answers and powers off: one second where KVM works. The answer is kept until the host reboots (it is stored
//! with the host's boot id and the QEMU).

use super::images::Images;
use super::progress::Progress;
use super::workdir::WorkDir;
use super::{RunError, RunOptions, at, guest};
use crate::sys::{self, SignalFd};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How to run the guest's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accel {
    /// KVM if it works, else TCG.
    #[default]
    Auto,
    /// KVM or an error.
    Kvm,
    /// Emulation.
    Tcg,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decided {
    /// Hardware virtualisation.
    Kvm,
    /// Emulation.
    Tcg,
}

impl Decided {
    /// QEMU's name for it, with the options that we want.
    pub fn qemu_args(self) -> [&'static str; 4] {
        match self {
            Decided::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Decided::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Decided::Kvm => "kvm",
            Decided::Tcg => "tcg",
        }
    }
}

/// What the probe's init says when it runs.
const ANSWER: &str = "cx10-probe-answer";
/// A Debian kernel takes one second to its init where KVM works.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// Decides.
pub fn decide(
    options: &RunOptions,
    images: &Images,
    work: &WorkDir,
    progress: &Progress,
    signals: &SignalFd,
) -> Result<Decided, RunError> {
    if options.accel == Accel::Tcg {
        return Ok(Decided::Tcg);
    }
    match kvm_works(images, work, progress, signals)? {
        Ok(()) => Ok(Decided::Kvm),
        Err(reason) if options.accel == Accel::Kvm => Err(RunError::NoKvm(reason)),
        Err(reason) => {
            log::info!(target: "cx10::run", "no KVM: {reason}");
            Ok(Decided::Tcg)
        }
    }
}

/// `Ok(Err(reason))` if not.
fn kvm_works(
    images: &Images,
    work: &WorkDir,
    progress: &Progress,
    signals: &SignalFd,
) -> Result<Result<(), String>, RunError> {
    if let Err(error) = File::options().read(true).write(true).open("/dev/kvm") {
        return Ok(Err(format!("/dev/kvm: {error}")));
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let key = format!("{} {}", boot.trim(), images.qemu.display());
    let kept = images.cache.join("kvm");
    if let Some(answer) = fs::read_to_string(&kept).ok().and_then(|text| recall(&text, &key)) {
        return Ok(answer);
    }
    progress.step("trying KVM");
    let answer = probe(images, work, signals)?;
    // Another run may write at the same time; either answer is right, and half a file is not recalled.
    let text = format!("{key}\n{}\n", answer.as_ref().err().map_or("", String::as_str));
    if let Err(error) = fs::write(&kept, text) {
        log::warn!(target: "cx10::run", "{}: {error}", kept.display());
    }
    Ok(answer)
}

/// The stored answer, if it is about the same thing.
fn recall(text: &str, key: &str) -> Option<Result<(), String>> {
    let rest = text.strip_prefix(key)?.strip_prefix('\n')?;
    let reason = rest.strip_suffix('\n')?;
    Some(if reason.is_empty() { Ok(()) } else { Err(reason.to_string()) })
}

fn probe(images: &Images, work: &WorkDir, signals: &SignalFd) -> Result<Result<(), String>, RunError> {
    let init = format!(
        "#!/bin/busybox sh\n/bin/busybox mount -t devtmpfs dev /dev\necho {ANSWER} >/dev/ttyS0\n/bin/busybox poweroff -f\n"
    );
    let initramfs = work.path("probe.cpio");
    let mut archive = fs::read(&images.initramfs).map_err(at(&images.initramfs))?;
    guest::append_files(&mut archive, &[guest::File { name: "init", mode: 0o755, data: init.as_bytes() }]);
    fs::write(&initramfs, archive).map_err(at(&initramfs))?;
    let (console, errors) = (work.path("probe.log"), work.path("probe.err"));

    let mut command = Command::new(&images.qemu);
    command.args(["-M", "q35", "-accel", "kvm", "-cpu", "host", "-smp", "1", "-m", "512M"]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial"]);
    command.arg(super::qemu::option("file:", &console));
    command.arg("-kernel").arg(&images.kernel).arg("-initrd").arg(&initramfs);
    command.args(["-append", "console=ttyS0 quiet panic=-1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(File::create(&errors).map_err(at(&errors))?);
    // Keys of the terminal are for us alone.
    command.process_group(0);
    sys::process::unblock_signals(&mut command);
    sys::die_with_parent(&mut command, libc::SIGKILL);
    let mut child =
        command.spawn().map_err(|source| RunError::Start { program: images.qemu.display().to_string(), source })?;

    let end = Instant::now() + PROBE_LIMIT;
    let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let answer = loop {
        if let Some(signal) = signals.take()? {
            stop(&mut child)?;
            return Err(RunError::Signal(signal));
        }
        if read(&console).contains(ANSWER) {
            break Ok(());
        }
        // QEMU stays, with the machine stopped.
        if read(&errors).contains("KVM internal error") {
            break Err("it cannot run the guest's instructions".to_string());
        }
        if child.try_wait()?.is_some() {
            // The answer may have come between the two looks.
            if read(&console).contains(ANSWER) {
                break Ok(());
            }
            break Err(read(&errors).lines().last().unwrap_or("the machine ended").trim().to_string());
        }
        if Instant::now() >= end {
            break Err(format!("no answer from the kernel after {} s", PROBE_LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    stop(&mut child)?;
    Ok(answer)
}

fn stop(child: &mut std::process::Child) -> io::Result<()> {
    // Already ended is as good.
    let _ = child.kill();
    child.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_recalled_for_the_same_boot_and_qemu_only() {
        assert_eq!(recall("boot q\n\n", "boot q"), Some(Ok(())));
        assert_eq!(recall("boot q\nno luck\n", "boot q"), Some(Err("no luck".into())));
        assert_eq!(recall("other q\n\n", "boot q"), None);
        assert_eq!(recall("boot q2\n\n", "boot q"), None);
        assert_eq!(recall("boot q\nno lu", "boot q"), None, "half a file");
    }
}
