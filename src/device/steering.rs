//! Flow steering: tables, groups of entries with one match mask, entries, and the roots that packets enter at (PRM
//! "Flow Table", "Flow Group", "Flow Table Entry"; kernel `fs_cmd.c`, `fs_core.c`).
//!
//! Tables, groups and entries are objects. A group depends on its table, an entry on its group and on everything
//! that it sends packets to or counts them in, a table on the table that its misses go to.
//!
//! A group keeps its entries by the masked words of their values, so that the entry for a packet is found in one
//! search however many there are.

pub mod packet;
pub mod walk;

use std::collections::BTreeMap;

use self::packet::MATCH_WORDS;
use super::objects::{Charged, Kind, ObjRef};
use crate::prm::flow::{FlowContext, FlowTableContext};
use crate::prm::values::{FlowDestType, FlowTableType, TableMissAction};

/// A flow table.
#[derive(Debug)]
pub struct FlowTable {
    /// What kind of traffic it steers.
    pub table_type: FlowTableType,
    /// Level, size, where misses go.
    pub context: FlowTableContext<Vec<u8>>,
    /// Last index and number of each group, by its first index.
    pub groups: BTreeMap<u32, (u32, u32)>,
    /// Entry objects by flow index; a packet matches the lowest one.
    pub entries: BTreeMap<u32, u32>,
}

impl FlowTable {
    /// An empty table.
    pub fn new(table_type: FlowTableType, context: FlowTableContext<Vec<u8>>) -> FlowTable {
        FlowTable { table_type, context, groups: BTreeMap::new(), entries: BTreeMap::new() }
    }

    /// Number of entries that it has room for.
    pub fn size(&self) -> u64 {
        1u64.checked_shl(self.context.log_size()).unwrap_or(u64::MAX)
    }

    /// The table that misses go to, if they go to one.
    pub fn miss_table(context: &FlowTableContext<impl AsRef<[u8]>>) -> Option<u32> {
        let forward = TableMissAction(context.table_miss_action() as u8) == TableMissAction::FWD;
        forward.then(|| context.table_miss_id())
    }

    /// What a table with this context depends on.
    pub fn deps(context: &FlowTableContext<impl AsRef<[u8]>>) -> Vec<ObjRef> {
        FlowTable::miss_table(context).into_iter().map(|id| ObjRef { kind: Kind::FlowTable, id }).collect()
    }

    /// Whether a group has one of the indices `first..=last`.
    pub fn has_group_in(&self, first: u32, last: u32) -> bool {
        self.groups.range(..=last).next_back().is_some_and(|(_, (end, _))| *end >= first)
    }
}

impl Charged for FlowTable {}

/// Bytes of match parameters.
pub const MATCH_BYTES: usize = 0x200;

/// A group of entries that match by the same mask.
#[derive(Debug)]
pub struct FlowGroup {
    /// Its table.
    pub table_id: u32,
    /// First index.
    pub first: u32,
    /// Last index.
    pub last: u32,
    /// Which parts of the mask count (`match_criteria_enable`).
    pub enabled: u8,
    /// The mask.
    pub criteria: Box<[u8; MATCH_BYTES]>,
    /// The words of the mask that are not 0.
    words: Vec<(usize, u32)>,
    /// Entry objects by flow index, by the values of these words.
    entries: BTreeMap<Box<[u32]>, BTreeMap<u32, u32>>,
}

impl FlowGroup {
    /// A group without entries; `criteria` are [`MATCH_BYTES`] long.
    pub fn new(table_id: u32, first: u32, last: u32, enabled: u8, criteria: &[u8]) -> FlowGroup {
        let mut mask = Box::new([0; MATCH_BYTES]);
        mask.iter_mut().zip(criteria).for_each(|(to, from)| *to = *from);
        let words = words(&mask[..]).enumerate().filter(|(_, word)| *word != 0).collect();
        FlowGroup { table_id, first, last, enabled, criteria: mask, words, entries: BTreeMap::new() }
    }

    /// The words of a match value that the mask looks at.
    fn key(&self, value: &[u8]) -> Box<[u32]> {
        let value: Vec<u32> = words(value).collect();
        self.words.iter().map(|(at, mask)| value.get(*at).unwrap_or(&0) & mask).collect()
    }

    /// An entry with this match value exists from now on.
    pub fn insert(&mut self, value: &[u8], index: u32, id: u32) {
        self.entries.entry(self.key(value)).or_default().insert(index, id);
    }

    /// An entry is gone.
    pub fn remove(&mut self, value: &[u8], index: u32) {
        let key = self.key(value);
        if let Some(same) = self.entries.get_mut(&key) {
            same.remove(&index);
            if same.is_empty() {
                self.entries.remove(&key);
            }
        }
    }

    /// The entry object with the lowest index that matches a packet. `key` is memory to work in.
    pub fn find(&self, packet: &[u32; MATCH_WORDS], key: &mut Vec<u32>) -> Option<u32> {
        key.clear();
        key.extend(self.words.iter().map(|(at, mask)| packet[*at] & mask));
        self.entries.get(&key[..])?.values().next().copied()
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
}

impl Charged for FlowGroup {
    fn extra(&self) -> u64 {
        MATCH_BYTES as u64
    }
}

/// Where an entry sends packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Another table.
    Table(u32),
    /// A transport interface for receiving.
    Tir(u32),
}

impl Destination {
    /// The destination as a dependency.
    pub fn object(self) -> ObjRef {
        match self {
            Destination::Table(id) => ObjRef { kind: Kind::FlowTable, id },
            Destination::Tir(id) => ObjRef { kind: Kind::Tir, id },
        }
    }

    /// `destination_type` and `destination_id`.
    pub fn encode(self) -> (FlowDestType, u32) {
        match self {
            Destination::Table(id) => (FlowDestType::FLOW_TABLE, id),
            Destination::Tir(id) => (FlowDestType::TIR, id),
        }
    }
}

/// An entry: what it matches and what it does.
#[derive(Debug)]
pub struct FlowEntry {
    /// Its table.
    pub table_id: u32,
    /// Its index there.
    pub index: u32,
    /// Match value, action, tag: the context without its lists.
    pub context: FlowContext<Vec<u8>>,
    /// Where packets go.
    pub destinations: Vec<Destination>,
    /// Flow counters that count them.
    pub counters: Vec<u32>,
}

impl FlowEntry {
    /// What the entry depends on.
    pub fn deps(&self) -> Vec<ObjRef> {
        let group = ObjRef { kind: Kind::FlowGroup, id: self.context.group_id() };
        let counters = self.counters.iter().map(|id| ObjRef { kind: Kind::FlowCounter, id: *id });
        [group].into_iter().chain(self.destinations.iter().map(|d| d.object())).chain(counters).collect()
    }
}

impl Charged for FlowEntry {
    fn extra(&self) -> u64 {
        (FlowContext::SIZE + 8 * (self.destinations.len() + self.counters.len())) as u64
    }
}

/// Where packets of each kind enter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    tables: BTreeMap<u8, u32>,
}

impl Roots {
    /// The table that packets of `table_type` enter at; without one they take the default way.
    pub fn get(&self, table_type: FlowTableType) -> Option<u32> {
        self.tables.get(&table_type.0).copied()
    }

    /// Makes a table the root of its type.
    pub fn set(&mut self, table_type: FlowTableType, table_id: u32) {
        self.tables.insert(table_type.0, table_id);
    }

    /// Leaves a type without a root.
    pub fn clear(&mut self, table_type: FlowTableType) {
        self.tables.remove(&table_type.0);
    }

    /// A table is gone; its type has no root if it was that.
    pub fn forget(&mut self, table_id: u32) {
        self.tables.retain(|_, root| *root != table_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_overlap_if_they_share_an_index() {
        let mut table = FlowTable::new(FlowTableType::NIC_RX, FlowTableContext::zeroed());
        table.groups.insert(4, (7, 1));
        table.groups.insert(10, (10, 2));
        let overlaps = [
            (0, 3, false),
            (0, 4, true),
            (7, 7, true),
            (5, 6, true),
            (8, 9, false),
            (8, 10, true),
            (11, 99, false),
            (0, u32::MAX, true),
        ];
        for (first, last, expected) in overlaps {
            assert_eq!(table.has_group_in(first, last), expected, "{first}..={last}");
        }
    }

    #[test]
    fn a_root_goes_with_its_table() {
        let mut roots = Roots::default();
        roots.set(FlowTableType::NIC_RX, 5);
        roots.set(FlowTableType::NIC_TX, 6);
        roots.forget(5);
        assert_eq!((roots.get(FlowTableType::NIC_RX), roots.get(FlowTableType::NIC_TX)), (None, Some(6)));
    }
}
