//! How a dataset's cold data are kept: as the copies that they were written in, or as RAID sets with check metablocks
//! (Fan, Tantisiriroj, Xiao, Gibson: *DiskReduce*).

use std::fmt;
use std::str::FromStr;

use crate::domain::Domain;
use crate::words::counted;

/// A code of RAID sets: `slots` metablocks share `rows` check metablocks, each as long as the longest slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RaidCode {
    /// Copies of each slot that stay: one, or two beside a single row.
    pub copies: u32,
    /// Places of data metablocks. A short RAID set has empty ones.
    pub slots: u32,
    /// Places of check metablocks.
    pub rows: u32,
    /// What members lie apart by.
    pub domain: Domain,
}

/// Fewest and most slots: one would be a copy, and more make each rebuild read as many nodes.
const SLOTS: (u32, u32) = (2, 32);
/// Fewest and most rows: the code's matrix was checked for these.
const ROWS: (u32, u32) = (1, 4);
/// Largest metablock of a dataset with RAID sets, in bytes: a row and its trailer of checksums fit into one replica.
pub const RAID_METABLOCK_SIZE_MAX: u64 = 512 << 20;

impl RaidCode {
    /// Two copies and a row for eight (DiskReduce's mirrored RAID 5).
    pub const RAID5: Self = Self { copies: 2, slots: 8, rows: 1, domain: Domain::Host };
    /// Two rows for eight.
    pub const RAID6: Self = Self::single(8, 2);

    /// One copy of each of so many slots, on hosts of their own.
    #[must_use]
    pub const fn single(slots: u32, rows: u32) -> Self {
        Self { copies: 1, slots, rows, domain: Domain::Host }
    }

    /// Checks the bounds. The error names the nearest possible code.
    pub fn check(self) -> Result<(), String> {
        let nearest = self.nearest();
        if nearest == self {
            return Ok(());
        }
        let within = |value: u32, (low, high): (u32, u32)| (low..=high).contains(&value);
        let why = if !within(self.slots, SLOTS) {
            format!("a RAID set has {} to {} slots, not {}", SLOTS.0, SLOTS.1, self.slots)
        } else if !within(self.rows, ROWS) {
            format!("a RAID set has {} to {} rows, not {}", ROWS.0, ROWS.1, self.rows)
        } else if !within(self.copies, (1, 2)) {
            format!("a slot keeps one copy or two, not {}", self.copies)
        } else if self.domain == Domain::Volume {
            "two copies of a slot are for the loss of a node, which RAID sets on volumes of one node do not bear"
                .to_owned()
        } else {
            format!("two copies go with one row, not with {}", self.rows)
        };
        Err(format!("{why}; the nearest possible redundancy is {nearest}"))
    }

    /// Two copies go with one row: three lost nodes can take three slots that lie on them by twos.
    fn nearest(self) -> Self {
        let copies = if self.domain == Domain::Volume { 1 } else { self.copies.clamp(1, 2) };
        let rows = if copies == 2 { 1 } else { self.rows.clamp(ROWS.0, ROWS.1) };
        Self { copies, slots: self.slots.clamp(SLOTS.0, SLOTS.1), rows, domain: self.domain }
    }

    /// Nodes, or volumes, of which any may be lost without loss of data.
    #[must_use]
    pub const fn tolerates(self) -> u32 {
        self.rows + self.copies - 1
    }

    /// Bytes on disks for each byte of a full RAID set.
    #[must_use]
    pub fn stored_per_user_byte(self) -> f64 {
        f64::from(self.copies) + f64::from(self.rows) / f64::from(self.slots)
    }

    /// Hosts, or volumes, that a full RAID set needs. With two copies the slots lie on different pairs of hosts, and the row beside.
    #[must_use]
    pub fn least_nodes(self) -> u32 {
        if self.copies == 1 { self.slots + self.rows } else { self.least_halves(|half, rest| pairs(half + rest)) }
    }

    /// Hosts, or volumes, that it needs so that a lost member can be made again.
    #[must_use]
    pub fn least_nodes_to_heal(self) -> u32 {
        self.least_nodes() + 1
    }

    /// Racks that it needs so that all of one may be lost: no rack has more members than there are rows. With two copies
    /// each slot is in two racks.
    #[must_use]
    pub const fn least_racks(self) -> u32 {
        if self.copies == 1 { (self.slots + self.rows).div_ceil(self.rows) } else { 2 }
    }

    /// Hosts that it needs in [`Self::least_racks`] racks, dealt evenly.
    #[must_use]
    pub fn least_nodes_in_racks(self) -> u32 {
        if self.copies == 1 { self.least_nodes() } else { self.least_halves(|half, rest| half * rest) }
    }

    /// The fewest hosts in two halves that have a pair for each slot, and those of the rows.
    fn least_halves(self, pairs: impl Fn(u32, u32) -> u32) -> u32 {
        let enough = (2..).find(|hosts| pairs(hosts / 2, hosts - hosts / 2) >= self.slots);
        enough.expect("pairs grow with hosts") + self.rows
    }
}

const fn pairs(hosts: u32) -> u32 {
    hosts * (hosts - 1) / 2
}

impl fmt::Display for RaidCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RAID5 => f.write_str("raid5"),
            Self { copies: 2, slots, rows: 1, .. } => write!(f, "raid5({slots})"),
            Self { copies: 1, slots, rows, .. } => write!(f, "{slots}+{rows}"),
            Self { copies, slots, rows, .. } => write!(f, "{} of {slots}+{rows}", counted(copies.into(), "copy")),
        }
    }
}

/// A dataset's setting for data that are old and seldom read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Redundancy {
    /// As many copies as they were written in.
    #[default]
    Copies,
    /// RAID sets.
    Raid(RaidCode),
}

impl Redundancy {
    /// From a message, where three zeros stand for a setting that was not made: nothing for a code out of bounds.
    #[must_use]
    pub fn from_raw(raw: RaidCode) -> Option<Self> {
        match raw {
            RaidCode { copies: 0, slots: 0, rows: 0, .. } => Some(Self::Copies),
            code => code.check().is_ok().then_some(Self::Raid(code)),
        }
    }

    /// As messages have it.
    #[must_use]
    pub const fn to_raw(self) -> RaidCode {
        match self {
            Self::Copies => RaidCode { copies: 0, slots: 0, rows: 0, domain: Domain::Host },
            Self::Raid(code) => code,
        }
    }

    /// Its code, if it has one.
    #[must_use]
    pub const fn code(self) -> Option<RaidCode> {
        match self {
            Self::Copies => None,
            Self::Raid(code) => Some(code),
        }
    }

    /// Nodes of which any may be lost, in a dataset of so many copies.
    #[must_use]
    pub fn tolerates(self, replicas: u32) -> u32 {
        self.code().map_or(replicas.saturating_sub(1), RaidCode::tolerates)
    }

    /// Bytes on disks for each byte of a user, when all that can be encoded is.
    #[must_use]
    pub fn stored_per_user_byte(self, replicas: u32) -> f64 {
        self.code().map_or_else(|| replicas.into(), RaidCode::stored_per_user_byte)
    }

    /// Hosts that it needs; what is young lies there in copies.
    #[must_use]
    pub fn least_nodes(self, replicas: u32) -> u32 {
        self.code().map_or(0, RaidCode::least_nodes).max(replicas)
    }

    /// Hosts that it needs so that what one has lost can be made again.
    #[must_use]
    pub fn least_nodes_to_heal(self, replicas: u32) -> u32 {
        self.least_nodes(replicas) + 1
    }

    /// Racks that it needs so that all of one may be lost; none: no number of racks is enough for a single copy.
    #[must_use]
    pub fn least_racks(self, replicas: u32) -> Option<u32> {
        match self {
            Self::Copies => (replicas > 1).then_some(2),
            Self::Raid(code) => Some(code.least_racks()),
        }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copies => f.write_str("copies"),
            Self::Raid(code) => write!(f, "{code}"),
        }
    }
}

impl FromStr for Redundancy {
    type Err = String;

    /// `copies`, `raid5` or `raid5(K)`, `raid6`, `K+M` or `rs(K,M)`.
    fn from_str(text: &str) -> Result<Self, String> {
        let code = match text {
            "copies" => return Ok(Self::Copies),
            "raid5" => RaidCode::RAID5,
            "raid6" => RaidCode::RAID6,
            _ => parse_code(text).ok_or_else(|| {
                format!(
                    "there is no redundancy {text:?}; choose copies, raid5, raid6, or slots and rows such as 8+2 or rs(8,2)"
                )
            })?,
        };
        code.check().map(|()| Self::Raid(code))
    }
}

/// The code that a text says, within its bounds or not.
fn parse_code(text: &str) -> Option<RaidCode> {
    let inside = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    let number = |digits: &str| digits.trim().parse::<u32>().ok();
    if let Some(slots) = inside("raid5") {
        return Some(RaidCode { slots: number(slots)?, ..RaidCode::RAID5 });
    }
    let (slots, rows) = inside("rs").and_then(|both| both.split_once(',')).or_else(|| text.split_once('+'))?;
    Some(RaidCode::single(number(slots)?, number(rows)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Redundancy {
        text.parse().unwrap()
    }

    fn code(text: &str) -> RaidCode {
        read(text).code().unwrap()
    }

    #[test]
    fn every_redundancy_comes_back_from_its_words_and_its_numbers() {
        let codes = (2..=32).flat_map(|slots| (1..=4).map(move |rows| RaidCode::single(slots, rows)));
        let mirrored = (2..=32).map(|slots| RaidCode { slots, ..RaidCode::RAID5 });
        for redundancy in codes.chain(mirrored).map(Redundancy::Raid).chain([Redundancy::Copies]) {
            assert_eq!(redundancy.to_string().parse(), Ok(redundancy));
            assert_eq!(Redundancy::from_raw(redundancy.to_raw()), Some(redundancy));
        }
        assert_eq!((read("raid6"), read("rs(8, 2)")), (read("8+2"), read("8+2")));
        assert_eq!((read("raid5").to_string(), read("raid5(4)").to_string()), ("raid5".into(), "raid5(4)".into()));
        assert_eq!(Redundancy::default(), Redundancy::Copies, "as before there was a setting");
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_the_nearest() {
        for (text, nearest) in [
            ("1+2", "2+2"),
            ("40+2", "32+2"),
            ("8+0", "8+1"),
            ("8+9", "8+4"),
            ("rs(99,99)", "32+4"),
            ("raid5(1)", "raid5(2)"),
            ("raid5(33)", "raid5(32)"),
        ] {
            let refused = text.parse::<Redundancy>().unwrap_err();
            assert!(refused.ends_with(&format!("the nearest possible redundancy is {nearest}")), "{text}: {refused}");
        }
        for text in ["", "+", "8+", "raid7", "rs(8)", "rs 8,2", "-8+2", "8+2+1", "3", "4294967296+2"] {
            let refused = text.parse::<Redundancy>().unwrap_err();
            assert!(refused.contains("raid6"), "{text}: {refused}");
        }
        for raw in [(3, 8, 1), (2, 8, 2), (0, 8, 2), (1, 0, 0)] {
            let raw = RaidCode { copies: raw.0, ..RaidCode::single(raw.1, raw.2) };
            assert_eq!(Redundancy::from_raw(raw), None, "{raw:?}");
        }
    }

    #[test]
    fn on_volumes_a_slot_keeps_one_copy() {
        let on_volumes = |code: RaidCode| RaidCode { domain: Domain::Volume, ..code };
        assert_eq!(on_volumes(RaidCode::RAID6).check(), Ok(()));
        let refused = on_volumes(RaidCode::RAID5).check().unwrap_err();
        assert!(refused.contains("the loss of a node") && refused.ends_with("8+1"), "{refused}");
    }

    #[test]
    fn each_scheme_says_what_it_costs_and_needs() {
        let of = |text: &str| {
            let scheme = read(text);
            (scheme.tolerates(3), scheme.least_nodes(3), scheme.least_nodes_to_heal(3), scheme.least_racks(3))
        };
        assert_eq!(of("copies"), (2, 3, 4, Some(2)));
        assert_eq!(of("raid5"), (2, 6, 7, Some(2)));
        assert_eq!(of("8+2"), (2, 10, 11, Some(5)));
        assert_eq!(of("4+2"), (2, 6, 7, Some(3)));
        assert_eq!(of("6+3"), (3, 9, 10, Some(3)));
        assert_eq!(of("10+4"), (4, 14, 15, Some(4)));
        assert_eq!(of("2+1"), (1, 3, 4, Some(3)));
        assert_eq!(Redundancy::Copies.least_racks(1), None);
        // In two racks three hosts and three make nine pairs over racks, and the row wants a host of its own.
        assert_eq!((code("raid5").least_nodes_in_racks(), code("8+2").least_nodes_in_racks()), (7, 10));
        let stored = ["copies", "raid5", "8+2", "4+2", "10+4"].map(|text| read(text).stored_per_user_byte(3));
        assert_eq!(stored, [3.0, 2.125, 1.25, 1.5, 1.4]);
    }
}
