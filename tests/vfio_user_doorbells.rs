//! Doorbells over a real socket, trapped and polled: what the VMM may map, and what waiting for them costs.

mod common;

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::driver::{Driver, input};
use cx10::device::Function;
use cx10::device::clock::MonotonicClock;
use cx10::engine::{self, Options, Stop};
use cx10::profile::Profile;
use cx10::sys::{Mapping, Protection};
use cx10::trace::Trace;
use cx10::transport::layout::region;
use vmm_sys_util::tempdir::TempDir;

/// A device in a thread of its own.
struct Served {
    dir: TempDir,
    stop: Stop,
    thread: Option<std::thread::JoinHandle<()>>,
    name: String,
}

impl Served {
    fn new(doorbells: &str) -> Served {
        let dir = TempDir::new_with_prefix("/tmp/cx10-doorbells").unwrap();
        let (path, stop) = (dir.as_path().join("s"), Stop::new().unwrap());
        let set = format!("doorbells={doorbells}");
        // Names of threads are looked for; tests run at the same time.
        let name = format!("{doorbells}-{}", number());
        let thread = std::thread::Builder::new().name(name.clone()).spawn({
            let (path, stop) = (path.clone(), stop.clone());
            move || {
                let profile = Profile::with("connectx10-c2c", &[&set]).unwrap();
                let mut function = Function::new(profile, Box::new(MonotonicClock::start()), Trace::off());
                engine::serve(&path, &mut function, &Options::default(), &stop).unwrap();
            }
        });
        let served = Served { dir, stop, thread: Some(thread.unwrap()), name };
        while !served.path().exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        served
    }

    fn path(&self) -> PathBuf {
        self.dir.as_path().join("s")
    }

    /// The loop's processor time, and how often it was woken.
    fn effort(&self) -> (Duration, u64) {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let task = tasks
            .map(|task| task.path())
            .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == self.name))
            .expect("the loop's thread");
        let nanoseconds = fs::read_to_string(task.join("schedstat")).unwrap();
        let nanoseconds = nanoseconds.split_whitespace().next().unwrap().parse().unwrap();
        let status = fs::read_to_string(task.join("status")).unwrap();
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        (Duration::from_nanos(nanoseconds), switches.trim().parse().unwrap())
    }

    /// What the loop did during `time`.
    fn effort_of(&self, time: Duration) -> (Duration, u64) {
        let before = self.effort();
        std::thread::sleep(time);
        let after = self.effort();
        (after.0 - before.0, after.1 - before.1)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        let result = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || result.is_ok(), "the device panicked");
    }
}

fn number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[test]
fn trapped_doorbells_cost_no_wake_up_while_nothing_happens() {
    let served = Served::new("trap");
    let mut driver = Driver::attach(&served.path());
    assert_eq!(driver.client.region_info(region::BAR0).unwrap().flags, 3, "nothing to map");
    driver.init_hca();
    let _queues = driver.load();
    driver.ok(&input(0x800, 0, 16), 16);
    // The loop looks for the next request a little longer than it takes.
    std::thread::sleep(Duration::from_millis(20));
    let (time, wake_ups) = served.effort_of(Duration::from_millis(400));
    assert_eq!(wake_ups, 0, "wake-ups, in {time:?} of processor time");
    assert!(time < Duration::from_millis(1), "{time:?}");
}

#[test]
fn the_doorbell_pages_can_be_mapped_and_nothing_else() {
    let served = Served::new("poll");
    let mut driver = Driver::attach(&served.path());
    let info = driver.client.region_info(region::BAR0).unwrap();
    assert_eq!(info.flags, 1 | 2 | 4 | 8, "read, write, mmap, capabilities");
    assert_eq!(info.offset, 0);
    // Page 4 has the MSI-X table; device memory begins at 16 MiB.
    assert_eq!(info.areas, [(0x1_0000, 0x100_0000 - 0x1_0000)]);
    let fd = info.fd.expect("a file");
    let (at, len) = info.areas[0];
    let pages = Mapping::new(fd.as_fd(), at, len, Protection::ReadWrite).unwrap();
    assert!(!pages.can_shrink(), "sealed: nobody can take the memory away");
    let config = driver.client.region_info(region::CONFIG).unwrap();
    assert_eq!((config.flags, config.fd.is_none()), (3, true));
}

#[test]
fn polling_ends_with_the_queues_and_with_the_vmm() {
    let served = Served::new("poll");
    let mut driver = Driver::attach(&served.path());
    driver.init_hca();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(served.effort_of(Duration::from_millis(200)).1, 0, "no doorbell page is in use yet");
    let own = driver.load();
    let (time, _) = served.effort_of(Duration::from_millis(100));
    assert!(time > Duration::from_millis(2), "polls: {time:?}");
    driver.unload(own);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(served.effort_of(Duration::from_millis(200)).1, 0, "every page is given back");
    driver.load();
    drop(driver);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(served.effort_of(Duration::from_millis(200)).1, 0, "the VMM is gone");
}

#[test]
fn a_quiet_guest_costs_a_fraction_of_a_processor() {
    let served = Served::new("poll");
    let mut driver = Driver::attach(&served.path());
    driver.init_hca();
    driver.load();
    std::thread::sleep(Duration::from_millis(100));
    let (time, _) = served.effort_of(Duration::from_millis(500));
    assert!(time < Duration::from_millis(250), "{time:?} of 500 ms");
}

#[test]
fn messages_are_answered_while_the_device_polls() {
    let served = Served::new("poll");
    let mut driver = Driver::attach(&served.path());
    driver.init_hca();
    driver.load();
    let mut slowest = Duration::ZERO;
    for round in 0..200 {
        if round % 50 == 49 {
            // Long enough for the loop to take naps.
            std::thread::sleep(Duration::from_millis(40));
        }
        let start = Instant::now();
        driver.ok(&input(0x10a, 0, 16), 0x70);
        slowest = slowest.max(start.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}
