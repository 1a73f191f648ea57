//! D7: bytes lost a year by the planner's chain, with the paper's times and with those that D5 has measured.

use std::time::Duration;

use ebb_plan::raid::Scheme;
use ebb_plan::raid::reliability::{Inputs, loss};
use ebb_plan::{Cell, Comparison, Mark, Section, papers, plots};
use ebb_types::Result;

const COPIES: Scheme = Scheme::Copies(3);
const CODE: Scheme = Scheme::Code { data: 8, check: 2 };
/// The paper's time until a failure is noticed, in seconds.
const DETECTION_S: f64 = 600.0;
const SIZES: [f64; 3] = [80e12, 310e12, 10e15];

/// How a cluster of the lab detects and repairs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// Disks that took part.
    pub disks: u32,
    /// From a node's death until repair begins.
    pub detection: Duration,
    /// Bytes that all disks together read and wrote for it.
    pub cluster_bytes_per_s: f64,
}

impl Measured {
    fn per_disk(self) -> f64 {
        self.cluster_bytes_per_s / f64::from(self.disks)
    }

    /// The chain's input if each further disk repairs as fast, as in the paper.
    fn inputs(self, user_bytes: f64) -> Inputs {
        let paper = Inputs::paper(user_bytes, self.detection.as_secs_f64());
        Inputs { repair_bytes_per_s: self.per_disk(), ..paper }
    }

    /// The same if further disks make repair no faster.
    fn inputs_at_most(self, user_bytes: f64, scheme: Scheme) -> Inputs {
        let inputs = self.inputs(user_bytes);
        let disks = loss(&inputs, scheme).disks.max(f64::from(self.disks));
        Inputs { repair_bytes_per_s: self.cluster_bytes_per_s / disks, ..inputs }
    }
}

/// Adds rows and figure.
pub fn add(section: &mut Section, copies: Measured, code: Measured) -> Result<()> {
    let computed = papers::diskreduce::section()?;
    let is_chain = |row: &Comparison| row.source.starts_with("Fig. 3");
    section
        .rows
        .extend(computed.rows.into_iter().filter(is_chain).map(|row| Comparison { source: "D7".to_owned(), ..row }));
    for (scheme, measured) in [(COPIES, copies), (CODE, code)] {
        let mbs = measured.per_disk() / 1e6;
        section.rows.push(
            Comparison::new(
                "D7",
                format!("{scheme}: read and written for repair by each disk (MB/s)"),
                Cell::Number(25.0, 0),
                Cell::Number(mbs, 1),
                format!(
                    "{} nodes of a disk each in D5, detection {:.0} s; not all of them repair at a time.",
                    measured.disks,
                    measured.detection.as_secs_f64()
                ),
            )
            .bound(mbs >= 25.0),
        );
        for size in SIZES {
            rows(section, scheme, measured, size);
        }
    }
    section.figures.push(figure(copies, code));
    Ok(())
}

fn rows(section: &mut Section, scheme: Scheme, measured: Measured, size: f64) {
    let paper = loss(&Inputs::paper(size, DETECTION_S), scheme).bytes_lost_per_year;
    let ours = loss(&measured.inputs(size), scheme).bytes_lost_per_year;
    let at_most = loss(&measured.inputs_at_most(size, scheme), scheme);
    let why = format!(
        "Beside it the same chain with ten minutes and 25 MB/s. Ours with detection and rate of D5, if every disk helps. If repair is no \
         faster than on {} disks: {}, as a disk takes {:.1} h.{}",
        measured.disks,
        Cell::Bytes(at_most.bytes_lost_per_year).human(),
        at_most.repair_s / 3600.0,
        if scheme == CODE { " A second loss is repaired at once here, which the chain does not know." } else { "" },
    );
    let quantity = format!("{scheme}, {}: lost a year as measured here", Cell::Bytes(size).human());
    section.rows.push(
        Comparison::new("D7", quantity, Cell::Bytes(paper), Cell::Bytes(ours), why)
            .judged(ours <= paper * 1.02, format!("x {:.4}", ours / paper)),
    );
}

fn figure(copies: Measured, code: Measured) -> ebb_plan::Figure {
    let (from, to) = (SIZES[0], SIZES[SIZES.len() - 1]);
    let mut figure = plots::loss_curves(&Inputs::paper(1e15, DETECTION_S), &[COPIES, CODE], from, to);
    figure.title = format!("D7: {}", figure.title);
    for (scheme, measured) in [(COPIES, copies), (CODE, code)] {
        let sizes: Vec<f64> = (0..=60).map(|step| from * (to / from).powf(f64::from(step) / 60.0)).collect();
        let point = |inputs: Inputs| (inputs.user_bytes, loss(&inputs, scheme).bytes_lost_per_year);
        let helped = sizes.iter().map(|size| point(measured.inputs(*size))).collect();
        figure = figure.with(format!("{scheme}, measured"), Mark::Dashed, helped);
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_times_give_the_paper_s_bytes() {
        let paper = Measured { disks: 100, detection: Duration::from_secs(600), cluster_bytes_per_s: 25e6 * 100.0 };
        let of = |scheme| loss(&paper.inputs(10e15), scheme).bytes_lost_per_year;
        assert!((of(COPIES) / 87.0 - 1.0).abs() < 0.02 && (of(CODE) / 3.3e3 - 1.0).abs() < 0.02);
        let slower = loss(&paper.inputs_at_most(10e15, CODE), CODE).bytes_lost_per_year;
        assert!(slower > 10.0 * of(CODE), "a hundred disks for fifteen thousand: {slower}");
    }
}
