//! Objects of one kind by number.
//!
//! Every packet looks up its queue pair, keys and completion queue, so a look-up is three steps whatever the number of
//! objects: a directory of pages, a page of [`PAGE`] numbers, the object. A page exists while one of its numbers is in
//! use. The guest chooses which numbers stay in use, so a page is a few hundred bytes at most for each object, and the
//! directory is as long as the highest number that was ever handed out needs: 2 MiB for 24 bits.

use super::Entry;

/// Numbers in a page.
const PAGE: usize = 64;

#[derive(Debug)]
struct Page<T> {
    used: usize,
    slots: [Option<Box<Entry<T>>>; PAGE],
}

/// Objects of one kind by number.
#[derive(Debug)]
pub struct Table<T> {
    pages: Vec<Option<Box<Page<T>>>>,
    len: usize,
    first: u32,
    end: u32,
    next: u32,
    max: u32,
}

impl<T> Table<T> {
    /// A table that hands out the numbers `first..end`, at most `max` at a time.
    pub fn new(first: u32, end: u32, max: u32) -> Table<T> {
        assert!(first < end, "an object table without numbers");
        Table { pages: Vec::new(), len: 0, first, end, next: first, max: max.min(end - first) }
    }

    /// How many objects exist.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no object exists.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Page and slot of a number.
    #[inline]
    fn place(&self, id: u32) -> Option<(usize, usize)> {
        let index = id.checked_sub(self.first)? as usize;
        Some((index / PAGE, index % PAGE))
    }

    /// The object with this number.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Entry<T>> {
        let (page, slot) = self.place(id)?;
        self.pages.get(page)?.as_ref()?.slots[slot].as_deref()
    }

    /// The object with this number, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Entry<T>> {
        let (page, slot) = self.place(id)?;
        self.pages.get_mut(page)?.as_mut()?.slots[slot].as_deref_mut()
    }

    /// All objects in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Entry<T>)> {
        let first = self.first;
        let pages = self.pages.iter().enumerate().filter_map(|(at, page)| Some((at, page.as_ref()?)));
        pages.flat_map(move |(at, page)| {
            let slots = page.slots.iter().enumerate();
            slots.filter_map(move |(slot, entry)| Some((first + (at * PAGE + slot) as u32, entry.as_deref()?)))
        })
    }

    /// All objects in the order of their numbers, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Entry<T>)> {
        let first = self.first;
        let pages = self.pages.iter_mut().enumerate().filter_map(|(at, page)| Some((at, page.as_mut()?)));
        pages.flat_map(move |(at, page)| {
            let slots = page.slots.iter_mut().enumerate();
            slots.filter_map(move |(slot, entry)| Some((first + (at * PAGE + slot) as u32, entry.as_deref_mut()?)))
        })
    }

    /// The first object whose number is at least `id`.
    pub fn next_from(&self, id: u32) -> Option<(u32, &Entry<T>)> {
        let id = id.max(self.first);
        let (first_page, first_slot) = self.place(id)?;
        let pages = self.pages.get(first_page..)?.iter().zip(first_page..);
        let mut pages = pages.filter_map(|(page, at)| Some((page.as_ref()?, at)));
        pages.find_map(|(page, at)| {
            let skipped = if at == first_page { first_slot } else { 0 };
            let slot = page.slots[skipped..].iter().position(Option::is_some)? + skipped;
            Some((self.first + (at * PAGE + slot) as u32, page.slots[slot].as_deref()?))
        })
    }

    /// The next free number. Numbers are reused as late as possible, so that a stale number is noticed.
    pub(super) fn free_id(&self) -> Option<u32> {
        if self.len >= self.max as usize {
            return None;
        }
        self.vacant(self.next, self.end).or_else(|| self.vacant(self.first, self.next))
    }

    /// The lowest free number in `from..end`.
    fn vacant(&self, from: u32, end: u32) -> Option<u32> {
        let mut id = from;
        while id < end {
            let (page, slot) = self.place(id)?;
            let Some(Some(page)) = self.pages.get(page) else { return Some(id) };
            let free = if page.used == PAGE { None } else { page.slots[slot..].iter().position(Option::is_none) };
            if let Some(offset) = free {
                let found = id + offset as u32;
                return (found < end).then_some(found);
            }
            id = id.saturating_add((PAGE - slot) as u32);
        }
        None
    }

    /// Puts an object at a free number; the search for the next one begins behind it.
    pub(super) fn insert(&mut self, id: u32, entry: Entry<T>) {
        let Some((at, slot)) = self.place(id) else { return };
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, || None);
        }
        let page = self.pages[at].get_or_insert_with(|| Box::new(Page { used: 0, slots: [const { None }; PAGE] }));
        if page.slots[slot].replace(Box::new(entry)).is_none() {
            page.used += 1;
            self.len += 1;
        }
        self.next = if id + 1 < self.end { id + 1 } else { self.first };
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Entry<T>> {
        let (at, slot) = self.place(id)?;
        let place = self.pages.get_mut(at)?;
        let page = place.as_mut()?;
        let entry = page.slots[slot].take()?;
        page.used -= 1;
        if page.used == 0 {
            *place = None;
        }
        self.len -= 1;
        Some(*entry)
    }

    pub(super) fn clear(&mut self) {
        *self = Table::new(self.first, self.end, self.max);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entry(object: u32) -> Entry<u32> {
        Entry { object, uid: 0, refs: 0, deps: Vec::new(), charged: 0 }
    }

    /// The number that a table gives next: the lowest free one from the last on, else the lowest of all.
    fn free(model: &BTreeMap<u32, u32>, first: u32, end: u32, next: u32, max: usize) -> Option<u32> {
        let vacant = |mut range: std::ops::Range<u32>| range.find(|id| !model.contains_key(id));
        if model.len() >= max { None } else { vacant(next..end).or_else(|| vacant(first..next)) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_table_is_an_ordered_map_that_reuses_numbers_late(
            first in 0..3u32,
            size in prop_oneof![1..6u32, 60..140u32, Just(300)],
            max in 1..300u32,
            steps in prop::collection::vec((0..5u8, 0..310u32), 0..400),
        ) {
            let end = first + size;
            let mut table = Table::new(first, end, max);
            let (mut model, mut next) = (BTreeMap::new(), first);
            for (step, number) in steps {
                if step < 3 {
                    let id = table.free_id();
                    prop_assert_eq!(id, free(&model, first, end, next, max.min(size) as usize));
                    let Some(id) = id else { continue };
                    table.insert(id, entry(number));
                    model.insert(id, number);
                    next = if id + 1 < end { id + 1 } else { first };
                } else {
                    prop_assert_eq!(table.remove(number).map(|e| e.object), model.remove(&number));
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.get(number).map(|e| e.object), model.get(&number).copied());
                let following = model.range(number..).next().map(|(id, object)| (*id, *object));
                prop_assert_eq!(table.next_from(number).map(|(id, e)| (id, e.object)), following);
            }
            table.iter_mut().for_each(|(id, e)| e.object += id);
            model.iter_mut().for_each(|(id, object)| *object += id);
            let all: Vec<_> = table.iter().map(|(id, e)| (id, e.object)).collect();
            prop_assert_eq!(all, model.into_iter().collect::<Vec<_>>());
            let mut pages = table.pages.iter().flatten();
            prop_assert!(pages.all(|page| page.used == page.slots.iter().flatten().count() && page.used > 0));
            table.clear();
            prop_assert!(table.is_empty() && table.pages.is_empty() && table.get(first).is_none());
            prop_assert_eq!(table.free_id(), Some(first));
        }
    }

    #[test]
    fn numbers_outside_the_table_are_nobody() {
        let mut table = Table::new(0x40, 0x80, 10);
        table.insert(0x40, entry(1));
        for id in [0, 0x3f, 0x41, 0x80, u32::MAX] {
            assert!(table.get(id).is_none() && table.get_mut(id).is_none() && table.remove(id).is_none(), "{id:#x}");
        }
        assert_eq!(table.get(0x40).map(|e| e.object), Some(1));
    }
}
