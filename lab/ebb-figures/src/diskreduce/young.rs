//! D3: three days of writing, with data that are encoded never, after a day, or at once; and which reads still meet copies.

use std::time::Duration;

use ebb_plan::figure::Axis;
use ebb_plan::{Cell, Comparison, Figure, Mark, Section};
use ebb_runtime::virt::Dice;
use ebb_types::{Credentials, Encode, RaidCode, Redundancy, Result};
use ebb_wire::pb::meta_op::{GetMap, Op};

use super::losses::trailer_bytes;
use super::store::{COPIES, Shape, Store, Written, committed_bytes, on};
use crate::part::Lab;

pub const SOURCES: &[&str] = &["D3"];

const NODES: u32 = 12;
const CODE: RaidCode = RaidCode::RAID6;
const METABLOCK: u64 = 256 << 10;
const DAYS: u32 = 3;
/// Shares of block reads within a day of the block's writing, in clusters of the paper.
const EARLY: [f64; 2] = [0.90, 0.50];

/// The time scale of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pace {
    /// A day of the paper.
    day: Duration,
    /// Between two files.
    step: Duration,
    /// Metablocks of each.
    metablocks: u64,
}

/// One way to encode.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    /// Days since the beginning, and what is stored then for each user byte.
    stored: Vec<(f64, f64)>,
    /// For each of [`EARLY`]: the part of the reads that met more than one copy.
    met_copies: [f64; 2],
    /// Slots of a RAID set, on average.
    slots: f64,
}

const MODES: [Encode; 3] = [Encode::Off, Encode::Background, Encode::Immediate];

const fn name(mode: Encode) -> &'static str {
    match mode {
        Encode::Off => "never",
        Encode::Background => "after a day",
        Encode::Immediate => "at once",
    }
}

fn run(seed: u64, pace: Pace, mode: Encode) -> Result<Seen> {
    let shape = Shape { encode: mode, delay: pace.day, ..Shape::of(NODES, CODE, METABLOCK) };
    on(seed, shape, |mut store| async move {
        let directory = store.make_dataset("log", Some(CODE)).await?;
        let mut dice = Dice::new(seed, "ages of blocks that are read");
        let (mut stored, mut reads, mut met) = (Vec::new(), 0_u32, [0_u32; 2]);
        let began = store.world.now();
        let end = began + pace.day * DAYS;
        let mut next = began;
        while next < end {
            store.world.sleep(next.saturating_sub(store.world.now())).await;
            store.write(directory, pace.metablocks * METABLOCK).await?;
            next += pace.step;
            let age = next - began;
            if age > pace.day * (DAYS - 1) {
                reads += 1;
                for (met, early) in met.iter_mut().zip(EARLY) {
                    let file = draw(&mut dice, &store.files, pace, early);
                    *met += u32::from(has_copies(&store, file).await?);
                }
            }
            let totals = store.totals().await?;
            let bytes = totals.stored_bytes - trailer_bytes(&store.raid_sets().await?);
            let user_bytes = committed_bytes(&totals);
            if user_bytes > 0 {
                stored.push((age.as_secs_f64() / pace.day.as_secs_f64(), bytes as f64 / user_bytes as f64));
            }
        }
        let sets = store.raid_sets().await?;
        let slots = sets.iter().map(|set| set.slots.len()).sum::<usize>() as f64 / sets.len() as f64;
        Ok(Seen { stored, met_copies: met.map(|met| f64::from(met) / f64::from(reads.max(1))), slots })
    })
}

/// A file to read: of the last day with this chance, else an older one. Within each of the two all are alike.
fn draw(dice: &mut Dice, files: &[Written], pace: Pace, early: f64) -> Written {
    let of_a_day = (pace.day.as_nanos() / pace.step.as_nanos()) as usize;
    let old = files.len().saturating_sub(of_a_day);
    *if dice.chance(early) || old == 0 { dice.pick(&files[old..]) } else { dice.pick(&files[..old]) }
}

/// Whether a reader has more than one copy to choose from.
async fn has_copies(store: &Store, file: Written) -> Result<bool> {
    let map = GetMap { inode: file.inode.raw(), first_index: 0, limit: 1 };
    let map = store.client.meta(&Credentials::root(), Op::GetMap(map)).await?.metablocks;
    Ok(map.iter().all(|record| record.members.len() > 1))
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let (day, step) = lab.effort.of((1_200, 4), (300, 3));
    let pace = Pace { day: Duration::from_secs(day), step: Duration::from_secs(step), metablocks: 1 };
    // As many bytes in files that fill a RAID set each.
    let long = Pace { step: pace.step * CODE.slots, metablocks: u64::from(CODE.slots), ..pace };
    let cases: Vec<(Encode, Pace)> =
        MODES.map(|mode| (mode, pace)).into_iter().chain([(Encode::Immediate, long)]).collect();
    let mut all = lab.map(&cases, |(mode, pace)| run(lab.seed, *pace, *mode))?;
    let long = all.pop().expect("long files are the last case");
    let mut section = Section::new("", &[]);
    let old = Redundancy::Raid(CODE).stored_per_user_byte(COPIES);
    let days = format!("A day is {day} s here, with {} blocks.", day / pace.step.as_secs());
    for (mode, name, seen) in [
        (MODES[0], "encoded never".to_owned(), &all[0]),
        (MODES[1], "encoded after a day".to_owned(), &all[1]),
        (MODES[2], "encoded at once".to_owned(), &all[2]),
        (MODES[2], format!("encoded at once, files of {} blocks", CODE.slots), &long),
    ] {
        // What is younger than its delay is in copies, and all else in RAID sets.
        let young = match mode {
            Encode::Off => 1.0,
            Encode::Background => 1.0 / f64::from(DAYS),
            Encode::Immediate => 0.0,
        };
        let expected = young * f64::from(COPIES) + (1.0 - young) * old;
        let last = seen.stored.last().map(|point| point.1);
        let quantity = format!("{name}: stored for each user byte after three days of writing");
        let slots =
            if seen.slots.is_nan() { String::new() } else { format!(" RAID sets have {:.1} slots.", seen.slots) };
        let short = match mode {
            Encode::Immediate if seen.slots < 7.0 => {
                " What has been due for two seconds makes a RAID set with whatever there is. Of files of one block too few come in that time."
            }
            _ => "",
        };
        let why = format!(
            "{days} Beside it: the last day's data in copies, or none, and all else in full RAID sets.{slots}{short}"
        );
        section.rows.push(
            Comparison::new("D3", quantity, Cell::Number(expected, 2), Cell::number(last, 2), why)
                .bound(last.is_some_and(|last| (last / expected - 1.0).abs() <= 0.10)),
        );
    }
    for (at, early) in EARLY.into_iter().enumerate() {
        let shares = MODES.into_iter().zip(&all);
        let others: Vec<String> = shares
            .filter(|(mode, _)| *mode != Encode::Background)
            .map(|(mode, seen)| format!("encoded {}: {}", name(mode), Cell::Share(seen.met_copies[at], 0).human()))
            .collect();
        let background = all[1].met_copies[at];
        let quantity =
            format!("{:.0} % of the reads within a day: reads that meet copies, encoded after a day", early * 100.0);
        section.rows.push(
            Comparison::new(
                "D3",
                quantity,
                Cell::Share(early, 0),
                Cell::Share(background, 0),
                format!("{}.", others.join("; ")),
            )
            .bound(background >= early - 0.05),
        );
    }
    section.figures.push(figure(&all));
    Ok(section)
}

fn figure(all: &[Seen]) -> Figure {
    let figure = Figure::plane(
        "D3: copies of young data as a cache",
        Axis::linear("days of writing").from(0.0),
        Axis::linear("stored for each user byte").from(0.0),
    )
    .subtitle("8+2, three copies before; files of one metablock each, at a constant rate");
    MODES.into_iter().zip(all).fold(figure, |figure, (mode, seen)| {
        figure.with(format!("encoded {}", name(mode)), Mark::Line, seen.stored.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn young_data_are_in_copies_and_old_data_are_not() {
        let pace = Pace { day: Duration::from_secs(60), step: Duration::from_secs(1), metablocks: 1 };
        let seen = run(2, pace, Encode::Background).unwrap();
        let at = |day: f64| seen.stored.iter().find(|point| point.0 >= day).unwrap().1;
        assert!((at(0.9) - 3.0).abs() < 1e-9, "{seen:?}");
        assert!(at(3.0) < 2.3 && at(3.0) > 1.5, "{seen:?}");
        assert!(seen.met_copies[0] > 0.8 && seen.met_copies[1] < seen.met_copies[0], "{seen:?}");
        let at_once = run(2, pace, Encode::Immediate).unwrap();
        assert!(at_once.stored.last().unwrap().1 < at(3.0), "{at_once:?}");
    }
}
