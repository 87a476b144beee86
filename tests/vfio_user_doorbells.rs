//! Doorbells over a real socket, trapped and polled: what the VMM may map, and what waiting for them costs.

mod common;

use std::fs;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use common::device::Device;
use common::driver::{Driver, input};
use cx10::sys::{Mapping, Protection};
use cx10::transport::layout::region;

/// Processor time of the device's loop, and how often it was woken.
fn effort(device: &Device) -> (Duration, u64) {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let task = tasks
        .map(|task| task.path())
        .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == device.thread()))
        .expect("the loop's thread");
    let nanoseconds = fs::read_to_string(task.join("schedstat")).unwrap();
    let nanoseconds = nanoseconds.split_whitespace().next().unwrap().parse().unwrap();
    let status = fs::read_to_string(task.join("status")).unwrap();
    let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    (Duration::from_nanos(nanoseconds), switches.trim().parse().unwrap())
}

/// What the loop did during `time`.
fn effort_of(device: &Device, time: Duration) -> (Duration, u64) {
    let before = effort(device);
    std::thread::sleep(time);
    let after = effort(device);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn trapped_doorbells_cost_no_wake_up_while_nothing_happens() {
    let device = Device::start(&["doorbells=trap"]);
    let mut driver = Driver::attach(&device.socket());
    assert_eq!(driver.client.region_info(region::BAR0).unwrap().flags, 3, "nothing to map");
    driver.init_hca();
    let _queues = driver.load();
    driver.ok(&input(0x800, 0, 16), 16);
    // The loop looks for the next request a little longer than it takes.
    std::thread::sleep(Duration::from_millis(20));
    let (time, wake_ups) = effort_of(&device, Duration::from_millis(400));
    assert_eq!(wake_ups, 0, "wake-ups, in {time:?} of processor time");
    assert!(time < Duration::from_millis(1), "{time:?}");
}

#[test]
fn the_doorbell_pages_can_be_mapped_and_nothing_else() {
    let device = Device::start(&["doorbells=poll"]);
    let mut driver = Driver::attach(&device.socket());
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
    let device = Device::start(&["doorbells=poll"]);
    let mut driver = Driver::attach(&device.socket());
    driver.init_hca();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(effort_of(&device, Duration::from_millis(200)).1, 0, "no doorbell page is in use yet");
    let own = driver.load();
    let (time, _) = effort_of(&device, Duration::from_millis(100));
    assert!(time > Duration::from_millis(2), "polls: {time:?}");
    driver.unload(own);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(effort_of(&device, Duration::from_millis(200)).1, 0, "every page is given back");
    driver.load();
    drop(driver);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(effort_of(&device, Duration::from_millis(200)).1, 0, "the VMM is gone");
}

#[test]
fn a_quiet_guest_costs_a_fraction_of_a_processor() {
    let device = Device::start(&["doorbells=poll"]);
    let mut driver = Driver::attach(&device.socket());
    driver.init_hca();
    driver.load();
    std::thread::sleep(Duration::from_millis(100));
    let (time, _) = effort_of(&device, Duration::from_millis(500));
    assert!(time < Duration::from_millis(250), "{time:?} of 500 ms");
}

#[test]
fn messages_are_answered_while_the_device_polls() {
    let device = Device::start(&["doorbells=poll"]);
    let mut driver = Driver::attach(&device.socket());
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
