//! The systems that BlinkFS is compared with, each with its own layout and three copies (Sec. 6.2), and `tide`.

use std::collections::BTreeMap;

use ebb_power::PolicyKind;
use ebb_types::{NodeId, Result};

use crate::testbed::{Layout, Setting, Testbed, User};

/// A system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rival {
    /// Staggered blinking on the power-balanced layout.
    Blink,
    /// Activation on equal-work: two primaries, five nodes, two nodes.
    Rabbit,
    /// Blinking in proportion to the reads, on files that were arranged by their popularity beforehand: first copies of
    /// the most popular ninth on the first node, and so on; the other copies anywhere.
    LoadProportional,
    /// Ours, on Rabbit's layout.
    Tide,
}

impl Rival {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Blink, Self::Rabbit, Self::LoadProportional, Self::Tide];

    /// As figures name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blink => "blinking",
            Self::Rabbit => "Rabbit",
            Self::LoadProportional => "load-proportional",
            Self::Tide => "tide",
        }
    }

    /// The policy that decides which nodes sleep.
    #[must_use]
    pub const fn policy(self) -> PolicyKind {
        match self {
            Self::Blink => PolicyKind::BlinkStaggered,
            Self::Rabbit => PolicyKind::Activation,
            Self::LoadProportional => PolicyKind::LoadProportional,
            Self::Tide => PolicyKind::Tide,
        }
    }

    /// How its data lies.
    #[must_use]
    pub const fn layout(self) -> Layout {
        match self {
            Self::Blink => Layout::balanced(3),
            Self::LoadProportional => Layout::RANDOM,
            Self::Rabbit | Self::Tide => Layout::equal_work(2, 3),
        }
    }

    /// This cluster with this system on it.
    #[must_use]
    pub const fn on(self, setting: Setting) -> Setting {
        Setting { policy: self.policy(), layout: self.layout(), ..setting }
    }

    /// Nodes of the first copies of files of these popularities; none where the layout decides.
    #[must_use]
    pub fn homes(self, nodes: u32, popularity: &[f64]) -> Vec<u32> {
        if self != Self::LoadProportional {
            return Vec::new();
        }
        let mut order: Vec<usize> = (0..popularity.len()).collect();
        order.sort_by(|one, other| popularity[*other].total_cmp(&popularity[*one]).then(one.cmp(other)));
        let mut homes = vec![0; popularity.len()];
        for (rank, file) in order.into_iter().enumerate() {
            homes[file] = (rank * nodes as usize / popularity.len()) as u32;
        }
        homes
    }

    /// Gives the policy the reads of each node's data, if it goes by that: `reads` of each block, as in an initial run.
    pub async fn prepare(self, bed: &mut Testbed, user: &User, reads: impl Fn(usize) -> f64) -> Result<()> {
        if self != Self::LoadProportional {
            return Ok(());
        }
        let mut popularity: BTreeMap<NodeId, f64> = BTreeMap::new();
        for (block, record) in bed.maps(user).await?.into_iter().flatten().enumerate() {
            for member in &record.members {
                *popularity.entry(NodeId::new(member.node)).or_default() += reads(block) / record.members.len() as f64;
            }
        }
        bed.direct(popularity);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_files_come_to_the_first_nodes() {
        assert_eq!(Rival::LoadProportional.homes(2, &[1.0, 9.0, 2.0, 5.0]), [1, 0, 1, 0]);
        assert!(Rival::Blink.homes(2, &[1.0, 2.0]).is_empty());
    }
}
