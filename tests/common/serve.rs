//! A server in a thread of its own.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use cx10::engine::{self, Device, Exit, Options, Stop};
use cx10::transport::listener::{DEFAULT_MODE, Listener};
use cx10::transport::server::{Server, Stats};
use vmm_sys_util::tempdir::TempDir;

use super::client::Client;

/// A device that is being served; stops and joins when dropped.
pub struct Served<D> {
    dir: TempDir,
    stop: Stop,
    thread: Option<JoinHandle<(D, Exit, Stats)>>,
}

impl<D: Device + Send + 'static> Served<D> {
    /// Listens, then serves in a thread, with default options.
    pub fn new(device: D) -> Served<D> {
        Served::with(device, Options::default())
    }

    pub fn with(mut device: D, options: Options) -> Served<D> {
        let dir = TempDir::new_with_prefix("/tmp/cx10-test").expect("temporary directory");
        let listener = Listener::bind(&dir.as_path().join("cx10.sock"), DEFAULT_MODE).expect("listen");
        let stop = Stop::new().expect("stop");
        let server = Server::new(listener, device.layout());
        let handle = stop.clone();
        let thread = std::thread::spawn(move || {
            let (exit, stats) = engine::run(server, &mut device, &options, &handle).expect("event loop");
            (device, exit, stats)
        });
        Served { dir, stop, thread: Some(thread) }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.as_path().join("cx10.sock")
    }

    pub fn dir(&self) -> &Path {
        self.dir.as_path()
    }

    /// A client that has negotiated.
    pub fn client(&self) -> Client {
        Client::negotiated(&self.path())
    }

    /// Stops the loop and takes the device back.
    pub fn stop(mut self) -> (D, Exit, Stats) {
        self.stop.stop();
        self.join()
    }

    /// Waits for the loop to end by itself.
    pub fn join(&mut self) -> (D, Exit, Stats) {
        self.thread.take().expect("joined once").join().expect("the server panicked")
    }
}

impl<D> Drop for Served<D> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            let result = thread.join();
            if !std::thread::panicking() {
                assert!(result.is_ok(), "the server panicked");
            }
        }
    }
}
