//! A signal ends the event loop cleanly.
//!
//! Signals are blocked by thread, and the usual test harness has threads of its own, so this program has none: it
//! starts itself again as the server and sends signals to that process.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::client::Client;
use common::toy::Toy;
use cx10::engine::{self, Exit, Options, Stop};
use vmm_sys_util::tempdir::TempDir;

const CHILD: &str = "CX10_TEST_SOCKET";

fn main() {
    if let Some(path) = std::env::var_os(CHILD) {
        child_serves_until_a_signal(Path::new(&path));
    }
    for signal in [libc::SIGTERM, libc::SIGINT] {
        for connected in [true, false] {
            a_signal_ends_the_loop_and_removes_the_socket(signal, connected);
            println!("signal {signal}, client connected: {connected} ... ok");
        }
    }
}

fn child_serves_until_a_signal(path: &Path) -> ! {
    let stop = Stop::on_signals(&[libc::SIGTERM, libc::SIGINT]).unwrap();
    let exit = engine::serve(path, &mut Toy::new(), &Options::default(), &stop).unwrap();
    let Exit::Signal(signal) = exit else { panic!("{exit:?}") };
    std::process::exit(100 + signal);
}

fn a_signal_ends_the_loop_and_removes_the_socket(signal: i32, connected: bool) {
    let dir = TempDir::new_with_prefix("/tmp/cx10-signals").unwrap();
    let path = dir.as_path().join("s");
    let exe = std::env::current_exe().unwrap();
    let mut child = Command::new(exe).env(CHILD, &path).stdout(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while !path.exists() {
        assert!(Instant::now() < end, "the child does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let client = connected.then(|| Client::negotiated(&path));
    let killed = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(100 + signal), None));
    assert!(!path.exists(), "the socket is removed");
    if let Some(mut client) = client {
        client.expect_closed();
    }
}
