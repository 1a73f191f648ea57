//! D1: hosts of a RAID set lose their power, as many as its code bears. Every byte of every file must come back.

use ebb_plan::{Cell, Comparison, Section};
use ebb_runtime::virt::Dice;
use ebb_types::{NodeId, RaidCode, Redundancy, Result};
use ebb_wire::pb;

use super::store::{COPIES, Found, Shape, Store, on};
use crate::part::{Effort, Lab};

pub const SOURCES: &[&str] = &["D1"];

const CODES: [RaidCode; 3] = [RaidCode::RAID5, RaidCode::single(4, 2), RaidCode::RAID6];
const METABLOCK: u64 = 1 << 20;
/// Lengths of files, in metablocks: whole RAID sets of one file, and of several.
const FILES: [u64; 12] = [8, 4, 4, 2, 2, 2, 2, 1, 1, 2, 2, 2];
/// Combinations of hosts that a quick run tries.
const SAMPLE: usize = 4;

/// One code under all losses that it bears.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    hosts: u32,
    lost: u32,
    combinations: usize,
    found: Found,
    user_bytes: u64,
    /// At rest, before anything was lost; trailers are those behind the rows.
    stored_bytes: u64,
    trailer_bytes: u64,
}

impl Seen {
    fn stored_per_user_byte(self) -> f64 {
        self.stored_bytes as f64 / self.user_bytes as f64
    }

    fn trailers_per_user_byte(self) -> f64 {
        self.trailer_bytes as f64 / self.user_bytes as f64
    }
}

/// Bytes behind the rows of RAID sets: checksums of their slots.
pub(super) fn trailer_bytes(sets: &[pb::RaidSet]) -> u64 {
    let of_set = |set: &pb::RaidSet| {
        let longest = set.slots.iter().map(|slot| slot.length).max().unwrap_or(0);
        let row = ebb_layout::raid::row_len_bytes(longest);
        set.rows.iter().map(|one| one.length - row).sum::<u64>()
    };
    sets.iter().map(of_set).sum()
}

/// All choices of so many of these.
fn combinations(nodes: &[NodeId], count: usize) -> Vec<Vec<NodeId>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        for mut rest in combinations(&nodes[at + 1..], count - 1) {
            rest.push(*node);
            all.push(rest);
        }
    }
    all
}

/// On as many hosts as one RAID set needs, so that nothing can be made again elsewhere.
fn run(seed: u64, code: RaidCode, lost: u32, effort: Effort) -> Result<Seen> {
    let hosts = Redundancy::Raid(code).least_nodes(COPIES);
    on(seed, Shape::of(hosts, code, METABLOCK), |mut store| async move {
        let directory = store.make_dataset("cold", Some(code)).await?;
        for metablocks in FILES {
            store.write(directory, metablocks * METABLOCK).await?;
        }
        let stored_bytes = store.wait_until_encoded().await?.stored_bytes;
        let trailer_bytes = trailer_bytes(&store.raid_sets().await?);
        let mut choices = combinations(&store.nodes().await?, lost as usize);
        Dice::new(seed, "hosts to lose").shuffle(&mut choices);
        choices.truncate(effort.of(choices.len(), SAMPLE));
        let mut found = Found::default();
        for (number, lost) in choices.iter().enumerate() {
            let one = read_without(&store, lost, &format!("reader{number}")).await?;
            found.right_bytes += one.right_bytes;
            found.wrong_bytes += one.wrong_bytes;
            found.degraded_reads += one.degraded_reads;
        }
        let (combinations, user_bytes) = (choices.len(), store.user_bytes());
        Ok(Seen { hosts, lost, combinations, found, user_bytes, stored_bytes, trailer_bytes })
    })
}

/// Reads everything while these are off; then they come back.
async fn read_without(store: &Store, lost: &[NodeId], reader: &str) -> Result<Found> {
    for node in lost {
        store.cluster.fail(*node)?;
    }
    let found = store.read_all(reader).await;
    for node in lost {
        store.cluster.repair(*node)?;
    }
    let is_whole = async || {
        let nodes = store.cluster.cluster_status().await?.nodes;
        let totals = store.totals().await?;
        Ok(nodes.iter().all(|node| node.state() == pb::NodeState::NodeLive)
            && totals.lost_some + totals.lost_too_many + totals.sealed_bytes == 0)
    };
    store.wait_until("whole RAID sets", is_whole).await?;
    found
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let bears = |code: RaidCode| Redundancy::Raid(code).tolerates(COPIES);
    let all = lab.map(&CODES, |code| run(lab.seed, *code, bears(*code), lab.effort))?;
    let mut section = Section::new("", &[]);
    for (code, seen) in CODES.iter().zip(all) {
        let name = Redundancy::Raid(*code).to_string();
        let of = if lab.effort == Effort::Full { "all" } else { "a sample of" };
        let why = format!(
            "{of} {} choices of {} hosts; {} reads were decoded.",
            seen.combinations, seen.lost, seen.found.degraded_reads
        );
        let all_bytes = seen.found.right_bytes + seen.found.wrong_bytes;
        let right = seen.found.right_bytes as f64 / all_bytes.max(1) as f64;
        let quantity =
            format!("{name}: bytes that come back right while any {} of {} hosts are off", seen.lost, seen.hosts);
        section.rows.push(Comparison::new("D1", quantity, Cell::Share(1.0, 0), Cell::Share(right, 0), why).bound(
            seen.found.wrong_bytes == 0 && seen.found.right_bytes == seen.user_bytes * seen.combinations as u64,
        ));
        let paper = Redundancy::Raid(*code).stored_per_user_byte(COPIES);
        let why = format!(
            "Of that {:.3} are checksums behind the rows, in whole chunks: a metablock of 1 MiB has more of them for its size than one of 64 MiB.",
            seen.trailers_per_user_byte()
        );
        let ours = seen.stored_per_user_byte();
        section.rows.push(Comparison::new(
            "D1",
            format!("{name}: stored for each user byte at rest"),
            Cell::Number(paper, 3),
            Cell::Number(ours, 3),
            why,
        ));
    }
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_and_two_bear_two_losses_and_not_three() {
        let code = CODES[1];
        let seen = run(5, code, 2, Effort::Quick).unwrap();
        assert_eq!((seen.found.wrong_bytes, seen.combinations), (0, SAMPLE), "{seen:?}");
        assert!(seen.found.degraded_reads > 0, "nothing was lost: {seen:?}");
        let plain = seen.stored_per_user_byte() - seen.trailers_per_user_byte();
        assert!((plain - 1.5).abs() < 1e-9, "{seen:?}");
        assert!(run(5, code, 3, Effort::Quick).unwrap().found.wrong_bytes > 0, "more is lost than the code bears");
    }

    #[test]
    fn choices_are_all_of_them() {
        let nodes: Vec<NodeId> = (1..=10).map(NodeId::new).collect();
        let pairs = combinations(&nodes, 2);
        assert_eq!(pairs.len(), 45);
        assert!(pairs.iter().all(|pair| pair[0] != pair[1]));
    }
}
