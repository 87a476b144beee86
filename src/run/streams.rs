//! The host's ends of the virtio-serial ports.
//!
//! QEMU connects to listening sockets in the work directory. Each stream has a thread that ends with its stream; the one
//! that reads our standard input cannot be interrupted and is left to the end of the process.

use super::guest::Event;
use super::{RunError, at};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};

/// What the threads tell the supervisor.
#[derive(Debug)]
pub enum Message {
    /// The guest's agent said something.
    Guest(Event),
    /// The guest's agent said something that cannot be understood.
    Garbled(String),
    /// A line of the device's log.
    DeviceLog(String),
    /// The user left the shell with Ctrl-].
    Leave,
}

/// A line longer than this is not from our agent.
const MAX_LINE: u64 = 16 << 20;
/// Ctrl-], as in telnet and virsh.
const LEAVE: u8 = 0x1d;

/// Sockets that QEMU will connect to.
#[derive(Debug, Default)]
pub struct Listeners(BTreeMap<&'static str, UnixListener>);

impl Listeners {
    /// Listens at `path` for the port `name`.
    pub fn add(&mut self, name: &'static str, path: &Path) -> Result<(), RunError> {
        let listener = UnixListener::bind(path).map_err(at(path))?;
        listener.set_nonblocking(true).map_err(at(path))?;
        self.0.insert(name, listener);
        Ok(())
    }

    /// Takes the connections that are there; true once all are.
    pub fn accept(&mut self, streams: &mut BTreeMap<&'static str, UnixStream>) -> io::Result<bool> {
        for (name, listener) in &self.0 {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    streams.insert(name, stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        self.0.retain(|name, _| !streams.contains_key(name));
        Ok(self.0.is_empty())
    }
}

/// Reads the guest's JSON lines.
pub fn read_events(stream: UnixStream, messages: SyncSender<Message>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let message = match serde_json::from_slice(&line) {
                Ok(event) => Message::Guest(event),
                Err(error) => Message::Garbled(error.to_string()),
            };
            if messages.send(message).is_err() {
                return;
            }
        }
    })
}

/// Forwards a log line by line.
pub fn read_log(log: impl Read + Send + 'static, messages: SyncSender<Message>) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(log).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if messages.send(Message::DeviceLog(line)).is_err() {
                return;
            }
        }
    })
}

/// Copies what the guest writes. When our side cannot take more (a closed pipe), the stream is closed; the guest's agent sees
/// that and breaks the pipe of the command in turn.
pub fn copy_out(mut from: UnixStream, mut to: impl Write + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        loop {
            match from.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    if to.write_all(&buffer[..n]).and_then(|()| to.flush()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    })
}

/// Copies an input, normally our standard input, to the guest. Its end is passed on as a half-closed connection: closing it whole could lose
/// what QEMU has not read yet.
pub fn copy_in(mut from: impl Read + Send + 'static, mut to: UnixStream) {
    thread::spawn(move || {
        // An error in reading or writing ends the stream like an end of file.
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
        // The connection stays open until the process ends.
        std::mem::forget(to);
    });
}

/// Copies the keys of our terminal to the guest's, until Ctrl-].
pub fn copy_keys(mut to: UnixStream, messages: SyncSender<Message>) {
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = [0; 4096];
        while let Ok(n) = stdin.read(&mut buffer) {
            let keys = &buffer[..n];
            let leave = keys.contains(&LEAVE);
            let end = keys.iter().position(|k| *k == LEAVE).unwrap_or(n);
            if to.write_all(&keys[..end]).is_err() {
                return;
            }
            if leave || n == 0 {
                // If nobody listens any more, the run is over anyway.
                let _ = messages.send(Message::Leave);
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn lines_become_events_and_garbage_is_told() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (sender, receiver) = mpsc::sync_channel(8);
        let reader = read_events(ours, sender);
        theirs.write_all(b"{\"event\":\"stage\",\"name\":\"booted\"}\nnonsense\n").unwrap();
        drop(theirs);
        reader.join().unwrap();
        let got: Vec<_> = receiver.iter().collect();
        assert!(matches!(&got[0], Message::Guest(Event::Stage { name, .. }) if name == "booted"), "{got:?}");
        assert!(matches!(&got[1], Message::Garbled(_)), "{got:?}");
        assert_eq!(got.len(), 2);
    }

    #[test]
    fn output_is_copied_until_the_guest_closes_it() {
        #[derive(Clone, Default)]
        struct Sink(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl Write for Sink {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(data);
                Ok(data.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let sink = Sink::default();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let copier = copy_out(ours, sink.clone());
        let data: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        theirs.write_all(&data).unwrap();
        drop(theirs);
        copier.join().unwrap();
        assert!(*sink.0.lock().unwrap() == data);
    }

    #[test]
    fn connections_are_taken_as_they_come() {
        let dir = std::env::temp_dir().join(format!("cx10-streams-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut listeners = Listeners::default();
        for name in ["a", "b"] {
            listeners.add(name, &dir.join(name)).unwrap();
        }
        let mut streams = BTreeMap::new();
        assert!(!listeners.accept(&mut streams).unwrap());
        let _b = UnixStream::connect(dir.join("b")).unwrap();
        assert!(!listeners.accept(&mut streams).unwrap());
        let _a = UnixStream::connect(dir.join("a")).unwrap();
        assert!(listeners.accept(&mut streams).unwrap());
        assert_eq!(streams.keys().collect::<Vec<_>>(), [&"a", &"b"]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
