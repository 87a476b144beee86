//! A private directory for sockets and temporary files of one run, removed at its end.
//!
//! A run that is killed cannot clean up; its directory is recognised by its name, which holds the process and its PID
//! namespace, and removed by the next run of the same user. Names are kept short: a Unix socket path has at most 107
//! bytes.

use super::{RunError, at};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const PREFIX: &str = "cx10-run-";

/// The directory. Dropping it removes it with everything in it.
#[derive(Debug)]
pub struct WorkDir {
    dir: PathBuf,
}

/// Identifies the PID namespace: a process id says nothing about a run in another container that shares `/tmp`.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

impl WorkDir {
    /// Makes a fresh one below the system's directory for temporary files.
    pub fn new() -> Result<WorkDir, RunError> {
        WorkDir::below(&std::env::temp_dir())
    }

    fn below(base: &Path) -> Result<WorkDir, RunError> {
        remove_abandoned(base);
        for n in 0..10_000u32 {
            let dir = base.join(format!("{PREFIX}{}-{}-{n}", namespace(), std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created.map_err(at(&dir))?,
            }
            return Ok(WorkDir { dir });
        }
        Err(RunError::File { path: base.into(), source: io::Error::from(io::ErrorKind::AlreadyExists) })
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            log::warn!(target: "cx10::run", "{}: {error}", self.dir.display());
        }
    }
}

/// The process that a directory belongs to, if it is of this namespace.
fn owner(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (space, pid) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse().ok()?);
    (space == namespace()).then_some(pid)
}

/// Removes what killed runs left. Errors are of no interest: the directory may be removed by another run just now.
fn remove_abandoned(base: &Path) {
    let Ok(own) = fs::metadata("/proc/self").map(|m| m.uid()) else { return };
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(owner) else { continue };
        let ours = entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == own);
        if ours && !Path::new(&format!("/proc/{pid}")).exists() {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("cx10-workdir-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn the_directory_goes_with_its_owner() {
        let base = base("owner");
        let work = WorkDir::below(&base).unwrap();
        fs::write(work.path("file"), "x").unwrap();
        let dir = work.dir.clone();
        assert!(dir.is_dir());
        drop(work);
        assert!(!dir.exists());
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn an_abandoned_directory_is_removed_and_one_in_use_is_kept() {
        let base = base("abandoned");
        // Process ids end at 2^22.
        let abandoned = base.join(format!("{PREFIX}{}-4194305-0", namespace()));
        let elsewhere = base.join(format!("{PREFIX}{}-4194305-0", namespace() + 1));
        let other = base.join("something-else");
        for dir in [&abandoned, &elsewhere, &other] {
            fs::create_dir(dir).unwrap();
        }
        let in_use = WorkDir::below(&base).unwrap();
        let second = WorkDir::below(&base).unwrap();
        assert!(!abandoned.exists());
        assert!(elsewhere.exists(), "a process id of another namespace says nothing");
        assert!(other.exists(), "only directories of runs are removed");
        assert!(in_use.dir.is_dir() && second.dir.is_dir());
        assert_ne!(in_use.dir, second.dir);
        drop((in_use, second));
        fs::remove_dir_all(base).unwrap();
    }
}
