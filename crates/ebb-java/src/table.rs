//! Numbers for Java. They are not reused, so a number that was given back leads nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ebb_types::{Result, err};
use parking_lot::RwLock;

/// What Java holds by numbers.
pub(crate) struct Table<T> {
    what: &'static str,
    next: AtomicI64,
    rows: RwLock<BTreeMap<i64, Arc<T>>>,
}

impl<T> Table<T> {
    /// An empty table of `what`, in a sentence.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, next: AtomicI64::new(1), rows: RwLock::new(BTreeMap::new()) }
    }

    /// Keeps a value, and returns its number.
    pub(crate) fn put(&self, value: T) -> i64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.rows.write().insert(number, Arc::new(value));
        number
    }

    /// The value of a number.
    ///
    /// # Errors
    /// `Stale` for one that was given back, or never given.
    pub(crate) fn get(&self, number: i64) -> Result<Arc<T>> {
        self.rows.read().get(&number).cloned().ok_or_else(|| err!(Stale, "the {} is closed", self.what))
    }

    /// Forgets a number. None if it was given back before.
    pub(crate) fn remove(&self, number: i64) -> Option<Arc<T>> {
        self.rows.write().remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn a_number_that_was_given_back_leads_nowhere() {
        let table = Table::new("file");
        let (one, other) = (table.put("one"), table.put("other"));
        assert_eq!((*table.get(one).unwrap(), *table.get(other).unwrap()), ("one", "other"));
        assert!(table.remove(one).is_some() && table.remove(one).is_none());
        let error = table.get(one).unwrap_err();
        assert_eq!((error.kind(), error.detail()), (ErrorKind::Stale, "the file is closed"));
        assert!(table.put("third") > other, "numbers are not reused");
    }
}
