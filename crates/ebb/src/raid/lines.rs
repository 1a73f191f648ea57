//! What a dataset has in RAID sets, in lines and as JSON.

use std::time::Duration;

use ebb_cli::output::{counted, human_bytes};
use ebb_types::{Encode, RaidCode, Redundancy};
use ebb_wire::pb;
use serde_json::json;

fn redundancy(dataset: &pb::RaidDataset) -> Redundancy {
    let raw = dataset.code.unwrap_or_default();
    let code = RaidCode { copies: raw.copies, slots: raw.slots, rows: raw.rows };
    Redundancy::from_raw(code).unwrap_or_default()
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
    let waits = [
        (dataset.encoded_bytes, "encoded"),
        (dataset.sealed_bytes, "encoded, whose copies go next"),
        (dataset.due_bytes, "due"),
        (dataset.young_bytes, "too young"),
        (dataset.short_bytes, "in metablocks that are too short, which stay in copies"),
        (dataset.unready_bytes, "whose copies are missing, away from home or being changed"),
    ];
    let said = waits.iter().filter(|(bytes, _)| *bytes > 0);
    lines.extend(said.map(|(bytes, what)| format!("{} {what}", human_bytes(*bytes))));
    if dataset.dead_bytes > 0 {
        let part = 100.0 * dataset.dead_bytes as f64 / dataset.stored_bytes.max(1) as f64;
        lines.push(format!(
            "{} dead ({part:.1} % of the disks' bytes): no file has them, and RAID sets need them until they are repacked",
            human_bytes(dataset.dead_bytes)
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

/// As JSON.
pub fn raid_json(dataset: &pb::RaidDataset) -> serde_json::Value {
    json!({
        "path": dataset.path, "redundancy": redundancy(dataset).to_string(),
        "encode": Encode::from_raw(dataset.encode).unwrap_or_default().to_string(), "delay_ms": dataset.delay_ms,
        "user_bytes": user_bytes(dataset), "stored_bytes": dataset.stored_bytes, "overhead": overhead(dataset),
        "encoded_bytes": dataset.encoded_bytes, "sealed_bytes": dataset.sealed_bytes, "due_bytes": dataset.due_bytes,
        "young_bytes": dataset.young_bytes, "short_bytes": dataset.short_bytes, "unready_bytes": dataset.unready_bytes,
        "row_bytes": dataset.row_bytes, "dead_bytes": dataset.dead_bytes,
        "whole": dataset.whole, "lost_some": dataset.lost_some, "lost_too_many": dataset.lost_too_many,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_says_what_waits_for_what() {
        let code = Some(pb::RaidCode { copies: 1, slots: 4, rows: 2 });
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
        assert!(!text.contains("due"), "{text}");
        assert!(has_any(&dataset) && !has_any(&pb::RaidDataset::default()));
    }
}
