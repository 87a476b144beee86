//! The keys that the device defines itself (PRM "Special Contexts"; kernel `mlx5_ib main.c`, `MLX5_TERMINATE_SCATTER_LIST_LKEY`).

use crate::device::capabilities::Capabilities;

/// First index that CREATE_MKEY hands out; below are the reserved keys.
pub const FIRST_INDEX: u32 = 0x10;

/// A key that exists without CREATE_MKEY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Ends a scatter list early; no memory can be reached through it. Its number is what drivers use that do not ask.
    TerminateScatterList,
    /// DMA addresses as they are, on queues that were created with `rlky`.
    Lkey,
    /// Reads give zeros, writes go nowhere.
    Null,
    /// Marks the head of a repeat block in a KLM list; no memory can be reached through it. Its number is what drivers
    /// use that do not ask (kernel `MLX5_STRIDE_BLOCK_OP`, rdma-core `umr_strided_seg_create`).
    Repeat,
    /// Like [`Reserved::Null`], for the unwanted parts of a packet.
    DumpFill,
}

impl Reserved {
    /// All of them.
    pub const ALL: [Reserved; 5] =
        [Reserved::TerminateScatterList, Reserved::Lkey, Reserved::Null, Reserved::Repeat, Reserved::DumpFill];

    /// The whole key.
    pub fn key(self) -> u32 {
        match self {
            Reserved::TerminateScatterList => 0x100,
            Reserved::Lkey => 0x200,
            Reserved::Null => 0x300,
            Reserved::Repeat => 0x400,
            Reserved::DumpFill => 0x500,
        }
    }

    /// Whether the capabilities announce it. The terminator, the reserved lkey and the mark of repeat blocks need no
    /// capability to be used.
    pub fn exists(self, caps: &Capabilities) -> bool {
        let field = match self {
            Reserved::TerminateScatterList => "terminate_scatter_list_mkey",
            Reserved::Lkey => return true,
            Reserved::Null => "null_mkey",
            Reserved::Repeat => "repeated_mkey",
            Reserved::DumpFill => "dump_fill_mkey",
        };
        caps.general(field) != 0
    }

    /// The reserved key with this number.
    pub fn find(key: u32) -> Option<Reserved> {
        if key >> 8 >= FIRST_INDEX {
            return None;
        }
        Reserved::ALL.into_iter().find(|reserved| reserved.key() == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_keys_lie_below_the_first_index_and_differ() {
        let keys: std::collections::BTreeSet<u32> = Reserved::ALL.map(Reserved::key).into();
        assert_eq!(keys.len(), Reserved::ALL.len());
        assert!(keys.iter().all(|key| (1..FIRST_INDEX).contains(&(key >> 8)) && key & 0xff == 0));
        assert_eq!(Reserved::find(0x300), Some(Reserved::Null));
        assert_eq!(Reserved::find(0x301), None);
    }
}
