//! A client that has a file open keeps it, and others do not, in every state; every seeded bug is found.

use super::{Bounds, Mutant, Opens};
use crate::explore::{holds_and_reaches, is_found};

#[test]
fn open_files_exist_and_closed_nameless_ones_are_freed() {
    holds_and_reaches("opens", Opens::new(Bounds::ALL), &[]);
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Opens::with(*mutant));
    }
}
