//! Figs. 7 and 9 and the cost of one small read: speed at full power.

use std::time::Duration;

use ebb_client::Access;
use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_power::PolicyKind;
use ebb_types::Result;

use crate::drive::{read_in_a_loop, write_whole};
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

pub const SOURCES: &[&str] = &["Fig. 7", "Fig. 9", "Sec. 6.1 read"];

/// One copy, as in the paper.
const fn setting(nodes: u32, scale: u64, block_bytes: u64, blocks: u32) -> Setting {
    Setting { scale, block_bytes, ..Setting::of(nodes, PolicyKind::AlwaysOn, Layout::balanced(1), blocks) }
}

/// MB/s of one reader that reads blocks of this many KiB one after the other.
fn one_reader(kib: u64, seed: u64) -> Result<f64> {
    // Not to scale: a block server sends large blocks in pieces, and small ones in one.
    let setting = setting(1, 1, kib << 10, 16);
    on(seed, setting, |bed| async move {
        let user = bed.user("user", Some(Access::Read)).await?;
        let mean = read_in_a_loop(&bed, &user, Duration::from_secs(3)).await.mean().unwrap_or(f64::NAN);
        Ok((setting.block_bytes * setting.scale) as f64 / 1e6 / mean)
    })
}

/// MB/s of writers, three for each block server, that write blocks and make them safe.
fn writers(servers: u32, seed: u64, blocks: u32) -> Result<f64> {
    let setting = setting(servers, 64, 64 << 10, blocks * servers);
    on(seed, setting, |bed| async move {
        let mut users = Vec::new();
        for number in 1..=servers * 3 {
            users.push(bed.user(&format!("writer{number}"), None).await?);
        }
        let took = write_whole(&bed, &users).await?;
        Ok(setting.bytes() as f64 / 1e6 / took.as_secs_f64())
    })
}

/// Mean latency of random reads of 128 KiB, in ms.
fn small_read(seed: u64) -> Result<f64> {
    on(seed, setting(1, 1, 128 << 10, 64), |bed| async move {
        let user = bed.user("user", Some(Access::Read)).await?;
        let mean = read_in_a_loop(&bed, &user, Duration::from_secs(2)).await.mean().unwrap_or(f64::NAN);
        Ok(mean * 1e3)
    })
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let (sizes, servers, blocks) = lab.effort.of(
        (&[64, 256, 1_024, 4_096, 16_384][..], &[1, 2, 3, 5, 7, 9][..], 96),
        (&[64, 4_096, 16_384][..], &[1, 3][..], 48),
    );
    let reads = lab.map(sizes, |kib| one_reader(*kib, lab.seed))?;
    let writes = lab.map(servers, |count| writers(*count, lab.seed, blocks))?;
    let small = lab.map(&[()], |()| small_read(lab.seed))?;
    let mut section = Section::new("", &[]);
    let at = |kib: u64| sizes.iter().position(|size| *size == kib).map_or(f64::NAN, |at| reads[at]);
    let gain = at(16_384) / at(4_096) - 1.0;
    section.rows.push(
        Comparison::new(
            "Fig. 7",
            "read throughput, blocks of 16 MB over those of 4 MB",
            "little".into(),
            Cell::Share(gain, 1),
            "A block server sends a block in pieces of 256 KiB, so that disk and link overlap but for the first piece: a \
             sixteenth of a block of 4 MB.",
        )
        .bound(gain.abs() < 0.1),
    );
    let (first, last) = (writes[0], writes[writes.len() - 1]);
    let (least, most) = (servers[0], servers[servers.len() - 1]);
    section.rows.push(
        Comparison::new(
            "Fig. 9",
            format!("write throughput with {most} block servers, of that with {least}"),
            "3, from 3 servers on".into(),
            Cell::Number(last / first, 1),
            "No proxy on the way of a write either: clients send to the members.",
        )
        .bound(last / first >= 0.6 * f64::from(most)),
    );
    section.rows.push(
        Comparison::new(
            "Sec. 6.1 read",
            "read of 128 KB, modelled disk and link alone (ms)",
            Cell::Number(6.1, 1),
            Cell::number(small.first().copied(), 1),
            "The prototype's 6.1 ms are software (proxy 2.5, client 2.7, block server 0.57, FUSE 0.33). Virtual time has no \
             cost of software: ours is what disk and link take.",
        )
        .bound(small.first().is_some_and(|ms| *ms < 6.1)),
    );
    let points = |xs: &[f64], ys: &[f64]| xs.iter().copied().zip(ys.iter().copied()).collect::<Vec<_>>();
    let sizes: Vec<f64> = sizes.iter().map(|kib| *kib as f64 / 1_024.0).collect();
    let servers: Vec<f64> = servers.iter().map(|count| f64::from(*count)).collect();
    section.figures.push(
        Figure::plane(
            "Fig. 7: past 4 MB a larger block gains little",
            Axis::log("block (MiB)"),
            Axis::linear("one reader (MB/s)"),
        )
        .subtitle("one block server, one copy, one block after the other")
        .with("ours", Mark::Markers, points(&sizes, &reads)),
    );
    section.figures.push(
        Figure::plane(
            "Fig. 9: without a proxy in the way, writes grow with the block servers",
            Axis::linear("block servers").from(0.0).whole(),
            Axis::linear("all writers (MB/s)").from(0.0),
        )
        .subtitle("blocks of 4 MB, one copy, three writers for each server")
        .with("ours", Mark::Markers, points(&servers, &writes)),
    );
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_blocks_are_read_faster_and_more_servers_write_faster() {
        let (small, large) = (one_reader(64, 7).unwrap(), one_reader(4_096, 7).unwrap());
        assert!(large > small, "{small} {large}");
        let (one, three) = (writers(1, 7, 24).unwrap(), writers(3, 7, 24).unwrap());
        assert!(three > 1.8 * one, "{one} {three}");
    }
}
