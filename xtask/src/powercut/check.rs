//! Reads everything back and compares it with the ledger.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::record::{Kind, Ledger, RecordKey, Versions};

/// Acknowledged records that are missing, or older than the acknowledged version, in sentences. A version that was
/// tried and not acknowledged may be there or not. It must not replace half of an acknowledged record, except in an
/// overwrite in place.
pub fn read_back(mount: &Path, ledger: &Ledger) -> Vec<String> {
    let mut lost = Vec::new();
    let mut open: Option<(String, Result<Vec<u8>, String>)> = None;
    for (place, known) in ledger.places.iter().filter(|(_, known)| known.acknowledged > 0) {
        let file = place.file();
        if open.as_ref().is_none_or(|(name, _)| *name != file) {
            open = Some((file.clone(), read(&mount.join(&file))));
        }
        let Some((_, content)) = &open else { continue };
        let found = match content {
            Ok(bytes) => check_place(place, known, bytes, ledger.seed),
            Err(sentence) => Err(sentence.clone()),
        };
        if let Err(sentence) = found {
            lost.push(format!("{place}: {sentence}"));
        }
    }
    lost
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Err("the file is gone".to_owned()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// Whether the file has, at this place, the acknowledged version or one that was tried after it.
fn check_place(place: &RecordKey, known: &Versions, bytes: &[u8], seed: u64) -> Result<(), String> {
    let Versions { acknowledged, tried } = *known;
    let offset = usize::try_from(place.offset(seed)).map_err(|_| "its place is not known".to_owned())?;
    let record = bytes.get(offset..).unwrap_or_default();
    match place.version_in(seed, record) {
        Some(version) if (acknowledged..=tried).contains(&version) => Ok(()),
        Some(version) => Err(format!("version {version}, but {acknowledged} was acknowledged")),
        // An unacknowledged overwrite may be there by half: POSIX promises no more of a write in place.
        None if place.kind == Kind::Slots && tried > acknowledged && is_mixture(place, known, record, seed) => Ok(()),
        None => {
            Err(format!("at {offset} of {} bytes is no whole record; {acknowledged} was acknowledged", bytes.len()))
        }
    }
}

/// Whether each byte is that of a version that may be there.
fn is_mixture(place: &RecordKey, known: &Versions, record: &[u8], seed: u64) -> bool {
    let versions: Vec<Vec<u8>> =
        (known.acknowledged..=known.tried).map(|version| place.record(seed, version)).collect();
    let len = place.bytes(seed);
    record.len() >= len && (0..len).all(|at| versions.iter().any(|version| version[at] == record[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_missing_and_torn_records_are_found() {
        let slot = RecordKey { writer: 1, round: 1, kind: Kind::Slots, place: 0 };
        let known = Versions { acknowledged: 3, tried: 4 };
        let version = |version| slot.record(7, version);
        assert!(check_place(&slot, &known, &version(3), 7).is_ok());
        assert!(check_place(&slot, &known, &version(4), 7).is_ok());
        assert!(check_place(&slot, &known, &version(2), 7).is_err(), "an old version");
        assert!(check_place(&slot, &known, &[], 7).is_err(), "nothing");
        let half = [&version(3)[..4096], &version(4)[4096..]].concat();
        assert!(check_place(&slot, &known, &half, 7).is_ok(), "version 4 was not acknowledged");
        let done = Versions { acknowledged: 4, tried: 4 };
        assert!(check_place(&slot, &done, &half, 7).is_err());
        let zeros = [&version(4)[..4096], &vec![0; 4096][..]].concat();
        assert!(check_place(&slot, &known, &zeros, 7).is_err(), "bytes of no version");
    }
}
