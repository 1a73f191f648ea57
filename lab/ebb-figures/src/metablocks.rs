//! *Cloud analytics: Do we really need to reinvent the storage stack?* (HotCloud 2009): block size, metablocks, locations
//! and prefetch.
//!
//! Unlike the papers on power this one is measured on real processes, a real mount and a real disk: it compares the
//! costs of a block size in software, network and disk, which virtual time does not have. The command `ebb lab
//! metablocks` measures. Here are the settings, the paper's numbers, and the sentences about ours beside them. Pure, but
//! for [`seeks`]: the disks that the paper had are modelled.

pub mod jobs;
mod rows;
pub mod seeks;

use ebb_plan::figure::Axis;
use ebb_plan::{Bars, Cell, Figure, Mark, Section, Table};
use ebb_types::{Geometry, Prefetch};

/// Heading of the page.
pub const TITLE: &str = "Metablocks: Do we really need to reinvent the storage stack?";

/// A dataset's settings, as one of the paper's file systems has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Name of its dataset.
    pub name: &'static str,
    /// Block and metablock.
    pub geometry: Geometry,
    /// The data that are fetched ahead.
    pub prefetch: Prefetch,
}

const fn setting(name: &'static str, block_kib: u64, metablock_kib: u64, percent: u8) -> Setting {
    let geometry = Geometry { block_size: block_kib << 10, metablock_size: metablock_kib << 10 };
    Setting { name, geometry, prefetch: Prefetch::Percent(percent) }
}

/// The stand-in for HDFS: 64 MiB in one place, read by any reader there.
pub const HDFS: Setting = setting("hdfs", 1 << 10, 64 << 10, 0);
/// The unmodified file system of Tables 1 and 2.
pub const SMALL: Setting = setting("small", 2 << 10, 2 << 10, 100);
/// Large blocks, without prefetch: Fig. 1, Table 2.
pub const LARGE: Setting = setting("large", 16 << 10, 16 << 10, 0);
/// Metablocks as in Fig. 1.
pub const FINE: Setting = setting("fine", 512, 16 << 10, 0);
/// Metablocks as in Fig. 2, and in the text ahead of Table 2.
pub const META: Setting = setting("metablocks", 1 << 10, 64 << 10, 100);

/// All of them.
pub const SETTINGS: [Setting; 5] = [HDFS, SMALL, LARGE, FINE, META];
/// Those of Table 2; the others are compared with the first.
pub const BONNIE: [Setting; 3] = [SMALL, LARGE, META];
/// Settings of prefetch that are compared.
pub const PREFETCHES: [Prefetch; 5] =
    [Prefetch::Percent(0), Prefetch::Percent(25), Prefetch::Percent(50), Prefetch::Percent(100), Prefetch::Spare];

/// Whether tasks go to the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placing {
    /// To a host that has it.
    Located,
    /// To any that has not.
    Blind,
}

/// One search: a setting and a way of placing its tasks.
pub type Case = (Setting, Placing);

/// The searches of Table 1 and Fig. 1; the others are compared with the first.
pub const CASES: [Case; 7] = [
    (HDFS, Placing::Located),
    (SMALL, Placing::Blind),
    (SMALL, Placing::Located),
    (LARGE, Placing::Located),
    (LARGE, Placing::Blind),
    (FINE, Placing::Located),
    (FINE, Placing::Blind),
];

/// A kind of reader, of those whose prefetch is varied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// A search whose tasks are placed without locations.
    Search,
    /// One program, from one end to the other.
    Sequential,
    /// One program, small reads anywhere.
    Random,
}

/// All of them.
pub const READERS: [Reader; 3] = [Reader::Search, Reader::Sequential, Reader::Random];

/// The cost of one piece of work.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// From its start to its end.
    pub seconds: f64,
    /// Between hosts, headers included.
    pub network_bytes: f64,
    /// Of the bytes that programs asked for.
    pub asked_bytes: f64,
    /// Fetched ahead and never asked for, as the client counts it; nothing is known of those of other processes.
    pub unused_bytes: Option<f64>,
}

impl Cost {
    /// Bytes between hosts for each that was asked for.
    #[must_use]
    pub fn network_share(&self) -> f64 {
        self.network_bytes / self.asked_bytes.max(1.0)
    }
}

/// How fast random and sequential reads are, in any units: only ratios are shown.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Speeds {
    /// Small reads anywhere.
    pub random: f64,
    /// One end to the other.
    pub sequential: f64,
}

/// The program that measured [`Speeds`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gauge {
    /// bonnie++ on a mount.
    Bonnie,
    /// Our own reader, which fetches chunks for a read that is no part of a stream.
    Chunks,
    /// The same, with a mount that fetches whole blocks, as the paper's file system does.
    Blocks,
}

/// All of them.
pub const GAUGES: [Gauge; 3] = [Gauge::Bonnie, Gauge::Chunks, Gauge::Blocks];

/// The measurements: of each thing the repeats, in the order of the rounds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Seen {
    /// Block servers.
    pub nodes: usize,
    /// Bytes that are searched and read in each case.
    pub file_bytes: u64,
    /// Searches, by [`CASES`].
    pub searches: Vec<Vec<Cost>>,
    /// Readers, by [`PREFETCHES`] and [`READERS`].
    pub readers: Vec<[Vec<Cost>; 3]>,
    /// By [`BONNIE`] and [`GAUGES`]; a gauge that is not on this machine has no repeats.
    pub speeds: Vec<[Vec<Speeds>; 3]>,
}

impl Seen {
    /// Nothing yet.
    #[must_use]
    pub fn new(nodes: usize, file_bytes: u64) -> Self {
        Self {
            nodes,
            file_bytes,
            searches: vec![Vec::new(); CASES.len()],
            readers: vec![Default::default(); PREFETCHES.len()],
            speeds: vec![Default::default(); BONNIE.len()],
        }
    }

    /// Medians of a search.
    fn search(&self, case: Case) -> Option<Cost> {
        costs(self.searches.get(CASES.iter().position(|known| *known == case)?)?)
    }

    /// Medians of a reader.
    fn reader(&self, prefetch: Prefetch, reader: Reader) -> Option<Cost> {
        let of = self.readers.get(PREFETCHES.iter().position(|known| *known == prefetch)?)?;
        costs(&of[reader as usize])
    }

    /// Random and sequential speed as multiples of small blocks', each the median of the rounds' ratios: settings that
    /// took turns with each other are compared with each other.
    fn ratios(&self, setting: Setting, gauge: Gauge) -> Option<Speeds> {
        let of = |setting| Some(&self.speeds.get(BONNIE.iter().position(|known| *known == setting)?)?[gauge as usize]);
        let (own, small) = (of(setting)?, of(SMALL)?);
        let ratio = |pick: fn(&Speeds) -> f64| median(own.iter().zip(small).map(|(a, b)| pick(a) / pick(b)));
        Some(Speeds { random: ratio(|speeds| speeds.random)?, sequential: ratio(|speeds| speeds.sequential)? })
    }
}

fn costs(repeats: &[Cost]) -> Option<Cost> {
    let of = |pick: fn(&Cost) -> f64| median(repeats.iter().map(pick));
    Some(Cost {
        seconds: of(|cost| cost.seconds)?,
        network_bytes: of(|cost| cost.network_bytes)?,
        asked_bytes: of(|cost| cost.asked_bytes)?,
        unused_bytes: median(repeats.iter().filter_map(|cost| cost.unused_bytes)),
    })
}

/// The middle one, of an even number the upper of the two; none without a finite number.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The numbers beside the paper's, tables of all that was measured, and figures.
#[must_use]
pub fn section(seen: &Seen) -> Section {
    let mut section = Section::new(TITLE, &[]);
    section.intro.push(format!(
        "Real processes on one machine, {} block servers, one copy, {:.0} MiB in each case (the paper: 16 to 160 GB on 16 \
         nodes), every file written anew before it is read; medians of rounds in which all cases take turns.",
        seen.nodes,
        seen.file_bytes as f64 / f64::from(1 << 20)
    ));
    rows::add(&mut section, seen);
    section.tables.push(searches(seen));
    section.tables.push(readers(seen));
    section.figures.extend([network(seen), prefetch(seen), speeds(seen)]);
    section
}

fn placing(placing: Placing) -> &'static str {
    match placing {
        Placing::Located => "located",
        Placing::Blind => "blind",
    }
}

const fn reader_name(reader: Reader) -> &'static str {
    match reader {
        Reader::Search => "search, blind",
        Reader::Sequential => "sequential",
        Reader::Random => "random",
    }
}

/// All searches.
fn searches(seen: &Seen) -> Table {
    let columns = [("setting", "setting"), ("placing", "tasks"), ("seconds", "s"), ("network_bytes", "network")];
    let mut table = Table::new("Searches: medians", &columns);
    for case in CASES {
        let Some(cost) = seen.search(case) else { continue };
        let name = (case.0.name.into(), placing(case.1).into());
        table.row(vec![name.0, name.1, Cell::Number(cost.seconds, 2), Cell::Bytes(cost.network_bytes)]);
    }
    table
}

/// All readers.
fn readers(seen: &Seen) -> Table {
    let columns = [
        ("prefetch", "prefetch"),
        ("reader", "reader"),
        ("seconds", "s"),
        ("network_bytes", "network"),
        ("unused_bytes", "unused"),
    ];
    let mut table = Table::new("Prefetch: medians", &columns);
    for setting in PREFETCHES {
        for reader in READERS {
            let Some(cost) = seen.reader(setting, reader) else { continue };
            table.row(vec![
                Cell::text(setting.to_string()),
                reader_name(reader).into(),
                Cell::Number(cost.seconds, 2),
                Cell::Bytes(cost.network_bytes),
                cost.unused_bytes.map_or(Cell::Missing, Cell::Bytes),
            ]);
        }
    }
    table
}

fn network(seen: &Seen) -> Figure {
    let of = |pick: &dyn Fn(Cost) -> f64| CASES.map(|case| seen.search(case).map_or(f64::NAN, pick)).to_vec();
    let hdfs = seen.search(CASES[0]).map_or(f64::NAN, |cost| cost.seconds);
    let bars = Bars {
        categories: CASES.map(|(setting, place)| format!("{}, {}", setting.name, placing(place))).to_vec(),
        y: Axis::linear("a multiple"),
        groups: vec![
            ("time, of HDFS's".into(), of(&|cost| cost.seconds / hdfs)),
            ("network, of the input".into(), of(&|cost| cost.network_share())),
        ],
        stacked: false,
        line: Some(1.0),
    };
    Figure::bars("Fig. 1: time and network bytes of a search", bars)
}

fn prefetch(seen: &Seen) -> Figure {
    let figure = Figure::plane(
        "Sec. 3: network traffic grows with the prefetch percentage",
        Axis::linear("prefetch (%)").from(0.0),
        Axis::linear("network bytes for each byte asked for").from(0.0),
    )
    .subtitle("Blocks of 512 KiB in metablocks of 16 MiB");
    READERS.into_iter().fold(figure, |figure, reader| {
        let points = PREFETCHES.iter().filter_map(|setting| match setting {
            Prefetch::Percent(percent) => Some((f64::from(*percent), seen.reader(*setting, reader)?.network_share())),
            Prefetch::Spare => None,
        });
        figure.with(reader_name(reader), Mark::Markers, points.collect())
    })
}

fn speeds(seen: &Seen) -> Figure {
    let ratio = |gauge| {
        let of = BONNIE[1..].iter().map(move |setting| seen.ratios(*setting, gauge));
        of.flat_map(|speeds| speeds.map_or([f64::NAN; 2], |speeds| [speeds.random, speeds.sequential]))
    };
    let name = |gauge| match gauge {
        Gauge::Bonnie => "bonnie++",
        Gauge::Chunks => "own reader",
        Gauge::Blocks => "own reader, whole blocks",
    };
    let mut groups: Vec<(String, Vec<f64>)> = vec![("the paper".into(), vec![0.15, 2.29, 0.99, 1.19])];
    groups.extend(GAUGES.map(|gauge| (name(gauge).to_owned(), ratio(gauge).collect())));
    let categories = ["large, random", "large, sequential", "metablocks, random", "metablocks, sequential"];
    let bars = Bars {
        categories: categories.map(str::to_owned).to_vec(),
        y: Axis::linear("a multiple of small blocks"),
        groups,
        stacked: false,
        line: Some(1.0),
    };
    Figure::bars("Table 2: random and sequential reads", bars)
}

#[cfg(test)]
mod tests;
