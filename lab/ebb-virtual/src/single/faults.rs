//! Faults of one block server: it comes back with all that it had synced.

use std::fmt;
use std::time::Duration;

use ebb_runtime::virt::{Dice, World};

use crate::cluster::{Cluster, Member, Role};

/// Hosts that talk to block servers.
const OTHERS: [&str; 6] = ["master", "proxy-1", "observer", "operator", "c0", "c1"];

/// How a block server is impaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// It gets no processor.
    Frozen,
    /// Its process is killed.
    Killed,
    /// Its host has no power.
    Off,
    /// No process reaches it.
    CutOff,
    /// It receives, and no process hears it.
    Mute,
    /// The master does not reach it, and all others do.
    CutFromMaster,
    /// One client does not reach it, and all others do.
    CutFromClient,
}

const ALL: [How; 7] =
    [How::Frozen, How::Killed, How::Off, How::CutOff, How::Mute, How::CutFromMaster, How::CutFromClient];

/// A fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    how: How,
    member: Member,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.member.process.name(), self.how)
    }
}

/// For moments, for longer than a set takes to change, and for longer than a node lives without a word.
pub(super) fn span(dice: &mut Dice) -> Duration {
    let (from, to) = *dice.pick(&[(500, 3_000), (5_000, 15_000), (8_000, 25_000), (33_000, 50_000)]);
    dice.span_between(Duration::from_millis(from), Duration::from_millis(to))
}

impl Fault {
    pub(super) fn draw(cluster: &Cluster, dice: &mut Dice) -> Self {
        let blocks: Vec<_> = cluster.members().iter().filter(|member| member.role == Role::Block).collect();
        Self { how: *dice.pick(&ALL), member: (*dice.pick(&blocks)).clone() }
    }

    pub(super) fn inject(&self, cluster: &Cluster) {
        let process = &self.member.process;
        match self.how {
            How::Frozen => process.freeze(),
            How::Killed => process.kill(),
            How::Off => process.power_off(),
            _ => self.each_cut(cluster, World::partition_one_way),
        }
    }

    pub(super) fn end(&self, cluster: &Cluster) {
        match self.how {
            How::Frozen => self.member.process.thaw(),
            How::Killed | How::Off => cluster.restart(&self.member),
            _ => self.each_cut(cluster, World::mend_one_way),
        }
    }

    /// Each direction between two hosts that is cut.
    fn each_cut(&self, cluster: &Cluster, apply: impl Fn(&World, &str, &str)) {
        let own = self.member.process.host();
        let blocks = cluster.members().iter().filter(|member| member.role == Role::Block);
        let blocks: Vec<&str> = blocks.map(|member| member.process.host()).filter(|host| *host != own).collect();
        let others = match self.how {
            // The master's own proxy is cut off with it.
            How::CutFromMaster => vec!["master"],
            How::CutFromClient => vec!["c0"],
            _ => OTHERS.iter().copied().chain(blocks).collect(),
        };
        for other in others {
            apply(cluster.world(), own, other);
            if self.how != How::Mute {
                apply(cluster.world(), other, own);
            }
        }
    }
}
