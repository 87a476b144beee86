//! The way of a frame through flow tables, from a root to its destinations (PRM "Flow Table"; kernel `fs_core.c`).
//!
//! In a table the entry with the lowest index wins. Groups have disjoint ranges of indices and are tried in their
//! order, so that the first group with an entry for the frame decides. An entry that forwards to a table goes on
//! there; several destinations each get the frame. A frame that no entry takes goes where the table's misses go, or the
//! default way of the table type.
//!
//! Whatever a guest builds, a walk ends: after [`MAX_TABLES`] tables, [`MAX_LOOKUPS`] groups, [`MAX_TARGETS`]
//! destinations or [`MAX_COUNTERS`] counters the rest of the frame's way is cut off.

use super::packet::MATCH_WORDS;
use super::{Destination, FlowTable};
use crate::device::objects::Objects;
use crate::log_limit::limited;
use crate::prm::values::FlowAction;

/// Tables that a walk visits at most.
pub const MAX_TABLES: usize = 256;
/// Groups that a walk looks into at most.
pub const MAX_LOOKUPS: usize = 4096;
/// Interfaces that get a frame at most.
pub const MAX_TARGETS: usize = 256;
/// Counters that count a frame at most.
pub const MAX_COUNTERS: usize = 1024;

/// What a look into a group and a counter count for in a portion of work, in bytes.
const BYTES_PER_STEP: usize = 64;

/// An interface that gets the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The transport interface.
    pub tirn: u32,
    /// The last flow tag on the way there that is not 0.
    pub tag: u32,
}

/// Where a walk led. Its memory is used again by the next walk.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Interfaces that get the frame.
    pub targets: Vec<Target>,
    /// Flow counters that count it.
    pub counters: Vec<u32>,
    /// Whether an entry let the frame pass, or it took the default way.
    pub passed: bool,
    /// Whether the walk was cut off.
    pub cut: bool,
    /// Groups that were looked into.
    pub lookups: usize,
    /// Tables that are still to be visited, with the tag so far.
    ahead: Vec<(u32, u32)>,
    key: Vec<u32>,
}

impl Verdict {
    /// Walks from `root`; without one the frame takes the default way.
    pub fn walk(&mut self, objects: &Objects, root: Option<u32>, packet: &[u32; MATCH_WORDS]) {
        self.targets.clear();
        self.counters.clear();
        self.ahead.clear();
        (self.passed, self.cut, self.lookups) = (root.is_none(), false, 0);
        self.ahead.extend(root.map(|table_id| (table_id, 0)));
        let mut visited = 0;
        while let Some((table_id, tag)) = self.ahead.pop() {
            if visited == MAX_TABLES || self.cut {
                self.cut = true;
                return;
            }
            visited += 1;
            if let Some(table) = objects.flow_tables.get(table_id) {
                self.visit(objects, &table.object, tag, packet);
            }
        }
    }

    /// Counts a frame of `len` bytes in the counters on its way, and answers what the walk cost, in bytes.
    pub fn note(&self, objects: &mut Objects, len: usize) -> usize {
        for id in &self.counters {
            if let Some(counter) = objects.flow_counters.get_mut(*id) {
                counter.object.traffic.add(len);
            }
        }
        if self.cut {
            limited!(warn, target: "cx10::steering", "the way of a frame through the flow tables is too long");
        }
        (self.lookups + self.counters.len()) * BYTES_PER_STEP
    }

    fn visit(&mut self, objects: &Objects, table: &FlowTable, tag: u32, packet: &[u32; MATCH_WORDS]) {
        let Some(id) = self.find(objects, table, packet) else {
            match FlowTable::miss_table(&table.context) {
                Some(next) if !self.cut => self.ahead.push((next, tag)),
                None if !self.cut => self.passed = true,
                _ => {}
            }
            return;
        };
        let Some(entry) = objects.flow_entries.get(id).map(|entry| &entry.object) else { return };
        let tag = match entry.context.flow_tag() {
            0 => tag,
            own => own,
        };
        for counter in &entry.counters {
            if self.counters.len() == MAX_COUNTERS {
                self.cut = true;
                return;
            }
            self.counters.push(*counter);
        }
        let action = FlowAction::from_bits_retain(entry.context.action() as u16);
        if action.contains(FlowAction::DROP) {
            return;
        }
        if !action.contains(FlowAction::FWD_DEST) {
            self.passed = true;
            return;
        }
        // Tables are visited from the end of the list, so that the first destination comes first.
        for destination in entry.destinations.iter().rev() {
            if let Destination::Table(next) = destination {
                if self.ahead.len() == MAX_TABLES {
                    self.cut = true;
                    return;
                }
                self.ahead.push((*next, tag));
            }
        }
        for destination in &entry.destinations {
            if let Destination::Tir(tirn) = destination {
                if self.targets.len() == MAX_TARGETS {
                    self.cut = true;
                    return;
                }
                self.targets.push(Target { tirn: *tirn, tag });
            }
        }
    }

    /// The entry object that takes the frame.
    fn find(&mut self, objects: &Objects, table: &FlowTable, packet: &[u32; MATCH_WORDS]) -> Option<u32> {
        for (_, group_id) in table.groups.values() {
            if self.lookups == MAX_LOOKUPS {
                self.cut = true;
                return None;
            }
            self.lookups += 1;
            let Some(group) = objects.flow_groups.get(*group_id) else { continue };
            if let Some(id) = group.object.find(packet, &mut self.key) {
                return Some(id);
            }
        }
        None
    }
}
