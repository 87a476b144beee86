//! Files for results.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Whether a file for results can be written: told before the work and not after it. Nothing is changed; a pipe is not
/// looked at, because whoever reads from it would take that for its end.
pub fn can_be_written(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|facts| !facts.is_file() && !facts.is_dir()) {
        return Ok(());
    }
    let is_new = std::fs::symlink_metadata(path).is_err();
    drop(File::options().append(true).create(true).open(path)?);
    if is_new { std::fs::remove_file(path) } else { Ok(()) }
}

/// Writes a file for results: it has the old content or the new one, never a part.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    // A pipe, a terminal or /dev/null is written in place: renaming would replace it.
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return File::options().write(true).open(path)?.write_all(text.as_bytes());
    }
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
