//! What a dataset has in RAID sets, in lines and as JSON.

use std::time::Duration;

use ebb_cli::output::{counted, human_bytes};
use ebb_types::{Encode, Redundancy};
use ebb_wire::pb;
use serde_json::json;

/// Overwriting less than this within a day is nothing to speak of: a metablock.
const THAWED_LEAST: u64 = 64 << 20;
/// The part of what is encoded from which on overwriting it within a day is worth a warning.
const THAWED_PART: f64 = 0.1;

fn redundancy(dataset: &pb::RaidDataset) -> Redundancy {
    Redundancy::from_raw(dataset.code.unwrap_or_default().into()).unwrap_or_default()
}

/// Whether there is anything to say of RAID sets.
pub fn has_any(dataset: &pb::RaidDataset) -> bool {
    redundancy(dataset) != Redundancy::Copies || sets(dataset) > 0
}

fn sets(dataset: &pb::RaidDataset) -> u64 {
    dataset.whole + dataset.lost_some + dataset.lost_too_many
}

fn user_bytes(dataset: &pb::RaidDataset) -> u64 {
    let parts = [
        dataset.encoded_bytes,
        dataset.sealed_bytes,
        dataset.due_bytes,
        dataset.young_bytes,
        dataset.short_bytes,
        dataset.unready_bytes,
    ];
    parts.iter().sum()
}

/// Bytes on disks for each byte of files.
fn overhead(dataset: &pb::RaidDataset) -> f64 {
    let user = user_bytes(dataset);
    if user == 0 { 0.0 } else { dataset.stored_bytes as f64 / user as f64 }
}

/// In lines.
pub fn lines(dataset: &pb::RaidDataset) -> Vec<String> {
    let scheme = match redundancy(dataset) {
        Redundancy::Copies => "copies from now on; what is encoded leads back to them".to_owned(),
        Redundancy::Raid(code) => {
            let ideal = code.stored_per_user_byte();
            match Encode::from_raw(dataset.encode).unwrap_or_default() {
                Encode::Background => {
                    let delay = humantime::format_duration(Duration::from_millis(dataset.delay_ms));
                    format!("{code}, ideal {ideal:.2}, after {delay}")
                }
                Encode::Immediate => format!("{code}, ideal {ideal:.2}, as soon as written"),
                Encode::Off => format!("{code}, ideal {ideal:.2}, nothing more is encoded"),
            }
        }
    };
    let mut lines = vec![format!(
        "{scheme}: {} of files on {} of disks ({:.2})",
        human_bytes(user_bytes(dataset)),
        human_bytes(dataset.stored_bytes),
        overhead(dataset)
    )];
    let waits = match redundancy(dataset) {
        Redundancy::Copies => vec![
            (dataset.encoded_bytes, "encoded"),
            (dataset.sealed_bytes, "in copies again, whose RAID sets end next"),
        ],
        Redundancy::Raid(_) => vec![
            (dataset.encoded_bytes, "encoded"),
            (dataset.sealed_bytes, "encoded, whose copies go next"),
            (dataset.due_bytes, "due"),
            (dataset.young_bytes, "too young"),
            (dataset.short_bytes, "in metablocks that are too short, which stay in copies"),
            (dataset.unready_bytes, "whose copies are missing, away from home or being changed"),
        ],
    };
    let said = waits.iter().filter(|(bytes, _)| *bytes > 0);
    lines.extend(said.map(|(bytes, what)| format!("{} {what}", human_bytes(*bytes))));
    if !dataset.waits.is_empty() {
        lines.push(format!("what is due waits: {}", dataset.waits));
    }
    if dataset.dead_bytes > 0 {
        let part = 100.0 * dataset.dead_bytes as f64 / dataset.stored_bytes.max(1) as f64;
        lines.push(format!(
            "{} dead ({part:.1} % of the disks' bytes): no file has them, and RAID sets need them until they are repacked",
            human_bytes(dataset.dead_bytes)
        ));
    }
    if dataset.thawed_bytes > 0 {
        lines.push(format!(
            "{} thawed within a day: overwritten after they were encoded",
            human_bytes(dataset.thawed_bytes)
        ));
    }
    let mut state = format!("{}: {} whole", counted(sets(dataset), "RAID set"), dataset.whole);
    if dataset.lost_some > 0 {
        state += &format!(", {} have lost parts and can be read", dataset.lost_some);
    }
    if dataset.lost_too_many > 0 {
        state += &format!(", {} have parts that cannot be read now", dataset.lost_too_many);
    }
    lines.push(state);
    lines
}

/// A warning where so much is overwritten that copies would be better.
pub fn warning(dataset: &pb::RaidDataset) -> Option<String> {
    let (thawed, encoded) = (dataset.thawed_bytes, dataset.encoded_bytes + dataset.sealed_bytes);
    let is_much = thawed >= THAWED_LEAST && thawed as f64 > THAWED_PART * encoded as f64;
    let by = "`ebb dataset set --redundancy copies`, or a longer --delay";
    is_much.then(|| {
        format!(
            "warning: {}: {} of encoded data were overwritten within a day, and {} are encoded. Each first overwrite copies a \
             whole metablock, and leaves a dead one: {by} would spare that",
            dataset.path,
            human_bytes(thawed),
            human_bytes(encoded)
        )
    })
}

/// As JSON.
pub fn raid_json(dataset: &pb::RaidDataset) -> serde_json::Value {
    json!({
        "path": dataset.path, "redundancy": redundancy(dataset).to_string(),
        "encode": Encode::from_raw(dataset.encode).unwrap_or_default().to_string(), "delay_ms": dataset.delay_ms,
        "user_bytes": user_bytes(dataset), "stored_bytes": dataset.stored_bytes, "overhead": overhead(dataset),
        "encoded_bytes": dataset.encoded_bytes, "sealed_bytes": dataset.sealed_bytes, "due_bytes": dataset.due_bytes,
        "waits": dataset.waits,
        "young_bytes": dataset.young_bytes, "short_bytes": dataset.short_bytes, "unready_bytes": dataset.unready_bytes,
        "row_bytes": dataset.row_bytes, "dead_bytes": dataset.dead_bytes, "thawed_bytes": dataset.thawed_bytes,
        "whole": dataset.whole, "lost_some": dataset.lost_some, "lost_too_many": dataset.lost_too_many,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_says_what_waits_for_what() {
        let code = Some(pb::RaidCode { copies: 1, slots: 4, rows: 2, domain: 0 });
        let dataset = pb::RaidDataset {
            code,
            delay_ms: 5_000,
            encoded_bytes: 4 << 20,
            young_bytes: 1 << 20,
            stored_bytes: 9 << 20,
            dead_bytes: 1 << 20,
            whole: 3,
            lost_some: 1,
            ..Default::default()
        };
        let text = lines(&dataset).join("\n");
        for words in [
            "4+2, ideal 1.50, after 5s",
            "(1.80)",
            "4.0 MiB encoded",
            "too young",
            "11.1 %",
            "4 RAID sets: 3 whole, 1 have",
        ] {
            assert!(text.contains(words), "{words} is not in:\n{text}");
        }
        assert!(!text.contains("due") && !text.contains("thawed"), "{text}");
        assert_eq!(warning(&dataset), None);
        let back = pb::RaidDataset { code: None, sealed_bytes: 1 << 20, due_bytes: 1, ..dataset.clone() };
        let text = lines(&back).join("\n");
        assert!(text.contains("1.0 MiB in copies again") && !text.contains("due"), "{text}");
        let waiting = pb::RaidDataset { due_bytes: 1 << 20, waits: "n3 sleeps".to_owned(), ..dataset.clone() };
        let text = lines(&waiting).join("\n");
        assert!(text.contains("1.0 MiB due") && text.contains("what is due waits: n3 sleeps"), "{text}");
        let worn = pb::RaidDataset { thawed_bytes: 64 << 20, path: "/mail".to_owned(), ..dataset.clone() };
        assert!(lines(&worn).join("\n").contains("64.0 MiB thawed"));
        assert!(
            warning(&worn).is_some_and(|text| text.contains("/mail: 64.0 MiB") && text.contains("--redundancy copies"))
        );
        assert_eq!(warning(&pb::RaidDataset { encoded_bytes: 1 << 30, ..worn }), None, "a sixteenth of it");
        assert!(has_any(&dataset) && !has_any(&pb::RaidDataset::default()));
    }
}
