//! The event loop: idleness, timers, ends, and one client after the other.

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::client::Client;
use common::serve::Served;
use common::toy::{self, Toy};
use cx10::engine::{self, Error, Exit, Options, Stop};
use cx10::transport::layout::region;
use vmm_sys_util::tempdir::TempDir;

/// Processor time of a thread of this process, by name.
fn thread_time(name: &str) -> Duration {
    let tasks = fs::read_dir("/proc/self/task").expect("tasks").flatten();
    let ticks: u64 = tasks
        .filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .map(|task| {
            let stat = fs::read_to_string(task.path().join("schedstat")).expect("schedstat");
            stat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).expect("run time")
        })
        .sum();
    Duration::from_nanos(ticks)
}

#[test]
fn an_idle_loop_uses_no_processor_time() {
    let dir = TempDir::new_with_prefix("/tmp/cx10-engine").unwrap();
    let path = dir.as_path().join("s");
    let stop = Stop::new().unwrap();
    let thread = std::thread::Builder::new().name("idle-loop".into());
    let handle = thread
        .spawn({
            let (path, stop) = (path.clone(), stop.clone());
            move || engine::serve(&path, &mut Toy::new(), &Options::default(), &stop)
        })
        .unwrap();
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut client = Client::negotiated(&path);
    client.expect_silence();
    let before = thread_time("idle-loop");
    std::thread::sleep(Duration::from_millis(500));
    let used = thread_time("idle-loop") - before;
    assert!(used < Duration::from_millis(2), "{used:?} while idle");
    client.expect_silence();
    stop.stop();
    assert_eq!(handle.join().unwrap().unwrap(), Exit::Stopped);
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn a_deadline_of_the_device_is_met_and_only_once() {
    let served = Served::new(Toy::new());
    let mut client = served.client();
    client.post_write(region::BAR0, toy::TIMER, &20_000u32.to_le_bytes());
    assert_eq!(client.bar_read32(toy::TICKS), 0);
    let end = Instant::now() + Duration::from_secs(5);
    while client.bar_read32(toy::TICKS) == 0 {
        assert!(Instant::now() < end, "the deadline was never met");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.bar_read32(toy::TICKS), 1);
}

#[test]
fn a_deadline_is_met_without_any_message() {
    let served = Served::new(Toy::new());
    let mut client = served.client();
    client.post_write(region::BAR0, toy::TIMER, &10_000u32.to_le_bytes());
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(client.bar_read32(toy::TICKS), 1);
}

#[test]
fn a_busy_device_is_called_until_it_is_done_and_the_client_is_served_meanwhile() {
    let served = Served::new(Toy::new());
    let mut client = served.client();
    client.bar_write32(toy::BUSY, 100_000);
    assert!(client.bar_read32(toy::BUSY) > 0, "the read is answered while the device is busy");
    let end = Instant::now() + Duration::from_secs(20);
    while client.bar_read32(toy::BUSY) > 0 {
        assert!(Instant::now() < end, "the device is not called any more");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (device, _, _) = served.stop();
    assert!(device.runs >= 100_000, "called {} times", device.runs);
}

#[test]
fn once_ends_with_the_first_client() {
    let mut served = Served::with(Toy::new(), Options { once: true, ..Options::default() });
    served.client().expect_silence();
    let (_, exit, stats) = served.join();
    assert_eq!((exit, stats.clients), (Exit::ClientLeft, 1));
    assert!(!served.path().exists());
}

#[test]
fn a_path_that_is_in_use_is_an_error_with_its_name() {
    let served = Served::new(Toy::new());
    let stop = Stop::new().unwrap();
    let error = engine::serve(&served.path(), &mut Toy::new(), &Options::default(), &stop).unwrap_err();
    assert!(matches!(&error, Error::Listen { path, .. } if *path == served.path()));
    assert!(error.to_string().contains("cx10.sock"), "{error}");
    served.client().expect_silence();
}

#[test]
fn a_client_that_is_connected_is_disconnected_by_stop() {
    let served = Served::new(Toy::new());
    let record = {
        let mut client = served.client();
        client.expect_silence();
        let path = served.path();
        let (device, exit, _) = served.stop();
        assert_eq!(exit, Exit::Stopped);
        client.expect_closed();
        assert!(!path.exists());
        device.record()
    };
    assert!(record.take().contains(&toy::Call::Reset));
}
