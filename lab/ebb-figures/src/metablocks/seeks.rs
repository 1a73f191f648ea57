//! Sequential reads on disks that seek, in virtual time.
//!
//! The paper's disks lose time where one block ends and the next one begins elsewhere (Table 2, sequential reads). The disk
//! of a virtual machine does not show that. Here the same reader reads from modelled disks, with and without seeks.

use std::time::Duration;

use ebb_plan::{Cell, Comparison, Section, Table};
use ebb_power::PolicyKind;
use ebb_types::Result;

use super::{BONNIE, LARGE, META, SMALL, Setting};
use crate::part::Lab;
use crate::testbed::{self, Layout};

/// Of a file.
const FILE_BYTES: u64 = 256 << 20;
/// Of each read.
const READ: u64 = 128 << 10;
/// Of the reader.
const CACHE_BYTES: usize = 64 << 20;
/// Block servers, and how long their disks seek, in milliseconds. A SATA disk takes about 12 with half a turn.
const DISKS: [(u32, u64); 5] = [(1, 0), (1, 12), (1, 33), (4, 0), (4, 12)];

/// MB/s of one reader from one end of a file to the other.
fn speed(setting: Setting, (servers, seek_ms): (u32, u64), seed: u64) -> Result<f64> {
    let block_bytes = setting.geometry.block_size;
    let metablock_blocks = (setting.geometry.metablock_size / block_bytes) as u32;
    let blocks = (FILE_BYTES / block_bytes) as u32;
    let one_copy = Layout { replicas: 1, ..Layout::RANDOM };
    let bed = testbed::Setting {
        scale: 1,
        block_bytes,
        metablock_blocks,
        files: 1,
        blocks_per_file: blocks,
        seek: Duration::from_millis(seek_ms),
        ..testbed::Setting::of(servers, PolicyKind::AlwaysOn, one_copy, blocks)
    };
    testbed::on(seed, bed, |bed| async move {
        let user = bed.caching_user("reader", CACHE_BYTES, setting.prefetch).await?;
        let began = bed.world.now();
        for at in (0..FILE_BYTES).step_by(READ as usize) {
            user.client.read(user.handles[0], at, READ as u32).await?;
        }
        Ok(FILE_BYTES as f64 / 1e6 / (bed.world.now() - began).as_secs_f64())
    })
}

/// The speeds, and their ratios beside the paper's.
pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let cases: Vec<(Setting, (u32, u64))> =
        DISKS.iter().flat_map(|disks| BONNIE.map(|setting| (setting, *disks))).collect();
    let seen = lab.map(&cases, |(setting, disks)| speed(*setting, *disks, lab.seed))?;
    let of = |setting, disks| cases.iter().position(|case| *case == (setting, disks)).map_or(f64::NAN, |at| seen[at]);
    let mut section = Section::new("", &[]);
    let columns = [
        ("servers", "servers"),
        ("seek_ms", "seek, ms"),
        ("small", "small, MB/s"),
        ("large", "large"),
        ("metablocks", "metablocks"),
        ("large_ratio", "large, of small"),
        ("metablocks_ratio", "metablocks, of small"),
    ];
    let mut table = Table::new("Sequential reads from modelled disks", &columns);
    for disks in DISKS {
        let [small, large, metablocks] = BONNIE.map(|setting| of(setting, disks));
        table.row(vec![
            Cell::Count(disks.0.into()),
            Cell::Count(disks.1),
            Cell::Number(small, 0),
            Cell::Number(large, 0),
            Cell::Number(metablocks, 0),
            Cell::Number(large / small, 2),
            Cell::Number(metablocks / small, 2),
        ]);
    }
    section.tables.push(table);
    let ratio = |setting, disks| of(setting, disks) / of(SMALL, disks);
    for (setting, printed) in [(LARGE, 2.29), (META, 1.19)] {
        let why = format!(
            "One server whose disk seeks for 12 ms, as a SATA disk does. Without seeks {:.2}; with four servers {:.2}, for a \
             window then comes from several disks at a time.",
            ratio(setting, (1, 0)),
            ratio(setting, (4, 12))
        );
        section.rows.push(
            Comparison::new(
                "Table 2",
                format!("sequential reads on {}, of small blocks, modelled disks", setting.name),
                Cell::Number(printed, 2),
                Cell::Number(ratio(setting, (1, 12)), 2),
                why,
            )
            .bound(ratio(setting, (1, 12)) > 1.0),
        );
    }
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small blocks lie apart, so a disk that seeks costs them more.
    #[test]
    fn seeks_cost_small_blocks_more_than_large_ones() {
        let of = |setting, seek_ms| speed(setting, (1, seek_ms), 7).unwrap();
        let (small, large) = (of(SMALL, 0) / of(SMALL, 12), of(LARGE, 0) / of(LARGE, 12));
        assert!(small > large && large > 1.0, "{small} {large}");
    }
}
