//! The vendor-specific capability: a gateway to the device's address spaces (kernel `lib/pci_vsc.c`).
//!
//! Only the space of semaphores exists; the driver takes the software-reset semaphore there. The spaces that dumps
//! are read from do not, and the gateway says so.

/// Bytes of the capability.
pub const LEN: usize = 0x18;

const CTRL: usize = 0x4;
const COUNTER: usize = 0x8;
const SEMAPHORE: usize = 0xc;
const ADDRESS: usize = 0x10;
const DATA: usize = 0x14;

const SPACE_SEMAPHORES: u32 = 0xa;
const STATUS_SUPPORTED: u32 = 1 << 29;
const FLAG: u32 = 1 << 31;
const SYNDROME: u32 = 1 << 30;
const ADDRESS_MASK: u32 = SYNDROME - 1;
/// Semaphores in their space.
const SEMAPHORES: usize = 64;

/// The gateway's registers.
#[derive(Debug)]
pub struct Gateway {
    space: u32,
    counter: u32,
    owner: u32,
    address: u32,
    data: u32,
    semaphores: [u32; SEMAPHORES],
}

impl Default for Gateway {
    fn default() -> Gateway {
        Gateway { space: 0, counter: 1, owner: 0, address: 0, data: 0, semaphores: [0; SEMAPHORES] }
    }
}

impl Gateway {
    /// The registers as they stand in configuration space, from the start of the capability on.
    pub fn registers(&self) -> [(usize, u32); 5] {
        let supported = if self.space == SPACE_SEMAPHORES { STATUS_SUPPORTED } else { 0 };
        [
            (CTRL, supported | self.space),
            (COUNTER, self.counter),
            (SEMAPHORE, self.owner),
            (ADDRESS, self.address),
            (DATA, self.data),
        ]
    }

    /// Software wrote `value` to the register at `offset` of the capability.
    pub fn write(&mut self, offset: usize, value: u32) {
        // Every write makes the counter a ticket that nobody had before; 0 means "free" and is left out.
        self.counter = self.counter.checked_add(1).unwrap_or(1);
        match offset {
            CTRL => self.space = value & 0xffff,
            SEMAPHORE if self.owner == 0 || value == 0 => self.owner = value,
            DATA => self.data = value,
            ADDRESS => self.access(value),
            _ => {}
        }
    }

    fn access(&mut self, request: u32) {
        let at = request & ADDRESS_MASK;
        let slot = (self.space == SPACE_SEMAPHORES)
            .then(|| usize::try_from(at).ok().and_then(|at| self.semaphores.get_mut(at)))
            .flatten();
        let failed = if slot.is_none() { SYNDROME } else { 0 };
        if request & FLAG != 0 {
            if let Some(semaphore) = slot.filter(|semaphore| **semaphore == 0 || self.data == 0) {
                *semaphore = self.data;
            }
            self.address = at | failed; // the flag falls when a write is done
        } else {
            self.data = slot.map_or(0, |semaphore| *semaphore);
            self.address = at | failed | FLAG; // and rises when a read is done
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(gateway: &Gateway, offset: usize) -> u32 {
        gateway.registers().into_iter().find(|(at, _)| *at == offset).map_or(0, |(_, value)| value)
    }

    #[test]
    fn the_gateway_has_one_owner_at_a_time() {
        let mut gateway = Gateway::default();
        gateway.write(SEMAPHORE, 7);
        gateway.write(SEMAPHORE, 9);
        assert_eq!(read(&gateway, SEMAPHORE), 7);
        gateway.write(SEMAPHORE, 0);
        gateway.write(SEMAPHORE, 9);
        assert_eq!(read(&gateway, SEMAPHORE), 9);
    }

    #[test]
    fn a_semaphore_is_taken_by_the_first_ticket_and_freed_by_zero() {
        let mut gateway = Gateway::default();
        gateway.write(CTRL, SPACE_SEMAPHORES);
        assert_eq!(read(&gateway, CTRL), STATUS_SUPPORTED | SPACE_SEMAPHORES);
        let mut take = |ticket| {
            gateway.write(DATA, ticket);
            gateway.write(ADDRESS, 0x20 | FLAG);
            assert_eq!(read(&gateway, ADDRESS) & FLAG, 0);
            gateway.write(ADDRESS, 0x20);
            assert_eq!(read(&gateway, ADDRESS) & FLAG, FLAG);
            read(&gateway, DATA)
        };
        assert_eq!(take(5), 5);
        assert_eq!(take(6), 5);
        assert_eq!(take(0), 0);
        assert_eq!(take(6), 6);
    }

    #[test]
    fn spaces_and_addresses_that_do_not_exist_are_reported() {
        let mut gateway = Gateway::default();
        gateway.write(CTRL, 7);
        assert_eq!(read(&gateway, CTRL), 7);
        gateway.write(ADDRESS, 0);
        assert_eq!(read(&gateway, ADDRESS), FLAG | SYNDROME);
        gateway.write(CTRL, SPACE_SEMAPHORES);
        gateway.write(ADDRESS, 64 | FLAG);
        assert_eq!(read(&gateway, ADDRESS), 64 | SYNDROME);
    }
}
