//! An older handle changes nothing after a takeover, in every state; every seeded bug is found.

use super::{Bounds, Mutant, Takeovers};
use crate::explore::{holds_and_reaches, is_found};

#[test]
fn older_handles_write_no_more_and_fresh_ones_do() {
    holds_and_reaches("takeovers", Takeovers::new(Bounds::ALL), &[]);
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        is_found(&format!("{mutant:?}"), Takeovers::with(*mutant));
    }
}
