//! The string database: the formats of all messages, which the driver reads once and formats messages with itself.
//!
//! Formats take 32-bit numbers only, seven at most, as `%x`, `%u` and the like; anything else the kernel refuses
//! (`diag/fw_tracer.c:mlx5_tracer_validate_params`).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::cmdif;
use crate::prm::event::EventType;
use crate::prm::opcode::Opcode;

/// A part of the database: one address range.
#[derive(Debug)]
pub struct Section {
    /// Address of its first byte.
    pub base: u32,
    /// Texts, each ended by a zero; a multiple of 64 bytes.
    pub bytes: Vec<u8>,
}

/// Addresses by what they are for.
#[derive(Debug)]
pub struct Strings {
    /// The database.
    pub sections: [Section; 2],
    commands: BTreeMap<u16, (u32, u32)>,
    events: BTreeMap<u8, u32>,
    syndromes: BTreeMap<u32, u32>,
    pub(super) unknown_opcode: u32,
    pub(super) unknown_event: u32,
    pub(super) key_refused: u32,
    pub(super) dump_begin: u32,
    pub(super) dump_objects: u32,
    pub(super) dump_eq: u32,
    pub(super) dump_cq: u32,
    pub(super) dump_qp: u32,
    pub(super) dump_sq: u32,
    pub(super) dump_rq: u32,
    pub(super) dump_end: u32,
}

/// The database; it is the same for every function.
pub fn strings() -> &'static Strings {
    static STRINGS: OnceLock<Strings> = OnceLock::new();
    STRINGS.get_or_init(Strings::build)
}

/// The driver reads the database in parts of this size.
const GRANULE: usize = 64;

impl Section {
    /// A section whose first text is its title: an address that is the base itself finds no text.
    fn new(base: u32, title: &str) -> Section {
        let mut section = Section { base, bytes: Vec::new() };
        section.add(title);
        section
    }

    fn add(&mut self, text: &str) -> u32 {
        let at = self.base + self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        at
    }

    fn end(mut self) -> Section {
        self.bytes.resize(self.bytes.len().next_multiple_of(GRANULE), 0);
        self
    }
}

impl Strings {
    fn build() -> Strings {
        let mut messages = Section::new(0x1000_0000, "cx10 messages");
        let mut reasons = Section::new(0x2000_0000, "cx10 reasons");
        let commands = cmdif::implemented().map(|opcode| {
            let done = messages.add(&format!("{opcode} op_mod 0x%x uid 0x%x slot %u"));
            let refused = format!("{opcode} op_mod 0x%x uid 0x%x slot %u: status 0x%x, syndrome 0x%06x");
            (opcode.0, (done, messages.add(&refused)))
        });
        let commands = commands.collect();
        let events = EventType::ALL.iter().map(|(event, name)| {
            (event.0, messages.add(&format!("event {name} subtype 0x%x, data 0x%08x ... 0x%08x")))
        });
        let events = events.collect();
        let syndromes = cmdif::error::tables().flatten();
        let syndromes = syndromes.map(|(syndrome, text)| (syndrome.0, reasons.add(&text.replace('%', "%%")))).collect();
        Strings {
            commands,
            events,
            syndromes,
            unknown_opcode: messages.add("opcode 0x%x op_mod 0x%x uid 0x%x slot %u: status 0x%x, syndrome 0x%06x"),
            unknown_event: messages.add("event type 0x%x subtype 0x%x, data 0x%08x ... 0x%08x"),
            key_refused: messages.add("UMR: the key is refused, syndrome 0x%06x"),
            dump_begin: messages.add("core dump: interface step %u, %u pages lent, %u events lost"),
            dump_objects: messages.add("EQs %u, CQs %u, QPs %u, SQs %u, RQs %u, memory keys %u"),
            dump_eq: messages.add("EQ 0x%x: state 0x%x, status 0x%x, producer 0x%x, consumer 0x%x"),
            dump_cq: messages.add("CQ 0x%x: EQ 0x%x, healthy %u, %u entries"),
            dump_qp: messages.add("QP 0x%x: state %u, service %u, remote QP 0x%x, PD 0x%x"),
            dump_sq: messages.add("SQ 0x%x: state %u, executed %u, waiting %u"),
            dump_rq: messages.add("RQ 0x%x: state %u, consumed %u, posted %u"),
            dump_end: messages.add("core dump ends"),
            sections: [messages.end(), reasons.end()],
        }
    }

    /// The format of a command that succeeded: modifier, uid, slot.
    pub(super) fn command(&self, opcode: Opcode) -> u32 {
        self.commands.get(&opcode.0).map_or(self.unknown_opcode, |(done, _)| *done)
    }

    /// The format of a command that failed: modifier, uid, slot, status, syndrome.
    pub(super) fn refused(&self, opcode: Opcode) -> Option<u32> {
        self.commands.get(&opcode.0).map(|(_, refused)| *refused)
    }

    /// The text of a syndrome.
    pub(super) fn syndrome(&self, syndrome: u32) -> Option<u32> {
        self.syndromes.get(&syndrome).copied()
    }

    /// The format of an event: subtype, first and last dword of its data.
    pub(super) fn event(&self, event_type: u8) -> Option<u32> {
        self.events.get(&event_type).copied()
    }

    /// The text at an address.
    pub fn text(&self, address: u32) -> Option<&str> {
        let section = self
            .sections
            .iter()
            .find(|section| address.checked_sub(section.base).is_some_and(|at| (at as usize) < section.bytes.len()))?;
        let bytes = &section.bytes[(address - section.base) as usize..];
        std::str::from_utf8(bytes.split(|byte| *byte == 0).next()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel judges them (`fw_tracer.c:mlx5_is_valid_spec`, `TRACER_MAX_PARAMS`, `TRACE_STR_MSG`).
    #[test]
    fn the_driver_can_format_every_text() {
        for section in &strings().sections {
            assert_eq!(section.bytes.len() % GRANULE, 0);
            assert!(section.bytes.len() < 1 << 24);
            for text in section.bytes.split(|byte| *byte == 0) {
                let text = std::str::from_utf8(text).expect("ASCII");
                assert!(text.len() < 200 && text.is_ascii(), "{text}");
                let mut params = 0;
                let mut rest = text;
                while let Some(at) = rest.find('%') {
                    rest = rest[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit() || "#.l".contains(c));
                    assert!(rest.starts_with(|c| "xXdiuc%".contains(c)), "{text}");
                    params += u32::from(!rest.starts_with('%'));
                    rest = &rest[1..];
                }
                assert!(params <= 7, "{text}");
            }
        }
    }

    #[test]
    fn every_reason_is_there() {
        let strings = strings();
        let at = strings.syndrome(0x23_0001).expect("a strong key is refused by it");
        assert_eq!(strings.text(at), cmdif::error::meaning(0x23_0001));
        assert!(strings.text(strings.command(Opcode::CREATE_MKEY)).unwrap().starts_with("CREATE_MKEY "));
        assert_eq!(strings.command(Opcode(0xffff)), strings.unknown_opcode);
    }
}
