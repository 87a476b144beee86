//! Typed object tables with reference counts.
//!
//! Every object of the command interface lives in one [`Table`]. An object names the objects that it depends on;
//! those cannot be destroyed while it lives. Objects belong to a user context (`uid`): a command with a uid may
//! only use its own objects and those that the driver shares (uid 0xffff, `MLX5_SHARED_RESOURCE_UID`); uid 0 is
//! the driver itself and may use all.

mod table;

use std::collections::BTreeMap;

use super::counters::{FlowCounter, QCounter};
use super::cq::CompletionQueue;
use super::devx::{Umem, UserContext};
use super::eq::EventQueue;
use super::memic::MemicRange;
use super::pages::Pages;
use super::pd::{ProtectionDomain, TransportDomain, XrcDomain};
use super::qp::QueuePair;
use super::rq::{ReceiveQueue, RqTable, Tir};
use super::sq::{SendQueue, Tis};
use super::srq::{Rmp, Srq, XrcSrq};
use super::steering::{FlowEntry, FlowGroup, FlowTable};
use super::uar::Uar;
use crate::cmdif::error::{CmdError, objects as syn};
use crate::mkey::MemoryKey;
use crate::prm::status::Status;

pub use table::Table;

/// The uid of objects that every user context may use.
pub const SHARED_UID: u16 = 0xffff;

/// A reference to an object of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjRef {
    /// Which table.
    pub kind: Kind,
    /// The object's number in it.
    pub id: u32,
}

/// A table entry: the object and who uses it.
#[derive(Debug)]
pub struct Entry<T> {
    /// The object.
    pub object: T,
    /// The user context that owns it; 0 is the driver.
    pub uid: u16,
    refs: u32,
    deps: Vec<ObjRef>,
    charged: u64,
}

impl<T> Entry<T> {
    /// How many objects depend on this one.
    pub fn refs(&self) -> u32 {
        self.refs
    }

    /// The objects that this one depends on.
    pub fn deps(&self) -> &[ObjRef] {
        &self.deps
    }
}

/// An object that lives in one of the tables of [`Objects`].
pub trait Object: Charged + Sized {
    /// Its kind.
    const KIND: Kind;
    /// Its table.
    fn table(objects: &Objects) -> &Table<Self>;
    /// Its table, to change it.
    fn table_mut(objects: &mut Objects) -> &mut Table<Self>;
}

/// Context memory of the object that is not the same for all of its kind, in bytes: translation entries, lists.
pub trait Charged {
    /// Bytes beyond the fixed context.
    fn extra(&self) -> u64 {
        0
    }
}

/// Context memory of one object, in bytes; about what a real part takes for its context and its share of the
/// tables that lead to it.
pub const CONTEXT_BYTES: u64 = 256;

macro_rules! objects {
    ($($field:ident: $type:ty = $kind:ident, $first:literal .. $end:literal;)*) => {
        /// Kinds of objects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the names are the PRM's")]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            /// Every kind, in the order of the numbers that `as` gives.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];
        }

        /// All object tables of the function.
        #[derive(Debug)]
        pub struct Objects {
            /// The memory that the driver lent; every object is charged for its context.
            pub pages: Pages,
            /// How many objects each uid owns.
            owned: BTreeMap<u16, u64>,
            $(#[doc = concat!("Objects of kind `", stringify!($kind), "`.")] pub $field: Table<$type>,)*
        }

        $(impl Object for $type {
            const KIND: Kind = Kind::$kind;
            fn table(objects: &Objects) -> &Table<Self> {
                &objects.$field
            }
            fn table_mut(objects: &mut Objects) -> &mut Table<Self> {
                &mut objects.$field
            }
        })*

        impl Objects {
            /// Empty tables; `max` gives the number of objects of a kind that the capabilities allow.
            pub fn new(pages: Pages, max: impl Fn(Kind) -> u32) -> Objects {
                Objects { pages, owned: BTreeMap::new(), $($field: Table::new($first, $end, max(Kind::$kind)),)* }
            }

            /// Forgets every object, as a teardown does.
            pub fn clear(&mut self) {
                $(
                    let charged = self.$field.iter().map(|(_, entry)| entry.charged).sum();
                    self.pages.refund(charged);
                    self.$field.clear();
                )*
                self.owned.clear();
            }

            /// How many objects of each kind exist; kinds without any are left out.
            pub fn census(&self) -> BTreeMap<Kind, usize> {
                let mut census = BTreeMap::new();
                $(if !self.$field.is_empty() {
                    census.insert(Kind::$kind, self.$field.len());
                })*
                census
            }

            /// Every object that `uid` owns.
            pub fn owned_by(&self, uid: u16) -> Vec<ObjRef> {
                let mut owned = Vec::new();
                $(owned.extend(self.$field.iter().filter(|(_, e)| e.uid == uid)
                    .map(|(id, _)| ObjRef { kind: Kind::$kind, id }));)*
                owned
            }

            /// Compares every reference count with the dependencies that exist. Answers what all objects together are
            /// charged, or what does not agree.
            pub(super) fn audit(&self) -> Result<u64, String> {
                let mut wanted = BTreeMap::new();
                let mut charged = 0;
                $(for (_, entry) in self.$field.iter() {
                    charged += entry.charged;
                    entry.deps.iter().for_each(|dep| *wanted.entry(*dep).or_insert(0) += 1);
                })*
                $(for (id, entry) in self.$field.iter() {
                    let count = wanted.remove(&ObjRef { kind: Kind::$kind, id }).unwrap_or(0);
                    if entry.refs != count {
                        return Err(format!("{:?} {id:#x} has {} references, counted {count}", Kind::$kind, entry.refs));
                    }
                })*
                if let Some(dep) = wanted.keys().next() {
                    return Err(format!("an object depends on {dep:?}, which does not exist"));
                }
                Ok(charged)
            }

            fn head(&mut self, object: ObjRef) -> Option<(u16, &mut u32)> {
                match object.kind {
                    $(Kind::$kind => self.$field.get_mut(object.id).map(|e| (e.uid, &mut e.refs)),)*
                }
            }
        }
    };
}

/// Whether a command with `uid` may use an object of `owner`. The shared uid is the driver's too: it creates what
/// every user context may use (kernel `eq.c:create_map_eq`), from objects of its own.
pub fn may_use(uid: u16, owner: u16) -> bool {
    uid == 0 || uid == SHARED_UID || owner == uid || owner == SHARED_UID
}

impl Objects {
    /// Creates an object that depends on `deps` and returns its number.
    pub fn create<T: Object>(&mut self, uid: u16, object: T, deps: &[ObjRef]) -> Result<u32, CmdError> {
        let id = T::table(self).free_id().ok_or(CmdError::new(Status::LIM_ERR, syn::TABLE_FULL))?;
        self.create_at(id, uid, object, deps)?;
        Ok(id)
    }

    fn create_at<T: Object>(&mut self, id: u32, uid: u16, object: T, deps: &[ObjRef]) -> Result<(), CmdError> {
        let charged = CONTEXT_BYTES.saturating_add(object.extra());
        self.acquire(uid, deps)?;
        if let Err(error) = self.pages.charge(charged) {
            self.release(deps);
            return Err(error);
        }
        let entry = Entry { object, uid, refs: 0, deps: deps.to_vec(), charged };
        T::table_mut(self).insert(id, entry);
        self.use_uars(ObjRef { kind: T::KIND, id }, deps);
        *self.owned.entry(uid).or_default() += 1;
        Ok(())
    }

    /// How many objects `uid` owns.
    pub fn owned_count(&self, uid: u16) -> u64 {
        self.owned.get(&uid).copied().unwrap_or(0)
    }

    /// The object `id`, if it exists and `uid` may use it.
    pub fn get<T: Object>(&self, uid: u16, id: u32) -> Result<&T, CmdError> {
        self.entry::<T>(uid, id).map(|entry| &entry.object)
    }

    /// The table entry of `id`, if it exists and `uid` may use it.
    pub fn entry<T: Object>(&self, uid: u16, id: u32) -> Result<&Entry<T>, CmdError> {
        let entry = T::table(self).get(id).ok_or(CmdError::new(Status::BAD_RES_ERR, syn::NO_SUCH_OBJECT))?;
        if !may_use(uid, entry.uid) {
            return Err(CmdError::new(Status::BAD_RES_ERR, syn::NOT_OWNER));
        }
        Ok(entry)
    }

    /// The object `id`, to change it, if it exists and `uid` may use it.
    pub fn get_mut<T: Object>(&mut self, uid: u16, id: u32) -> Result<&mut T, CmdError> {
        self.entry::<T>(uid, id)?;
        T::table_mut(self)
            .get_mut(id)
            .map(|entry| &mut entry.object)
            .ok_or(CmdError::new(Status::BAD_RES_ERR, syn::NO_SUCH_OBJECT))
    }

    /// Destroys the object `id` and lets go of what it depends on; refused while others depend on it.
    pub fn destroy<T: Object>(&mut self, uid: u16, id: u32) -> Result<T, CmdError> {
        if self.entry::<T>(uid, id)?.refs > 0 {
            return Err(CmdError::new(Status::BAD_RES_STATE_ERR, syn::IN_USE));
        }
        let entry = T::table_mut(self).remove(id).ok_or(CmdError::new(Status::BAD_RES_ERR, syn::NO_SUCH_OBJECT))?;
        self.leave_uars(ObjRef { kind: T::KIND, id }, &entry.deps);
        self.release(&entry.deps);
        self.pages.refund(entry.charged);
        if let Some(owned) = self.owned.get_mut(&entry.uid) {
            *owned -= 1;
            if *owned == 0 {
                self.owned.remove(&entry.uid);
            }
        }
        Ok(entry.object)
    }

    /// Destroys the UAR page `id`. Completion queues do not hold it: they stay, without doorbells. The driver frees the
    /// page of a user's object without a look at who uses it, ignores the status and does not try again, so that a refusal
    /// would leave the page behind (kernel `mlx5_ib main.c:mlx5_ib_mmap_free`).
    pub fn destroy_uar(&mut self, uid: u16, id: u32) -> Result<(), CmdError> {
        let page = self.entry::<Uar>(uid, id)?;
        let queues: Vec<ObjRef> = page.object.users.iter().filter(|user| user.kind == Kind::Cq).copied().collect();
        if page.refs as usize == queues.len() {
            let dep = ObjRef { kind: Kind::Uar, id };
            for queue in queues {
                if let Some(entry) = self.cqs.get_mut(queue.id) {
                    entry.deps.retain(|other| *other != dep);
                }
                self.leave_uars(queue, &[dep]);
                self.release(&[dep]);
            }
        }
        self.destroy::<Uar>(uid, id).map(|_| ())
    }

    /// Replaces what the object `id` depends on, as a modify command does. On error nothing has changed.
    pub fn depend<T: Object>(&mut self, uid: u16, id: u32, deps: &[ObjRef]) -> Result<(), CmdError> {
        self.entry::<T>(uid, id)?;
        self.acquire(uid, deps)?;
        let old = match T::table_mut(self).get_mut(id) {
            Some(entry) => std::mem::replace(&mut entry.deps, deps.to_vec()),
            None => deps.to_vec(),
        };
        self.leave_uars(ObjRef { kind: T::KIND, id }, &old);
        self.use_uars(ObjRef { kind: T::KIND, id }, deps);
        self.release(&old);
        Ok(())
    }

    /// Lets the object `id` depend on `to` instead of `from`, as a work request does that moves a key to another domain.
    /// On error nothing has changed. Allocates nothing.
    pub fn redirect<T: Object>(&mut self, uid: u16, id: u32, from: ObjRef, to: ObjRef) -> Result<(), CmdError> {
        self.entry::<T>(uid, id)?;
        self.acquire(uid, &[to])?;
        let dep = T::table_mut(self).get_mut(id).and_then(|entry| entry.deps.iter_mut().find(|dep| **dep == from));
        let old = match dep {
            Some(dep) => std::mem::replace(dep, to),
            None => to,
        };
        self.release(&[old]);
        Ok(())
    }

    /// Charges the object `id` for `extra` bytes beyond its context from now on, as a resize does.
    pub fn recharge<T: Object>(&mut self, uid: u16, id: u32, extra: u64) -> Result<(), CmdError> {
        let old = self.entry::<T>(uid, id)?.charged;
        let new = CONTEXT_BYTES.saturating_add(extra);
        if new > old {
            self.pages.charge(new - old)?;
        } else {
            self.pages.refund(old - new);
        }
        if let Some(entry) = T::table_mut(self).get_mut(id) {
            entry.charged = new;
        }
        Ok(())
    }

    /// Notes that the doorbells of `user` come through the UAR page among `deps`.
    fn use_uars(&mut self, user: ObjRef, deps: &[ObjRef]) {
        for page in deps.iter().filter(|dep| dep.kind == Kind::Uar) {
            if let Some(entry) = self.uars.get_mut(page.id) {
                entry.object.users.insert(user);
            }
        }
    }

    fn leave_uars(&mut self, user: ObjRef, deps: &[ObjRef]) {
        for page in deps.iter().filter(|dep| dep.kind == Kind::Uar) {
            if let Some(entry) = self.uars.get_mut(page.id) {
                entry.object.users.remove(&user);
            }
        }
    }

    /// Counts one more user of each of `deps`, or of none if one is missing.
    fn acquire(&mut self, uid: u16, deps: &[ObjRef]) -> Result<(), CmdError> {
        for (taken, dep) in deps.iter().enumerate() {
            let error = match self.head(*dep) {
                Some((owner, refs)) if may_use(uid, owner) => {
                    *refs += 1;
                    continue;
                }
                Some(_) => CmdError::new(Status::BAD_RES_ERR, syn::DEPENDENCY_NOT_OWNED),
                None => CmdError::new(Status::BAD_RES_ERR, syn::NO_SUCH_DEPENDENCY),
            };
            self.release(&deps[..taken]);
            return Err(error);
        }
        Ok(())
    }

    fn release(&mut self, deps: &[ObjRef]) {
        for dep in deps {
            match self.head(*dep) {
                Some((_, refs)) if *refs > 0 => *refs -= 1,
                _ => debug_assert!(false, "released {dep:?}, which nobody holds"),
            }
        }
    }
}

objects! {
    // The pages below hold registers and the MSI-X structures, those beyond device memory.
    uars: Uar = Uar, 16 .. 4096;
    eqs: EventQueue = Eq, 1 .. 256;
    cqs: CompletionQueue = Cq, 1 .. 0x100_0000;
    uctxs: UserContext = Uctx, 1 .. 0xfffe;
    pds: ProtectionDomain = Pd, 1 .. 0x100_0000;
    transport_domains: TransportDomain = TransportDomain, 1 .. 0x100_0000;
    xrcds: XrcDomain = Xrcd, 1 .. 0x100_0000;
    umems: Umem = Umem, 1 .. 0x100_0000;
    q_counters: QCounter = QCounter, 1 .. 0x100;
    flow_counters: FlowCounter = FlowCounter, 1 .. 0x100_0000;
    qps: QueuePair = Qp, 0x40 .. 0x40_0000;
    rmps: Rmp = Rmp, 0x1 .. 0x40_0000;
    xrc_srqs: XrcSrq = XrcSrq, 0x40_0000 .. 0x80_0000;
    srqs: Srq = Srq, 0x80_0000 .. 0xc0_0000;
    tises: Tis = Tis, 1 .. 0x100_0000;
    tirs: Tir = Tir, 1 .. 0x100_0000;
    rq_tables: RqTable = RqTable, 1 .. 0x100_0000;
    // Doorbells, completions and events name a queue pair, a receive queue or a send queue by number alone: the
    // numbers of queue pairs lie below those of the other two.
    rqs: ReceiveQueue = Rq, 0x40_0000 .. 0x80_0000;
    sqs: SendQueue = Sq, 0x80_0000 .. 0x100_0000;
    memics: MemicRange = Memic, 1 .. 0x1_0000;
    flow_tables: FlowTable = FlowTable, 1 .. 0x100_0000;
    flow_groups: FlowGroup = FlowGroup, 1 .. 0x100_0000;
    flow_entries: FlowEntry = FlowEntry, 1 .. 0x100_0000;
    mkeys: MemoryKey = Mkey, 0x10 .. 0x100_0000;
}
