//! X2: encoding where full power is rare. What is due waits in copies until the nodes of a RAID set serve together.

use std::time::Duration;

use ebb_plan::{Cell, Comparison, Section};
use ebb_power::{PolicyKind, Supply};
use ebb_types::{RaidCode, Redundancy, Result};

use super::power::{COPIES, FOUR_AND_TWO, NODES, supply_for};
use crate::hardware::MACHINES;
use crate::part::Lab;
use crate::testbed::{Layout, Setting, on};

const CODES: [RaidCode; 2] = [FOUR_AND_TWO, RaidCode::RAID6];
/// Nodes that the supply pays for.
const PAID: [u32; 4] = [8, 12, 16, 18];
/// Time at that supply, in intervals.
const INTERVALS: u32 = 10;
/// Most time with full power.
const FULL_WITHIN: Duration = Duration::from_secs(1_800);
/// Nearly everything: the last blocks may be too few for a RAID set.
const NEARLY_ALL: f64 = 0.9;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Case {
    code: RaidCode,
    policy: PolicyKind,
    paid: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    /// Part of the bytes that was encoded after all intervals with less power.
    with_less: f64,
    /// Seconds of full power until nearly all the rest was.
    with_all_s: f64,
}

impl Case {
    fn run(self, seed: u64, blocks: u32) -> Result<Seen> {
        let layout = Layout::balanced(COPIES);
        let setting =
            Setting { code: Some(self.code), encoded: false, ..Setting::of(NODES, self.policy, layout, blocks) };
        on(seed, setting, |bed| async move {
            let user = bed.user("operator", None).await?;
            bed.supply_and_wait(supply_for(self.paid, NODES)).await?;
            bed.make_due(&user).await?;
            bed.world.sleep(MACHINES.interval * INTERVALS).await;
            let with_less = bed.encoded_share().await?;
            bed.supply(Supply::Fraction(1.0)).await?;
            let began = bed.world.now();
            while bed.encoded_share().await? < NEARLY_ALL && bed.world.now() - began < FULL_WITHIN {
                bed.world.sleep(Duration::from_secs(1)).await;
            }
            Ok(Seen { with_less, with_all_s: (bed.world.now() - began).as_secs_f64() })
        })
    }
}

/// Rows of the table.
pub fn rows(lab: &Lab<'_>, section: &mut Section) -> Result<()> {
    let (blocks, paid) = lab.effort.of((160, &PAID[..]), (64, &PAID[2..]));
    let mut cases = Vec::new();
    for (code, paid) in CODES.into_iter().flat_map(|code| paid.iter().map(move |paid| (code, *paid))) {
        cases.extend([PolicyKind::BlinkCircular, PolicyKind::Tide].map(|policy| Case { code, policy, paid }));
    }
    let seen = lab.map(&cases, |case| case.run(lab.seed, blocks))?;
    for (pair, seen) in cases.chunks(2).zip(seen.chunks(2)) {
        let (Case { code, paid, .. }, [circular, tide]) = (pair[0], [seen[0], seen[1]]);
        let expected = if meets_with(code, paid) { 1.0 } else { 0.0 };
        let quantity = format!(
            "{}, power for {paid} of {NODES} nodes: encoded within {INTERVALS} intervals",
            Redundancy::Raid(code)
        );
        let why = format!(
            "Beside it: the model. A RAID set's members lie at even distances on the circle, and are all on if the nodes that sleep fit \
             between two of them. With full power the rest took {:.0} s, of which up to {:.0} pass before the next plan. tide: {}, \
             {:.0} s.",
            circular.with_all_s,
            MACHINES.interval.as_secs_f64(),
            Cell::Share(tide.with_less, 0).human(),
            tide.with_all_s,
        );
        section.rows.push(
            Comparison::new("X2", quantity, Cell::Share(expected, 0), Cell::Share(circular.with_less, 0), why)
                .bound((circular.with_less - expected).abs() <= 0.2),
        );
    }
    Ok(())
}

/// Whether all members of a RAID set are ever on together, where so many neighbours on the circle are on at a time.
fn meets_with(code: RaidCode, paid: u32) -> bool {
    (NODES - paid) * (code.slots + code.rows) < NODES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_waits_for_the_nodes_of_a_raid_set_to_be_on_together() {
        let run = |code, paid| Case { code, policy: PolicyKind::BlinkCircular, paid }.run(3, 64).unwrap();
        let few = run(FOUR_AND_TWO, 12);
        assert!(!meets_with(FOUR_AND_TWO, 12) && few.with_less < 0.1 && few.with_all_s < 180.0, "{few:?}");
        let many = run(FOUR_AND_TWO, 18);
        assert!(meets_with(FOUR_AND_TWO, 18) && many.with_less >= NEARLY_ALL, "{many:?}");
    }
}
