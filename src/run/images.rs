//! QEMU, guest root and kernels: made by the recipe in `qemu/`, which this program carries with it.
//!
//! The recipe (`qemu/images`) is a shell script around apt and dpkg-deb. It names artefacts by their contents, so asking
//! for one that exists is cheap.

use super::progress::Progress;
use super::workdir::WorkDir;
use super::{RunError, RunOptions, at};
use crate::sys;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The recipe, file by file.
const RECIPE: [(&str, &str); 6] = [
    ("images", include_str!("../../qemu/images")),
    ("versions.sh", include_str!("../../qemu/versions.sh")),
    ("lib.sh", include_str!("../../qemu/lib.sh")),
    ("qemu.sh", include_str!("../../qemu/qemu.sh")),
    ("root.sh", include_str!("../../qemu/root.sh")),
    ("kernel.sh", include_str!("../../qemu/kernel.sh")),
];

/// What a guest is booted from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// The QEMU binary, or a script that starts it.
    pub qemu: PathBuf,
    /// Root image (squashfs).
    pub root: PathBuf,
    /// Kernel: ELF with a PVH entry, or bzImage.
    pub kernel: PathBuf,
    /// Initramfs without its init.
    pub initramfs: PathBuf,
    /// Modules image, unless everything is built in.
    pub modules: Option<PathBuf>,
    /// Directory of all images.
    pub cache: PathBuf,
}

/// `$CX10_CACHE`, else `cx10` in the user's cache directory. The same rule is in `qemu/lib.sh`.
pub fn default_cache() -> Result<PathBuf, RunError> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("CX10_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("cx10")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/cx10")))
        .ok_or_else(|| RunError::Images("neither CX10_CACHE nor HOME is set".into()))
}

/// Whether a file is a kernel that can be started: the header of the x86 boot protocol, or ELF for PVH.
fn is_kernel(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    std::fs::File::open(path)?.take(0x206).read_to_end(&mut start)?;
    Ok(start.get(0x202..0x206) == Some(b"HdrS") || start.starts_with(b"\x7fELF"))
}

/// Makes sure that everything is there.
pub fn ensure(options: &RunOptions, progress: &Progress) -> Result<Images, RunError> {
    let kernel = Path::new(&options.kernel);
    if kernel.is_file() && !is_kernel(kernel).map_err(at(kernel))? {
        return Err(RunError::Images(format!("{} is no Linux kernel: it has no boot header", kernel.display())));
    }
    let cache = match &options.cache {
        Some(dir) => dir.clone(),
        None => default_cache()?,
    };
    let recipe = WorkDir::new()?;
    for (name, text) in RECIPE {
        std::fs::write(recipe.path(name), text).map_err(at(recipe.path(name)))?;
    }

    let mut command = Command::new("bash");
    command.arg(recipe.path("images")).env("CX10_CACHE", &cache);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if options.update {
        command.arg("--update");
    }
    if options.qemu.is_none() {
        command.arg("qemu");
    }
    let mut kernel = OsString::from("kernel=");
    kernel.push(&options.kernel);
    command.arg("root").arg(kernel);
    sys::die_with_parent(&mut command, libc::SIGTERM);
    let start = |source| RunError::Start { program: "bash".into(), source };
    let mut child = command.spawn().map_err(start)?;
    let last = child.stderr.take().map(|stderr| follow(stderr, progress)).unwrap_or_default();
    let mut output = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut output)?;
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(RunError::Images(if last.is_empty() { status.to_string() } else { last }));
    }
    let images = parse(&output, options.qemu.as_deref(), cache);
    images.ok_or_else(|| RunError::Images(format!("the recipe answered {output:?}")))
}

/// Shows the recipe's messages; returns its last error.
fn follow(stderr: impl Read, progress: &Progress) -> String {
    let mut error = String::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if let Some(text) = line.strip_prefix("images: error: ") {
            error = text.to_string();
        } else if let Some(text) = line.strip_prefix("images: ") {
            progress.step(text);
        } else {
            progress.note(&line);
        }
    }
    error
}

fn parse(output: &str, qemu: Option<&Path>, cache: PathBuf) -> Option<Images> {
    let value =
        |name: &str| output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(PathBuf::from));
    let kernel = value("kernel")?;
    let modules = kernel.join("modules.squashfs");
    Some(Images {
        qemu: qemu.map(Path::to_path_buf).or_else(|| value("qemu"))?,
        root: value("root")?,
        initramfs: kernel.join("initramfs.cpio"),
        modules: modules.exists().then_some(modules),
        kernel: kernel.join("kernel"),
        cache,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipes_answer_is_read_line_by_line() {
        let cache = PathBuf::from("/c");
        let answer = "qemu=/c/q/run\nroot=/c/r/root.squashfs\nkernel=/c/k\n";
        let images = parse(answer, None, cache.clone()).unwrap();
        assert_eq!(images.qemu, Path::new("/c/q/run"));
        assert_eq!(images.kernel, Path::new("/c/k/kernel"));
        assert_eq!(images.initramfs, Path::new("/c/k/initramfs.cpio"));
        assert_eq!(images.modules, None, "no such file: everything is built in");
        let chosen = parse(answer, Some(Path::new("/usr/bin/q")), cache.clone()).unwrap();
        assert_eq!(chosen.qemu, Path::new("/usr/bin/q"));
        assert_eq!(parse("root=/c/r\n", None, cache), None);
    }

    #[test]
    fn the_recipe_that_is_carried_is_complete() {
        // Every file that `images` or lib.sh reads from its own directory.
        for (_, text) in RECIPE {
            for line in text.lines().filter(|l| l.trim_start().starts_with("source ")) {
                let name = line.trim().trim_end_matches('"').rsplit('/').next().unwrap();
                assert!(RECIPE.iter().any(|(known, _)| *known == name), "{name} is not carried");
            }
        }
    }
}
