//! The RoCE address table: source addresses of RoCE packets by GID index (PRM "RoCE Address Table"; kernel
//! `lib/gid.c`, `infiniband/hw/mlx5/main.c:set_roce_addr`).

use crate::prm::vport::RoceAddrLayout;

/// `roce_l3_type`: IPv4.
pub const L3_IPV4: u32 = 0;
/// `roce_l3_type`: IPv6.
pub const L3_IPV6: u32 = 1;

/// Source addresses by GID index; an entry that is not set sends nothing and matches nothing.
#[derive(Debug, Default)]
pub struct RoceTable {
    entries: Vec<Option<RoceAddrLayout<Vec<u8>>>>,
}

impl RoceTable {
    /// A table of `size` empty entries.
    pub fn new(size: usize) -> RoceTable {
        RoceTable { entries: vec![None; size] }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table has no entries at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The address at a GID index, if one is set.
    pub fn get(&self, index: u32) -> Option<&RoceAddrLayout<Vec<u8>>> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// Sets or clears an entry; `false` if there is no such index.
    pub fn set(&mut self, index: u32, address: Option<RoceAddrLayout<Vec<u8>>>) -> bool {
        match self.entries.get_mut(index as usize) {
            Some(entry) => {
                *entry = address;
                true
            }
            None => false,
        }
    }

    /// The addresses that are set, with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &RoceAddrLayout<Vec<u8>>)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index as u32, entry.as_ref()?)))
    }
}
