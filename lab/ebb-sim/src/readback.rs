//! Reading a dataset back with three copies, one, or one badly spread (DiskReduce, section 3 and figure 2).
//!
//! A job of one map for each block that reads it and does nothing else, on DiskReduce's cluster: 60 nodes of four disks
//! and 8 cores on 10 gigabit Ethernet.

use ebb_types::Result;
use serde::Serialize;

use crate::app::App;
use crate::cluster::{Cluster, DiskModel, Hardware, MIB, Placement};
use crate::job::JobOptions;
use crate::layout::InputLayout;
use crate::measure::{Case, Runner};
use crate::study::Study;

/// Block counts of the figure.
pub const BLOCKS: [usize; 4] = [10, 300, 1500, 6000];

/// Copies of the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Copies {
    /// Three on random nodes.
    Three,
    /// One, dealt evenly.
    OneUniform,
    /// Three on random nodes, of which a random one was left.
    OneSkewed,
}

impl Copies {
    /// Every way of keeping copies.
    pub const ALL: [Self; 3] = [Self::Three, Self::OneUniform, Self::OneSkewed];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Three => "three copies",
            Self::OneUniform => "one copy, uniform",
            Self::OneSkewed => "one copy, skewed",
        }
    }
}

/// Time to read a dataset.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Readback {
    /// Blocks of 64 MiB.
    pub blocks: usize,
    /// Their copies.
    pub copies: Copies,
    /// Mean seconds.
    pub seconds: f64,
    /// Over the time with three copies.
    pub normalized_time: f64,
    /// Share of maps that read a disk of their own node.
    pub local: f64,
}

/// DiskReduce's cluster: 7,200 rpm SATA disks of 1 TB, the ES.2's kind.
#[must_use]
pub fn cluster() -> Cluster {
    let base = Study::by_name("20-node").expect("it is one of ours").cluster;
    let hardware = Hardware { disk: DiskModel::ES2, heartbeat_secs: 3.0, ..base.hardware };
    Cluster { placement: Placement::Baseline, nodes: 60, node_disks: 4, node_gbps: 10.0, hardware, ..base }
}

/// Reads datasets of so many blocks back in all three ways.
///
/// # Errors
/// Invalid: a parameter is impossible.
pub fn readback(runner: &dyn Runner, cluster: &Cluster, blocks: &[usize], seeds: &[u64]) -> Result<Vec<Readback>> {
    let mut cases = Vec::new();
    for count in blocks {
        for copies in Copies::ALL {
            for seed in seeds {
                cases.push(case(cluster, *count, copies, *seed));
            }
        }
    }
    let reports = runner.run_all(&cases)?;
    let mut found: Vec<Readback> = Vec::new();
    for (index, chunk) in reports.chunks(seeds.len()).enumerate() {
        let (count, copies) = (blocks[index / Copies::ALL.len()], Copies::ALL[index % Copies::ALL.len()]);
        let seconds = chunk.iter().map(|report| report.seconds).sum::<f64>() / seeds.len() as f64;
        let local = chunk.iter().map(|report| report.local_maps).sum::<usize>();
        let three = if copies == Copies::Three { seconds } else { found[index - index % Copies::ALL.len()].seconds };
        found.push(Readback {
            blocks: count,
            copies,
            seconds,
            normalized_time: seconds / three,
            local: local as f64 / (count * seeds.len()) as f64,
        });
    }
    Ok(found)
}

fn case(cluster: &Cluster, blocks: usize, copies: Copies, seed: u64) -> Case {
    let app = App {
        name: "Read back".to_owned(),
        map_input_bytes: blocks as f64 * 64.0 * MIB,
        map_output_bytes: 0.0,
        reduce_output_bytes: 0.0,
        mappers: blocks,
        reducers: 0,
        map_cycles_per_byte: 0.0,
        reduce_cycles_per_byte: 0.0,
    };
    let input = match copies {
        Copies::Three => InputLayout::AsWritten,
        Copies::OneUniform => InputLayout::Dealt,
        Copies::OneSkewed => InputLayout::OneLeft,
    };
    Case { cluster: cluster.clone(), app, options: JobOptions { seed, input } }
}

#[cfg(test)]
mod tests;
