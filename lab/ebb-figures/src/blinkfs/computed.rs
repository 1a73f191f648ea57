//! Availability, capacity, prices: figures that need no clock.

use ebb_plan::{Section, papers};
use ebb_types::Result;

use crate::part::{Lab, computed};

pub const SOURCES: &[&str] = &["Fig. 2", "Sec. 2.3", "Sec. 3.2", "Sec. 4.2", "Sec. 5", "Sec. 6.1"];

/// Where the planners' first figures stand in the paper; the others are run instead.
const FIGURES: [&str; 2] = ["Fig. 2", "Sec. 4.2"];

/// The planners' section without the figures that are run here.
pub fn section(_: &Lab<'_>) -> Result<Section> {
    let mut section = papers::blinkfs::section()?;
    section.figures.truncate(FIGURES.len());
    Ok(computed(section, "Table 2", &FIGURES))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::part::Effort;

    #[test]
    fn every_row_has_a_name_that_can_be_asked_for() {
        let lab = Lab { seed: 1, effort: Effort::Quick, jobs: NonZeroUsize::MIN, on_world: &|_| () };
        for row in section(&lab).unwrap().rows {
            assert!(SOURCES.contains(&row.source.as_str()), "{}", row.source);
            assert!(row.agrees() || !row.remark.is_empty(), "{}", row.quantity);
        }
    }
}
