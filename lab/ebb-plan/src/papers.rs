//! The papers' analytic figures and tables beside ours: a [`Section`] for each paper.
//!
//! Numbers that need a running cluster are not here; they are measured elsewhere.

pub mod blinkfs;
pub mod diskreduce;
pub mod rabbit;

use ebb_types::Result;

use crate::report::Section;

/// Name of a section and how it is made; making some takes seconds.
pub type Maker = (&'static str, fn() -> Result<Section>);

/// Every paper that this crate computes for.
pub const ALL: &[Maker] = &[
    ("Rabbit", rabbit::section),
    ("DiskReduce", diskreduce::section),
    ("BlinkFS", blinkfs::section),
    ("Metablocks", metablocks),
];

/// Nothing of this paper can be computed without a cluster; the page says so rather than leaving it out.
fn metablocks() -> Result<Section> {
    Ok(Section::new(
        "Metablocks: Cloud Analytics: Do We Really Need to Reinvent the Storage Stack?",
        &[
            "All numbers of this paper are times and network bytes of a running cluster (Table 1, Table 2, Figs. 1 and 2). No \
           formula gives them, so there is nothing to plan here; they are compared by measurement, both sides in one run.",
        ],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_close_or_explained() {
        for (name, make) in ALL {
            let section = make().unwrap();
            for row in &section.rows {
                let difference =
                    format!("{name}: {} {}: {} {}", row.source, row.quantity, row.paper.human(), row.ours.human());
                assert!(row.agrees() || !row.remark.is_empty(), "{difference}");
            }
        }
    }
}
