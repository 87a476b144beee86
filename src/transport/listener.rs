//! The listening socket: a path that belongs to us while we live.
//!
//! A socket file that nobody listens on any more (its process was killed) is replaced; one that answers is
//! not. The file is removed at the end only if it is still the one that was made here.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::sys;

/// Permission bits of the socket unless the user asks for others: whoever can connect owns the device.
pub const DEFAULT_MODE: u32 = 0o600;

/// What [`Listener::accept`] found.
#[derive(Debug)]
pub enum Accepted {
    /// A client.
    Client(UnixStream),
    /// Nobody is waiting.
    None,
    /// The call failed (out of descriptors, say); worth another try later.
    Failed(io::Error),
}

/// A listening socket and its file.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    file: (PathBuf, u64, u64),
}

impl Listener {
    /// Listens on `path`; the socket file has the permission bits `mode`.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Listener> {
        let socket = match sys::bind_listener(path, mode) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
                fs::remove_file(path)?;
                sys::bind_listener(path, mode)?
            }
            other => other?,
        };
        let meta = fs::symlink_metadata(path)?;
        socket.set_nonblocking(true)?;
        Ok(Listener { socket, file: (path.to_owned(), meta.dev(), meta.ino()) })
    }

    /// The next waiting client; never waits.
    pub fn accept(&self) -> Accepted {
        match self.socket.accept() {
            Ok((stream, _)) => Accepted::Client(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::None,
            Err(error) => Accepted::Failed(error),
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let (path, dev, ino) = &self.file;
        let ours = fs::symlink_metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (*dev, *ino));
        if ours {
            let _ = fs::remove_file(path);
        }
    }
}

/// A socket file that refuses connections was left behind.
fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::tempdir::TempDir;

    #[test]
    fn the_socket_file_goes_with_its_listener() {
        let dir = TempDir::new_with_prefix("/tmp/cx10-listener").unwrap();
        let path = dir.as_path().join("s");
        let listener = Listener::bind(&path, DEFAULT_MODE).unwrap();
        assert!(matches!(listener.accept(), Accepted::None));
        let _client = UnixStream::connect(&path).unwrap();
        assert!(matches!(listener.accept(), Accepted::Client(_)));
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_in_use_is_not_taken_but_a_dead_one_is() {
        let dir = TempDir::new_with_prefix("/tmp/cx10-listener").unwrap();
        let path = dir.as_path().join("s");
        let alive = Listener::bind(&path, DEFAULT_MODE).unwrap();
        assert_eq!(Listener::bind(&path, DEFAULT_MODE).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        drop(alive);
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file behind");
        Listener::bind(&path, DEFAULT_MODE).unwrap();
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = TempDir::new_with_prefix("/tmp/cx10-listener").unwrap();
        let path = dir.as_path().join("s");
        fs::write(&path, "precious").unwrap();
        assert_eq!(Listener::bind(&path, DEFAULT_MODE).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_socket_of_somebody_else_is_not_removed() {
        let dir = TempDir::new_with_prefix("/tmp/cx10-listener").unwrap();
        let path = dir.as_path().join("s");
        let listener = Listener::bind(&path, DEFAULT_MODE).unwrap();
        fs::rename(&path, dir.as_path().join("moved")).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
    }
}
