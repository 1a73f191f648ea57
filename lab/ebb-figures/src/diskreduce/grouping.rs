//! D2: what check metablocks cost by which metablocks may share a RAID set, on files of the paper's sizes.
//!
//! A live dataset groups by file, then by directory, then by anything of the dataset. Groupings that are narrower are live,
//! too: each directory, or each file, is a dataset by itself, and no RAID set reaches over two datasets. A metablock that
//! finds no other one stays in its copies, which cost as much as two rows of its own.

use std::time::Duration;

use ebb_layout::raid::least_len_bytes;
use ebb_plan::raid::overhead::{Code, Grouping, overhead};
use ebb_plan::raid::sizes::{Lognormal, Sizes};
use ebb_plan::{Bars, Cell, Comparison, Figure, Section, papers};
use ebb_types::{RaidCode, Result};

use super::losses::trailer_bytes;
use super::store::{COPIES, Shape, Store, on};
use crate::part::Lab;

pub const SOURCES: &[&str] = &["D2"];

const NODES: u32 = 12;
const CODE: RaidCode = RaidCode::RAID6;
const METABLOCK: u64 = 256 << 10;
/// The paper's block, which a metablock stands for.
const PAPER_BLOCK: f64 = 64e6;
/// Longer than the writing takes: all metablocks are old at about the same time.
const DELAY: Duration = Duration::from_secs(60);
/// Live and planned overhead may differ by so many points.
const POINTS: f64 = 0.02;

/// What one grouping came to.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    /// Stored beyond the data, as a share of it, of metablocks that are long enough for a RAID set.
    overhead: f64,
    /// Part of the data in RAID sets.
    encoded: f64,
    /// Data in metablocks that are too short, as a share of all data.
    short: f64,
    /// Trailers behind the rows, as a share of the data; they are not in the overhead.
    trailers: f64,
    sets: usize,
}

/// The paper's files, scaled to the metablock.
fn files(count: u32) -> Result<Sizes> {
    let mut sizes = Lognormal::DISKREDUCE.files(count)?;
    let scaled = |size: u64| ((size as f64 * METABLOCK as f64 / PAPER_BLOCK) as u64).max(1);
    sizes.directories.iter_mut().flatten().for_each(|size| *size = scaled(*size));
    Ok(sizes)
}

/// The length of a file without a last metablock that is too short for a RAID set.
fn long_part(size: u64) -> u64 {
    let rest = size % METABLOCK;
    if rest < least_len_bytes(METABLOCK) { size - rest } else { size }
}

/// What is long enough of the files, by directory: the planner's input.
fn long_parts(sizes: &Sizes) -> Sizes {
    let long = |files: &Vec<u64>| files.iter().map(|size| long_part(*size)).filter(|size| *size > 0).collect();
    Sizes { name: sizes.name.clone(), directories: sizes.directories.iter().map(long).collect() }
}

fn planned(sizes: &Sizes, grouping: Grouping) -> f64 {
    let code = Code { data: CODE.slots, check: CODE.rows, block_bytes: METABLOCK };
    overhead(&long_parts(sizes), code, grouping)
}

/// Writes the files, in datasets as the grouping has it. Returns the bytes of those that lie where nothing is encoded.
async fn write(store: &mut Store, sizes: &Sizes, grouping: Grouping) -> Result<u64> {
    let mut alone_bytes = 0;
    match grouping {
        Grouping::Across => {
            let all = store.make_dataset("all", Some(CODE)).await?;
            for (number, files) in sizes.directories.iter().enumerate() {
                let directory = store.make_dir(all, &format!("d{number}")).await?;
                for size in files {
                    store.write(directory, *size).await?;
                }
            }
        }
        Grouping::Directory => {
            for (number, files) in sizes.directories.iter().enumerate() {
                let directory = store.make_dataset(&format!("d{number}"), Some(CODE)).await?;
                for size in files {
                    store.write(directory, *size).await?;
                }
            }
        }
        Grouping::File => {
            // A file of one metablock finds no other one: it may as well lie where nothing is encoded.
            let alone = store.make_dataset("alone", None).await?;
            for (number, size) in sizes.directories.iter().flatten().enumerate() {
                let has_others = long_part(*size) > METABLOCK;
                let own = if has_others { store.make_dataset(&format!("f{number}"), Some(CODE)).await? } else { alone };
                store.write(own, *size).await?;
                alone_bytes += if has_others { 0 } else { *size };
            }
        }
    }
    Ok(alone_bytes)
}

fn run(seed: u64, count: u32, grouping: Grouping) -> Result<Seen> {
    let sizes = files(count)?;
    let shape = Shape { delay: DELAY, ..Shape::of(NODES, CODE, METABLOCK) };
    on(seed, shape, |mut store| async move {
        let alone_bytes = write(&mut store, &sizes, grouping).await?;
        // What finds no others waits for one more delay.
        let totals = store.wait_until_quiet(3 * DELAY).await?;
        let sets = store.raid_sets().await?;
        let (trailers, long) = (trailer_bytes(&sets), long_parts(&sizes).bytes() as f64);
        let short = store.user_bytes() as f64 - long;
        // The master's account has datasets with RAID sets alone.
        let stored = totals.stored_bytes - trailers + alone_bytes * u64::from(COPIES);
        let stored = stored as f64 - short * f64::from(COPIES);
        Ok(Seen {
            overhead: stored / long - 1.0,
            encoded: totals.encoded_bytes as f64 / long,
            short: short / store.user_bytes() as f64,
            trailers: trailers as f64 / long,
            sets: sets.len(),
        })
    })
}

/// The paper's number.
const fn paper(grouping: Grouping) -> f64 {
    match grouping {
        Grouping::File => 0.50,
        Grouping::Directory | Grouping::Across => 0.25,
    }
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let count = lab.effort.of(600, 120);
    let sizes = files(count)?;
    let all = lab.map(&Grouping::ALL, |grouping| run(lab.seed, count, *grouping))?;
    let mut section = Section::new("", &[]);
    for (grouping, seen) in Grouping::ALL.into_iter().zip(&all) {
        rows(&mut section, &sizes, grouping, seen);
    }
    // The planners' own rows, for many more files of whole size.
    let computed = papers::diskreduce::section()?;
    section.rows.extend(computed.rows.into_iter().filter(|row| row.source == "Sec. 2").map(|row| Comparison {
        source: "D2".to_owned(),
        quantity: format!("planned for 200,000 files of whole size: {}", row.quantity),
        ..row
    }));
    section.figures.push(figure(&sizes, &all));
    Ok(section)
}

fn rows(section: &mut Section, sizes: &Sizes, grouping: Grouping, seen: &Seen) {
    let how = match grouping {
        Grouping::File => "Each file is a dataset of its own",
        Grouping::Directory => "Each directory is a dataset of its own",
        Grouping::Across => "One dataset, as it is: by file, then by directory, then by anything",
    };
    let shares = |share: f64| Cell::Share(share, 1).human();
    let why = format!(
        "{how}. {} files, {} RAID sets with {} of the data; what finds no others stays in three copies. Left out: {} of the data in \
         pieces of less than a quarter of a metablock (a 64th, if it has 64 MiB), and trailers of {}.",
        sizes.files(),
        seen.sets,
        shares(seen.encoded),
        shares(seen.short),
        shares(seen.trailers),
    );
    let quantity = format!("8+2 {grouping}: overhead of the live store");
    let paper = paper(grouping);
    let points = seen.overhead - paper;
    section.rows.push(
        Comparison::new("D2", quantity, Cell::Share(paper, 0), Cell::Share(seen.overhead, 1), why)
            .judged(points.abs() <= 2.5 * POINTS, format!("{:+.1} points", points * 100.0)),
    );
    let planned = planned(sizes, grouping);
    let points = seen.overhead - planned;
    let quantity = format!("8+2 {grouping}: ebb plan raid for the same files; live");
    section.rows.push(
        Comparison::new("D2", quantity, Cell::Share(planned, 1), Cell::Share(seen.overhead, 1), "Within 2 points.")
            .judged(points.abs() <= POINTS, format!("{:+.1} points", points * 100.0)),
    );
}

fn figure(sizes: &Sizes, all: &[Seen]) -> Figure {
    let per_cent = |value: f64| value * 100.0;
    let groups = vec![
        ("paper".to_owned(), Grouping::ALL.map(|grouping| per_cent(paper(grouping))).to_vec()),
        ("ebb plan raid".to_owned(), Grouping::ALL.map(|grouping| per_cent(planned(sizes, grouping))).to_vec()),
        ("live".to_owned(), all.iter().map(|seen| per_cent(seen.overhead)).collect()),
    ];
    Figure::bars(
        "D2: overhead by which metablocks may share a RAID set",
        Bars {
            categories: Grouping::ALL.map(|grouping| grouping.to_string()).to_vec(),
            y: ebb_plan::figure::Axis::linear("stored beyond the data (% of data)").from(0.0),
            groups,
            stacked: false,
            line: Some(25.0),
        },
    )
    .subtitle(format!(
        "8+2; {} files, median 4 MB, mean 100 MB, blocks of 64 MB, scaled to metablocks of 256 KiB",
        sizes.files()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_store_costs_what_the_planner_says() {
        let sizes = files(60).unwrap();
        for grouping in [Grouping::File, Grouping::Across] {
            let seen = run(3, 60, grouping).unwrap();
            assert!((seen.overhead - planned(&sizes, grouping)).abs() <= 2.0 * POINTS, "{grouping}: {seen:?}");
            assert!(seen.sets > 0 && seen.encoded > 0.5, "{grouping}: {seen:?}");
        }
    }

    #[test]
    fn short_ends_are_no_input_of_the_planner() {
        let least = least_len_bytes(METABLOCK);
        assert_eq!([least - 1, least, METABLOCK, METABLOCK + 1].map(long_part), [0, least, METABLOCK, METABLOCK]);
    }
}
