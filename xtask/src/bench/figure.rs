//! The figures: names, units and references.

use super::place::Kind;

/// A figure of the load.
pub struct Figure {
    /// Name, which never changes, because runs are compared by it.
    pub name: &'static str,
    /// "MB/s", "per s", "s", "MiB".
    pub unit: &'static str,
    /// The place at which its reference is measured, in the same run, by the same code. `None`: it needs no reference.
    pub beside: Option<Kind>,
    /// Whether acknowledged data are on stable storage on every member by then. `None` for reads.
    pub durable: Option<bool>,
}

/// Parts of the load: each is run as a whole, in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One large file, in order and at random.
    Large,
    /// Small files.
    Small,
    /// Empty files and their attributes.
    Empty,
    /// From nothing to a mount that answers.
    Start,
    /// The master with many files.
    Memory,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 5] = [Self::Large, Self::Small, Self::Empty, Self::Start, Self::Memory];

    /// Its figures, in the order of the table.
    pub fn figures(self) -> &'static [Figure] {
        match self {
            Self::Large => LARGE,
            Self::Small => SMALL,
            Self::Empty => EMPTY,
            Self::Start => START,
            Self::Memory => MEMORY,
        }
    }
}

const fn figure(name: &'static str, unit: &'static str, beside: Option<Kind>, durable: Option<bool>) -> Figure {
    Figure { name, unit, beside, durable }
}

const LARGE: &[Figure] = &[
    figure("sequential write + fsync", "MB/s", Some(Kind::Disk), Some(true)),
    figure("sequential read, cold", "MB/s", Some(Kind::Disk), None),
    figure("sequential read, O_DIRECT, warm", "MB/s", Some(Kind::Disk), None),
    figure("4 KiB random read, depth 1", "per s", Some(Kind::Disk), None),
    figure("4 KiB random read, depth 16", "per s", Some(Kind::Disk), None),
    figure("128 KiB random read, depth 1", "per s", Some(Kind::Disk), None),
    figure("128 KiB random read, depth 16", "per s", Some(Kind::Disk), None),
    figure("4 KiB random write, depth 1", "per s", Some(Kind::Disk), Some(false)),
    figure("4 KiB random write, depth 16", "per s", Some(Kind::Disk), Some(false)),
    figure("4 KiB random write + fdatasync", "per s", Some(Kind::Disk), Some(true)),
];

const SMALL: &[Figure] = &[
    figure("16 KiB files, 1 thread: create, write, close", "per s", Some(Kind::BareMount), Some(false)),
    figure("16 KiB files, 1 thread: read, cold", "per s", Some(Kind::BareMount), None),
    figure("16 KiB files, 1 thread: unlink", "per s", Some(Kind::BareMount), Some(true)),
    figure("16 KiB files, 8 threads: create, write, close", "per s", Some(Kind::BareMount), Some(false)),
    figure("16 KiB files, 8 threads: read, cold", "per s", Some(Kind::BareMount), None),
    figure("16 KiB files, 8 threads: unlink", "per s", Some(Kind::BareMount), Some(true)),
    figure("16 KiB files, 8 threads: create, write, fsync", "per s", Some(Kind::Disk), Some(true)),
];

const EMPTY: &[Figure] = &[
    figure("empty files, 1 thread: create", "per s", Some(Kind::BareMount), Some(true)),
    figure("empty files, 1 thread: stat, nothing cached", "per s", Some(Kind::BareMount), None),
    figure("empty files, 1 thread: unlink", "per s", Some(Kind::BareMount), Some(true)),
    figure("empty files, 8 threads: create", "per s", Some(Kind::BareMount), Some(true)),
    figure("empty files, 8 threads: stat, nothing cached", "per s", Some(Kind::BareMount), None),
    figure("empty files, 8 threads: list", "per s", Some(Kind::BareMount), None),
    figure("empty files, 8 threads: unlink", "per s", Some(Kind::BareMount), Some(true)),
];

const START: &[Figure] = &[figure("cold start until a mount answers", "s", None, None)];

const MEMORY: &[Figure] = &[figure("master's memory with the files of a fill", "MiB", None, None)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_used_twice() {
        let mut names = std::collections::BTreeSet::new();
        assert!(Part::ALL.iter().flat_map(|part| part.figures()).all(|figure| names.insert(figure.name)));
    }
}
