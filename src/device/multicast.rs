//! Multicast groups: which queue pairs receive what is sent to a group (PRM "Multicast Group"; kernel `qp.c:
//! mlx5_ib_mcg_attach`, `cmd.c:mlx5_cmd_attach_mcg`).

use std::collections::{BTreeMap, BTreeSet};

/// Context memory of one membership, in bytes.
pub const MEMBER_BYTES: u64 = 128;

/// A group's address.
pub type Gid = [u8; 16];

/// Why a queue pair cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// It is attached already.
    Attached,
    /// The group has as many members as `max_qp_mcg` allows.
    GroupFull,
    /// There are as many groups as `log_max_mcg` allows.
    TooManyGroups,
}

/// All groups with members.
#[derive(Debug, Default)]
pub struct Groups(BTreeMap<Gid, BTreeSet<u32>>);

impl Groups {
    /// Attaches a queue pair.
    pub fn attach(&mut self, gid: Gid, qpn: u32, max_members: u64, max_groups: u64) -> Result<(), AttachError> {
        if let Some(members) = self.0.get_mut(&gid) {
            if members.contains(&qpn) {
                return Err(AttachError::Attached);
            }
            if members.len() as u64 >= max_members {
                return Err(AttachError::GroupFull);
            }
            members.insert(qpn);
            return Ok(());
        }
        if self.0.len() as u64 >= max_groups {
            return Err(AttachError::TooManyGroups);
        }
        self.0.insert(gid, BTreeSet::from([qpn]));
        Ok(())
    }

    /// Detaches a queue pair; `false` if it is not attached.
    pub fn detach(&mut self, gid: &Gid, qpn: u32) -> bool {
        let Some(members) = self.0.get_mut(gid) else { return false };
        let removed = members.remove(&qpn);
        if members.is_empty() {
            self.0.remove(gid);
        }
        removed
    }

    /// The first member of a group with at least this number.
    pub fn next_member(&self, gid: &Gid, from: u32) -> Option<u32> {
        self.0.get(gid)?.range(from..).next().copied()
    }

    /// The queue pairs of a group, in the order of their numbers.
    pub fn members(&self, gid: &Gid) -> impl Iterator<Item = u32> {
        self.0.get(gid).into_iter().flatten().copied()
    }

    /// How many groups have members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many memberships there are in all groups.
    pub fn memberships(&self) -> u64 {
        self.0.values().map(|members| members.len() as u64).sum()
    }

    /// Whether no group has members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all groups.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Whether `gid` addresses a group: an IPv6 one, or an IPv4 one in its mapped form.
pub fn is_multicast(gid: &Gid) -> bool {
    let mapped = gid[..10] == [0; 10] && gid[10..12] == [0xff; 2];
    gid[0] == 0xff || mapped && gid[12] >> 4 == 0xe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_their_members_are_bounded() {
        let mut groups = Groups::default();
        assert_eq!(groups.attach([1; 16], 7, 2, 2), Ok(()));
        assert_eq!(groups.attach([1; 16], 7, 2, 2), Err(AttachError::Attached));
        assert_eq!(groups.attach([1; 16], 5, 2, 2), Ok(()));
        assert_eq!(groups.attach([1; 16], 6, 2, 2), Err(AttachError::GroupFull));
        assert_eq!(groups.attach([2; 16], 7, 2, 2), Ok(()));
        assert_eq!(groups.attach([3; 16], 7, 2, 2), Err(AttachError::TooManyGroups));
        assert_eq!(groups.members(&[1; 16]).collect::<Vec<_>>(), [5, 7]);
        assert!(groups.detach(&[2; 16], 7) && !groups.detach(&[2; 16], 7));
        assert_eq!(groups.len(), 1);
    }

    #[test]
    fn groups_are_told_from_single_addresses() {
        let mapped = |first| {
            let mut gid = [0; 16];
            gid[10..12].fill(0xff);
            gid[12] = first;
            gid
        };
        assert!(is_multicast(&[0xff; 16]) && is_multicast(&mapped(224)) && is_multicast(&mapped(239)));
        assert!(!is_multicast(&[0xfe; 16]) && !is_multicast(&mapped(240)) && !is_multicast(&mapped(10)));
        assert!(!is_multicast(&[0; 16]));
    }
}
