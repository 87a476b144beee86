//! The whole device in a thread of its own, behind a socket.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cx10::device::Function;
use cx10::device::clock::MonotonicClock;
use cx10::engine::{Options, Stop, serve};
use cx10::profile::Profile;
use cx10::trace::{RunSummary, Trace};
use vmm_sys_util::tempdir::TempDir;

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A device that is being served; stops and joins when dropped.
pub struct Device {
    dir: TempDir,
    stop: Stop,
    thread: Option<JoinHandle<RunSummary>>,
    name: String,
}

impl Device {
    /// The default profile with these settings (`KEY=VALUE`).
    pub fn start(sets: &[&str]) -> Device {
        Device::spawn(sets, None)
    }

    /// The same on one processor.
    pub fn start_on(sets: &[&str], cpu: usize) -> Device {
        Device::spawn(sets, Some(cpu))
    }

    fn spawn(sets: &[&str], cpu: Option<usize>) -> Device {
        let dir = TempDir::new_with_prefix("/tmp/cx10-device").expect("temporary directory");
        let (path, stop) = (dir.as_path().join("s"), Stop::new().expect("a stop handle"));
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        // Threads are told apart by name; tests run at the same time.
        let name = format!("device-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let thread = std::thread::Builder::new().name(name.clone()).spawn({
            let (path, stop) = (path.clone(), stop.clone());
            move || {
                cpu.into_iter().for_each(super::pin);
                let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
                let profile = Profile::with("connectx10-c2c", &sets).expect("a profile");
                let mut function = Function::new(profile, Box::new(MonotonicClock::start()), Trace::off());
                serve(&path, &mut function, &Options::default(), &stop).expect("the event loop");
                function.hca().audit().expect("references and charges agree");
                function.summary()
            }
        });
        let device = Device { dir, stop, thread: Some(thread.expect("a thread")), name };
        while !device.socket().exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        device
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.as_path().join("s")
    }

    /// Name of its thread.
    pub fn thread(&self) -> &str {
        &self.name
    }

    /// Ends it and tells what happened.
    pub fn stop(mut self) -> RunSummary {
        self.stop.stop();
        self.thread.take().expect("stopped once").join().expect("the device panicked")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            let result = thread.join();
            assert!(std::thread::panicking() || result.is_ok(), "the device panicked");
        }
    }
}
