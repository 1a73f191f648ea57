//! The records that are written, and the ledger of acknowledgements.
//!
//! Every record has numbers: an object (a file of one kind, by writer and round) and a version of it. Its bytes follow
//! from these numbers and contain a checksum, so that the ledger needs only numbers.

use std::collections::BTreeMap;
use std::fmt;

/// Bytes before a record's payload: magic, checksum, writer, round, kind, place, version, length of the payload.
pub const HEAD: usize = 64;
/// Places of a file that is overwritten, and the bytes of each.
pub const SLOTS: u64 = 16;
pub const SLOT_BYTES: usize = 8192;

const MAGIC: u64 = 0x4542_4250_4357_5431;

/// Kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Grows: record after record, each synced.
    Log,
    /// Overwritten at one of its places at a time.
    Slots,
    /// Written once, synced.
    Small,
    /// Replaced by another file's rename, its directory synced.
    Replaced,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Log, Self::Slots, Self::Small, Self::Replaced];

    fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Slots => "slots",
            Self::Small => "small",
            Self::Replaced => "replaced",
        }
    }
}

/// The place of a record in a file. A log's place is the number of the record, a small file's that of the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordKey {
    pub writer: u64,
    pub round: u64,
    pub kind: Kind,
    pub place: u64,
}

impl RecordKey {
    /// The file's name below the mount.
    pub fn file(&self) -> String {
        let Self { writer, round, kind, place } = self;
        match kind {
            Kind::Log | Kind::Slots => format!("w{writer}-r{round}-{}", kind.name()),
            Kind::Small | Kind::Replaced => format!("w{writer}-r{round}-{}-{place}", kind.name()),
        }
    }

    /// Its offset in the file.
    pub fn offset(&self, seed: u64) -> u64 {
        match self.kind {
            Kind::Log => (0..self.place).map(|place| self.at(place).bytes(seed) as u64).sum(),
            Kind::Slots => self.place * SLOT_BYTES as u64,
            Kind::Small | Kind::Replaced => 0,
        }
    }

    fn at(&self, place: u64) -> Self {
        Self { place, ..*self }
    }

    /// Length of a record here, with its head.
    pub fn bytes(&self, seed: u64) -> usize {
        let drawn = draw(seed, self.writer << 48 ^ self.round << 24 ^ (self.kind as u64) << 60 ^ self.place) as usize;
        match self.kind {
            Kind::Log => HEAD + drawn % 3000,
            Kind::Slots => SLOT_BYTES,
            // Some are of several chunks, most are not.
            Kind::Small | Kind::Replaced if drawn.is_multiple_of(8) => HEAD + drawn / 8 % 200_000,
            Kind::Small | Kind::Replaced => HEAD + drawn / 8 % 9000,
        }
    }

    /// The record of a version.
    pub fn record(&self, seed: u64, version: u64) -> Vec<u8> {
        let len = self.bytes(seed);
        let mut out = Vec::with_capacity(len + 8);
        let numbers = [MAGIC, 0, self.writer, self.round, self.kind as u64, self.place, version, (len - HEAD) as u64];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        let mut state = draw(seed, self.writer ^ self.round << 8 ^ self.place << 20 ^ version << 40);
        while out.len() < len {
            state = draw(state, 1);
            out.extend_from_slice(&state.to_le_bytes());
        }
        out.truncate(len);
        let sum = checksum(&out[16..]);
        out[8..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The version of the record at the beginning of these bytes, if it is a whole one of this place.
    pub fn version_in(&self, seed: u64, bytes: &[u8]) -> Option<u64> {
        let head = bytes.get(..HEAD)?;
        let version = u64::from_le_bytes(head[48..56].try_into().ok()?);
        // The bytes follow from the numbers, so the whole record is compared, with its checksum.
        (bytes.get(..self.bytes(seed))? == self.record(seed, version)).then_some(version)
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, record {}", self.file(), self.place)
    }
}

/// The versions at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Versions {
    /// The last version that an fsync has acknowledged; 0: none.
    pub acknowledged: u64,
    /// The last version that was tried.
    pub tried: u64,
}

/// All writes by place.
#[derive(Default)]
pub struct Ledger {
    pub seed: u64,
    pub round: u64,
    pub places: BTreeMap<RecordKey, Versions>,
    count: u64,
}

impl Ledger {
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Number of all acknowledgements.
    pub fn acknowledged(&self) -> u64 {
        self.count
    }

    /// Adds a writer's records.
    pub fn add(&mut self, written: BTreeMap<RecordKey, Versions>, acknowledged: u64) {
        for (place, noted) in written {
            let known = self.places.entry(place).or_default();
            known.acknowledged = known.acknowledged.max(noted.acknowledged);
            known.tried = known.tried.max(noted.tried);
        }
        self.count += acknowledged;
    }

    /// Removes the rounds before this one. Returns the names of their files.
    pub fn forget_before(&mut self, round: u64) -> Vec<String> {
        let old: Vec<RecordKey> = self.places.keys().filter(|place| place.round < round).copied().collect();
        let mut files: Vec<String> = old.iter().map(RecordKey::file).collect();
        files.dedup();
        for place in old {
            self.places.remove(&place);
        }
        files
    }
}

/// A number drawn by seed and place (splitmix64, Steele et al., OOPSLA 2014).
pub fn draw(seed: u64, place: u64) -> u64 {
    let mut z = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// FNV-1a of 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_known_again_and_a_changed_one_is_not() {
        for kind in Kind::ALL {
            let place = RecordKey { writer: 2, round: 3, kind, place: 5 };
            let record = place.record(7, 9);
            assert_eq!(record.len(), place.bytes(7));
            assert_eq!(place.version_in(7, &record), Some(9));
            for at in [0, 8, 20, 50, HEAD, record.len() - 1] {
                let mut bad = record.clone();
                bad[at] ^= 4;
                assert_eq!(place.version_in(7, &bad), None, "{kind:?} {at}");
            }
            assert_eq!(place.version_in(7, &record[..record.len() - 1]), None);
            assert_eq!(place.at(6).version_in(7, &record), None);
        }
    }
}
