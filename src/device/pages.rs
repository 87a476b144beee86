//! Firmware pages: memory that the driver lends to the device (PRM QUERY_PAGES, MANAGE_PAGES; kernel
//! `pagealloc.c`).
//!
//! The device asks for pages before it starts, and again when its objects need more; it gives surplus pages back
//! and all of them after teardown. Every object is charged for the context memory that it takes, so what a guest
//! can make the device hold is bounded by what it lent. A command that lacks pages waits until they come
//! (`function/commands.rs`), which [`News`] tell.

use std::collections::BTreeSet;

use crate::cmdif::error::{CmdError, common, pages as syn};
use crate::prm::status::Status;

/// Bytes of one page.
pub const PAGE: u64 = 4096;
/// The most pages the device asks for or returns by one event.
const STEP: u64 = 512;

/// Most context memory of one object. No driver's object is near it; a command of a user for more must not make the
/// driver lend all the memory that it has.
const LARGEST: u64 = 256 << 20;

/// How many pages the device asks for before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Before initialization (QUERY_PAGES "boot").
    pub boot: u32,
    /// For initialization (QUERY_PAGES "init"); the spare part of them holds the first objects.
    pub init: u32,
}

/// The pages lent and how much of them is in use.
#[derive(Debug)]
pub struct Pages {
    demand: Demand,
    lent: BTreeSet<u64>,
    /// Context memory charged for objects.
    used: u64,
    /// Pages asked for by events and not given yet.
    requested: u64,
    /// Context memory that an object lacked: kept ready beyond the reserve until one is created or destroyed.
    lacking: u64,
    news: News,
    given_total: u64,
    returned_total: u64,
    lost_total: u64,
}

/// What has happened that a command which lacked pages should be tried anew for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Pages have come or objects have gone.
    pub changed: bool,
    /// The driver cannot give what it was asked for.
    pub refused: bool,
}

/// Totals for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounters {
    /// Pages ever given by the driver.
    pub given: u64,
    /// Pages returned to it.
    pub returned: u64,
    /// Pages forgotten by resets: the driver still owned them and frees them itself.
    pub reset: u64,
    /// Pages lent at present.
    pub lent: u64,
}

impl Pages {
    /// No pages yet.
    pub fn new(demand: Demand) -> Pages {
        Pages {
            demand,
            lent: BTreeSet::new(),
            used: 0,
            requested: 0,
            lacking: 0,
            news: News::default(),
            given_total: 0,
            returned_total: 0,
            lost_total: 0,
        }
    }

    /// Totals for the report.
    pub fn counters(&self) -> PageCounters {
        PageCounters {
            given: self.given_total,
            returned: self.returned_total,
            reset: self.lost_total,
            lent: self.lent.len() as u64,
        }
    }

    /// Pages still wanted before the boot stage is over.
    pub fn boot_deficit(&self) -> u32 {
        self.demand.boot.saturating_sub(self.lent_u32())
    }

    /// Pages still wanted before initialization.
    pub fn init_deficit(&self) -> u32 {
        self.demand.boot.saturating_add(self.demand.init).saturating_sub(self.lent_u32())
    }

    fn lent_u32(&self) -> u32 {
        u32::try_from(self.lent.len()).unwrap_or(u32::MAX)
    }

    fn capacity(&self) -> u64 {
        // The boot pages hold the device's own code and data; contexts live in the rest.
        (self.lent.len() as u64).saturating_sub(u64::from(self.demand.boot)) * PAGE
    }

    /// How many pages may be given at a time: as many as the device ever asks for at a time.
    pub fn most_at_a_time(&self) -> u32 {
        self.demand.boot.saturating_add(self.demand.init).max(8 * STEP as u32)
    }

    /// Takes the pages that the driver gives; all or none.
    pub fn give(&mut self, pages: &[u64]) -> Result<(), CmdError> {
        let mut fresh = BTreeSet::new();
        for page in pages {
            if page % PAGE != 0 || *page == 0 {
                return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::MISALIGNED));
            }
            if self.lent.contains(page) || !fresh.insert(*page) {
                return Err(CmdError::new(Status::BAD_PARAM_ERR, syn::ALREADY_GIVEN));
            }
        }
        self.requested = self.requested.saturating_sub(fresh.len() as u64);
        self.given_total += fresh.len() as u64;
        self.lent.append(&mut fresh);
        self.news.changed = true;
        Ok(())
    }

    /// The driver cannot give what was asked for: ask again when an object needs it.
    pub fn cannot_give(&mut self) {
        self.requested = 0;
        self.lacking = 0;
        self.news.refused = true;
    }

    /// What has happened since this was asked last.
    pub fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// Returns up to `count` pages that the device does not need, not too many at a time. `running`: only what is
    /// surplus to the objects.
    pub fn take(&mut self, count: u64, running: bool) -> Vec<u64> {
        let spare = if running { self.surplus() } else { self.lent.len() as u64 };
        let count = usize::try_from(count.min(spare).min(u64::from(self.most_at_a_time()))).unwrap_or(0);
        let taken: Vec<u64> = self.lent.iter().rev().take(count).copied().collect();
        for page in &taken {
            self.lent.remove(page);
        }
        self.returned_total += taken.len() as u64;
        taken
    }

    /// Forgets every page, as a reset does.
    pub fn reset(&mut self) {
        self.lost_total += self.lent.len() as u64;
        self.lent.clear();
        self.used = 0;
        self.requested = 0;
        self.lacking = 0;
        self.news = News::default();
    }

    /// Charges an object's context memory.
    pub fn charge(&mut self, bytes: u64) -> Result<(), CmdError> {
        if bytes > LARGEST {
            return Err(CmdError::new(Status::LIM_ERR, common::NO_ICM_PAGES));
        }
        let used = self.used.checked_add(bytes).ok_or(CmdError::new(Status::LIM_ERR, common::NO_ICM_PAGES))?;
        if used > self.capacity() {
            self.lacking = self.lacking.max(used - self.capacity());
            return Err(CmdError::new(Status::LIM_ERR, common::NO_ICM_PAGES));
        }
        self.used = used;
        self.lacking = self.lacking.saturating_sub(bytes);
        Ok(())
    }

    /// Whether more pages have been, or will be, asked for because an object did not fit.
    pub fn lacks(&self) -> bool {
        self.lacking > 0
    }

    /// Lets go of an object's context memory.
    pub fn refund(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used, "more refunded than charged");
        self.used = self.used.saturating_sub(bytes);
        self.lacking = 0;
        self.news.changed = true;
    }

    /// Context memory in use, in bytes.
    pub fn used(&self) -> u64 {
        self.used
    }

    fn reserve(&self) -> u64 {
        (u64::from(self.demand.init) * PAGE / 2).saturating_add(self.lacking)
    }

    fn surplus(&self) -> u64 {
        let keep = u64::from(self.demand.boot) + u64::from(self.demand.init);
        let free = self.capacity().saturating_sub(self.used.saturating_add(self.reserve())) / PAGE;
        free.min((self.lent.len() as u64).saturating_sub(keep))
    }

    /// What a page request event should ask for now: more pages (positive), fewer (negative) or nothing. The
    /// caller raises the event; positive requests are outstanding from here on.
    pub fn request(&mut self) -> Option<i32> {
        let free = self.capacity().saturating_sub(self.used);
        let wanted = self.reserve();
        if free < wanted && self.requested == 0 {
            let pages = (wanted - free).div_ceil(PAGE).min(STEP * 8).next_multiple_of(64);
            self.requested = pages;
            return i32::try_from(pages).ok();
        }
        let surplus = self.surplus();
        if self.requested == 0 && surplus >= 2 * STEP {
            return i32::try_from(surplus - STEP).ok().map(|pages| -pages);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Pages {
        Pages::new(Demand { boot: 4, init: 8 })
    }

    fn lend(pages: &mut Pages, range: std::ops::Range<u64>) {
        let list: Vec<u64> = range.map(|n| n * PAGE).collect();
        pages.give(&list).expect("fresh pages");
    }

    #[test]
    fn the_deficit_shrinks_as_pages_come() {
        let mut pages = pages();
        assert_eq!((pages.boot_deficit(), pages.init_deficit()), (4, 12));
        lend(&mut pages, 1..5);
        assert_eq!((pages.boot_deficit(), pages.init_deficit()), (0, 8));
    }

    #[test]
    fn a_page_cannot_be_given_twice_nor_misaligned() {
        let mut pages = pages();
        lend(&mut pages, 1..2);
        assert_eq!(pages.give(&[PAGE]).unwrap_err().syndrome, syn::ALREADY_GIVEN);
        assert_eq!(pages.give(&[2 * PAGE, 2 * PAGE]).unwrap_err().syndrome, syn::ALREADY_GIVEN);
        assert_eq!(pages.give(&[2 * PAGE + 8]).unwrap_err().syndrome, syn::MISALIGNED);
        assert_eq!(pages.give(&[0]).unwrap_err().syndrome, syn::MISALIGNED);
        assert_eq!(pages.counters().lent, 1);
    }

    #[test]
    fn objects_cannot_use_more_than_was_lent() {
        let mut pages = pages();
        lend(&mut pages, 1..13);
        assert_eq!(pages.charge(8 * PAGE), Ok(()));
        assert_eq!(pages.charge(1).unwrap_err().syndrome, common::NO_ICM_PAGES);
        pages.refund(8 * PAGE);
        assert_eq!(pages.charge(u64::MAX).unwrap_err().syndrome, common::NO_ICM_PAGES);
    }

    #[test]
    fn an_object_that_no_driver_would_make_is_refused_and_nothing_is_asked_for_it() {
        let mut pages = pages();
        lend(&mut pages, 1..1000);
        let before = pages.request();
        assert_eq!(pages.charge(LARGEST + 1).unwrap_err().syndrome, common::NO_ICM_PAGES);
        assert!(!pages.lacks());
        assert_eq!(pages.request(), before);
        pages.charge(LARGEST).unwrap_err();
        assert!(pages.lacks(), "the largest is waited for");
    }

    #[test]
    fn growth_is_requested_once_and_surplus_is_given_back() {
        let mut pages = pages();
        lend(&mut pages, 1..13);
        pages.charge(6 * PAGE).expect("room");
        assert_eq!(pages.request(), Some(64));
        assert_eq!(pages.request(), None);
        lend(&mut pages, 100..164);
        assert_eq!(pages.request(), None);
        lend(&mut pages, 1000..3000);
        pages.refund(6 * PAGE);
        let back = pages.request().expect("a surplus");
        assert!(back < 0);
        assert_eq!(pages.take(back.unsigned_abs().into(), true).len() as u64, u64::from(back.unsigned_abs()));
    }

    #[test]
    fn what_an_object_lacked_is_asked_for_until_it_fits() {
        let mut pages = pages();
        lend(&mut pages, 1..13);
        let large = 10_000 * PAGE;
        assert_eq!(pages.charge(large).unwrap_err().syndrome, common::NO_ICM_PAGES);
        let mut next = 1000;
        while let Some(count) = pages.request() {
            let count = u64::try_from(count).expect("a request, not a return");
            assert!(count <= STEP * 8, "in portions");
            lend(&mut pages, next..next + count);
            next += count;
        }
        assert_eq!(pages.charge(large), Ok(()));
    }

    #[test]
    fn a_driver_that_cannot_give_is_not_asked_again_for_the_same() {
        let mut pages = pages();
        lend(&mut pages, 1..13);
        pages.charge(1000 * PAGE).expect_err("no room");
        assert!(pages.request().is_some());
        pages.cannot_give();
        assert_eq!(pages.request(), None);
    }

    #[test]
    fn every_page_is_returned_after_teardown() {
        let mut pages = pages();
        lend(&mut pages, 1..13);
        assert_eq!(pages.take(5, false).len(), 5);
        assert_eq!(pages.take(u64::MAX, false).len(), 7);
        assert_eq!(pages.counters(), PageCounters { given: 12, returned: 12, reset: 0, lent: 0 });
    }
}
