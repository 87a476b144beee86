//! MSI-X: an interrupt is a message on the bus, and here are the eventfds that the VMM hands out, one for each vector.
//!
//! The vector table itself lives in the VMM: masking never reaches the function, and a masked vector that is
//! signalled stays pending there.
//!
//! A VMM that passes a blocking eventfd and fills its counter between look-up and write can stop this process,
//! which serves that VMM alone at that time.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use crate::sys;

/// Signals vectors.
#[derive(Debug)]
pub struct Interrupts {
    vectors: Vec<Option<File>>,
    raised: u64,
    lost: u64,
}

impl Interrupts {
    /// `count` vectors, none connected.
    pub fn new(count: u16) -> Interrupts {
        Interrupts { vectors: (0..count).map(|_| None).collect(), raised: 0, lost: 0 }
    }

    /// Number of vectors.
    pub fn count(&self) -> u32 {
        self.vectors.len() as u32
    }

    /// Connects `vector` to an eventfd, or disconnects it. Returns whether the vector exists.
    pub fn connect(&mut self, vector: u32, eventfd: Option<File>) -> bool {
        match self.vectors.get_mut(vector as usize) {
            Some(slot) => {
                *slot = eventfd;
                true
            }
            None => false,
        }
    }

    /// Disconnects every vector.
    pub fn disconnect_all(&mut self) {
        self.vectors.iter_mut().for_each(|slot| *slot = None);
    }

    /// Whether a vector is connected.
    pub fn connected(&self, vector: u32) -> bool {
        self.vectors.get(vector as usize).is_some_and(Option::is_some)
    }

    /// How many interrupts were signalled, and how many had nowhere to go.
    pub fn counters(&self) -> (u64, u64) {
        (self.raised, self.lost)
    }

    /// Signals `vector`.
    pub fn raise(&mut self, vector: u32) {
        let sent = match self.vectors.get_mut(vector as usize) {
            // A full counter is an interrupt that is pending already, and a write to it could wait.
            Some(Some(eventfd)) if !sys::is_writable(eventfd.as_fd()) => true,
            Some(Some(eventfd)) => eventfd.write_all(&1u64.to_ne_bytes()).is_ok(),
            _ => false,
        };
        if sent {
            self.raised += 1;
        } else {
            self.lost += 1;
            log::debug!(target: "cx10::irq", "vector {vector} is not connected");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_raised_vector_reaches_its_eventfd_and_no_other() {
        let mut irq = Interrupts::new(2);
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        assert!(irq.connect(1, Some(File::from(std::os::fd::OwnedFd::from(writer)))));
        irq.raise(0);
        irq.raise(1);
        irq.raise(7);
        assert_eq!(irq.counters(), (1, 2));
        let mut value = [0; 8];
        reader.read_exact(&mut value).expect("eight bytes");
        assert_eq!(u64::from_ne_bytes(value), 1);
    }

    #[test]
    fn a_vector_beyond_the_table_cannot_be_connected() {
        assert!(!Interrupts::new(4).connect(4, None));
    }
}
