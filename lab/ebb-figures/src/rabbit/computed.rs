//! Layouts, gears and degrees of power-proportionality: figures that need no clock.

use ebb_plan::{Section, papers};
use ebb_types::Result;

use crate::part::{Lab, computed};

pub const SOURCES: &[&str] = &[
    "Table 1", "Fig. 1b", "Fig. 2", "Sec. 2.1", "Eq. 1", "Sec. 3.2", "Sec. 3.3", "Sec. 3.5", "Fig. 3", "Fig. 5",
    "Fig. 8", "Fig. 9",
];

/// Where the planners' figures stand in the paper, in their order.
const FIGURES: [&str; 5] = ["Fig. 2", "Fig. 1b", "Table 1", "Fig. 5", "Fig. 8"];

/// The planners' section; arithmetic on the printed times of Table 3 is left out, for the times themselves are run.
pub fn section(_: &Lab<'_>) -> Result<Section> {
    Ok(computed(papers::rabbit::section()?, "Table 3", &FIGURES))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::part::Effort;

    #[test]
    fn every_row_and_figure_has_a_name_that_can_be_asked_for() {
        let lab = Lab { seed: 1, effort: Effort::Quick, jobs: NonZeroUsize::MIN, on_world: &|_| () };
        let section = section(&lab).unwrap();
        for row in &section.rows {
            assert!(SOURCES.contains(&row.source.as_str()), "{}", row.source);
            assert!(row.agrees() || !row.remark.is_empty(), "{}", row.quantity);
        }
        assert_eq!(section.figures.len(), FIGURES.len());
    }
}
