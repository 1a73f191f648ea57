//! Extra copies keep the promises to readers in every state; every seeded bug is found.

use super::{Bounds, Extras, Mutant};
use crate::explore::{holds_and_reaches, is_found};

#[test]
fn extra_copies_come_and_go_and_no_read_is_stale() {
    holds_and_reaches("extras", Extras::new(Bounds::ALL), &[]);
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Extras::with(*mutant));
    }
}
