//! The kinds of faults, how each begins and how it is undone.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use ebb_runtime::virt::{Dice, DiskFaults, World};

use super::{drain, links, master_disk, returns};
use crate::cluster::{Cluster, Member, Role};

/// Where a block server keeps everything.
pub const BLOCK_DIR: &str = "/block";

/// Its volume.
pub const VOLUME_DIR: &str = "/block/volume-1";

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

impl fmt::Display for Kind {
    /// In words: `OneWay` is "one way".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        let lower = name.char_indices().map(|(at, letter)| match letter.is_ascii_uppercase() && at > 0 {
            true => format!(" {}", letter.to_ascii_lowercase()),
            false => letter.to_ascii_lowercase().to_string(),
        });
        f.write_str(&lower.collect::<String>())
    }
}

kinds! {
    /// Power fails and comes back; unsynced writes are lost or torn.
    Crash,
    /// Power stays away for a while, and peers hear nothing.
    PowerOff,
    /// Power fails everywhere at once.
    PowerCut,
    /// The process is killed; its page cache stays.
    Kill,
    /// The process gets no processor.
    Freeze,
    /// A client gets no processor until its lease has expired.
    Oversleep,
    /// Two hosts cannot reach each other.
    Partition,
    /// Nothing gets from one host to another, but the other way it does.
    OneWay,
    /// A host is cut off from all others.
    Isolate,
    /// A disk takes far longer.
    SlowDisk,
    /// Something else fills a disk, and is gone after a while.
    FullDisk,
    /// The wall clock jumps.
    Skew,
    /// A disk fails some reads, writes and syncs.
    DiskError,
    /// Bits of stored replicas flip.
    BitFlip,
    /// A write goes to another place of its file.
    Misdirect,
    /// A disk is replaced by an empty one.
    LostVolume,
    /// A host is gone for good.
    LostNode,
    /// Power fails everywhere at once, and one host never comes back.
    PartialReturn,
    /// Power fails everywhere at once; hosts come back one by one, some after sessions have ended.
    StaggeredReturn,
    /// Block servers are started again one after the other, and a client dies meanwhile.
    RollingRestart,
    /// A host is away until it counts as dead, and comes back with data that are out of date by then.
    Absence,
    /// An operator drains a node.
    Drain,
    /// A proxy's process is killed or asked to end, or the master's with the proxy in it is killed, and soon started again.
    LostProxy,
    /// The master's disk fails once and is good again; the master is started on the contents of the cache, then its
    /// power fails.
    MasterError,
    /// A bit of a file of the master flips, and the master is started again.
    MasterRot,
    /// A client reaches the master and no block server.
    ClientCut,
    /// The links of a host lose segments, or are slow, or narrow.
    GrayLink,
    /// A host's power fails and stays away for a while, and everything on it ends: a block server, and a client beside it.
    Host,
}

impl Kind {
    /// Whether something that was synced is gone or wrong afterwards.
    #[must_use]
    pub fn mars(self) -> bool {
        matches!(
            self,
            Self::DiskError | Self::BitFlip | Self::Misdirect | Self::LostVolume | Self::LostNode | Self::PartialReturn
        )
    }

    /// Whether a block server or proxy may lose what it has received and not synced.
    #[must_use]
    pub fn forgets(self, role: Role) -> bool {
        match self {
            Self::Freeze | Self::Oversleep | Self::Partition | Self::OneWay | Self::Isolate => false,
            Self::SlowDisk | Self::Skew | Self::ClientCut | Self::GrayLink => false,
            Self::Crash | Self::PowerOff | Self::Kill => !matches!(role, Role::Client(_)),
            _ => true,
        }
    }

    /// Whether it can befall a process of this role.
    #[must_use]
    pub fn befalls(self, role: Role) -> bool {
        match self {
            // A client has nothing on disk, and the master's disk has faults of its own.
            Self::DiskError | Self::BitFlip | Self::Misdirect | Self::LostVolume | Self::LostNode => {
                role == Role::Block
            }
            Self::PartialReturn | Self::StaggeredReturn | Self::RollingRestart | Self::Absence | Self::Drain => {
                role == Role::Block
            }
            Self::Host => role == Role::Block,
            Self::LostProxy => matches!(role, Role::Master | Role::Proxy),
            Self::MasterError | Self::MasterRot => role == Role::Master,
            Self::SlowDisk | Self::FullDisk => !matches!(role, Role::Client(_)),
            Self::Oversleep | Self::ClientCut => matches!(role, Role::Client(_)),
            _ => true,
        }
    }

    /// How long it lasts.
    #[must_use]
    pub fn span(self, role: Role, dice: &mut Dice) -> Duration {
        let is_client = matches!(role, Role::Client(_));
        match self {
            // A session ends after ten seconds; messages under way then arrive late.
            Self::Oversleep => dice.span_between(Duration::from_secs(9), Duration::from_secs(16)),
            Self::Isolate if is_client && dice.coin() => {
                dice.span_between(Duration::from_secs(9), Duration::from_secs(16))
            }
            // A node is dead after thirty; longer is another fault.
            Self::Absence => dice.span_between(Duration::from_secs(31), Duration::from_secs(45)),
            // Sessions end after ten seconds, and nodes are dead after thirty.
            Self::StaggeredReturn | Self::RollingRestart => {
                dice.span_between(Duration::from_secs(8), Duration::from_secs(28))
            }
            Self::MasterError => master_disk::error_span(dice),
            // Up to a minute members may come back, and nothing is given up.
            Self::ClientCut => dice.span_between(Duration::from_secs(1), Duration::from_secs(90)),
            Self::LostVolume | Self::PowerCut | Self::PartialReturn | Self::LostProxy => {
                dice.span(Duration::from_secs(3))
            }
            _ => {
                let span = dice.span_between(Duration::from_millis(50), Duration::from_secs(15));
                // Frequent short ones meet other edges than rare long ones.
                if dice.coin() { span / 10 } else { span }
            }
        }
    }
}

/// How a fault is undone.
pub type Undo = Box<dyn FnOnce(&Cluster) + Send>;

/// A fault that is about to begin.
pub struct Fault {
    /// Its kind.
    pub kind: Kind,
    /// Whom.
    pub member: Member,
    /// The other end of a partition.
    pub other: Member,
}

impl Fault {
    /// Block servers that some process cannot reach while it lasts.
    #[must_use]
    pub fn impaired(&self, cluster: &Cluster) -> Vec<String> {
        // A fault of a host's network or power also hits a block server beside the process that was drawn.
        let blocks = |members: &[&Member]| {
            let hosts: BTreeSet<&str> = members.iter().map(|member| member.process.host()).collect();
            let blocks = cluster.members().iter().filter(|member| member.role == Role::Block);
            let there = blocks.filter(|member| hosts.contains(member.process.host()));
            there.map(|member| member.process.name().to_owned()).collect::<Vec<_>>()
        };
        match self.kind {
            Kind::PowerCut | Kind::StaggeredReturn | Kind::RollingRestart => {
                blocks(&cluster.members().iter().collect::<Vec<_>>())
            }
            Kind::Partition | Kind::OneWay => blocks(&[&self.member, &self.other]),
            // All but one are back in a moment, with everything.
            Kind::Skew | Kind::Drain | Kind::PartialReturn => Vec::new(),
            _ => blocks(&[&self.member]),
        }
    }

    /// Lets it happen.
    pub fn inject(self, cluster: &Cluster, world: &World, dice: &mut Dice) -> Undo {
        let Self { kind, member, other } = self;
        let process = &member.process;
        let again = member.clone();
        match kind {
            Kind::LostProxy if member.role == Role::Proxy && dice.coin() => {
                world.add_event("proxy_ends", &[]);
                cluster.ask_to_end(&member);
                Box::new(move |cluster| {
                    again.process.kill();
                    cluster.restart(&again);
                })
            }
            Kind::Crash | Kind::PowerOff | Kind::Kill | Kind::LostProxy => {
                match kind {
                    Kind::Crash => process.crash(),
                    Kind::PowerOff => process.power_off(),
                    _ => process.kill(),
                }
                cluster.on_death(&member);
                Box::new(move |cluster| cluster.restart(&again))
            }
            Kind::PowerCut | Kind::PartialReturn => {
                for member in cluster.members() {
                    member.process.power_off();
                    cluster.on_death(member);
                }
                if kind == Kind::PartialReturn {
                    cluster.give_up(&member);
                }
                Box::new(|cluster| cluster.members().iter().for_each(|member| cluster.restart(member)))
            }
            Kind::Host => {
                let host = process.host().to_owned();
                let is_there = move |other: &&Member| other.process.host() == host;
                for other in cluster.members().iter().filter(&is_there) {
                    other.process.power_off();
                    cluster.on_death(other);
                }
                Box::new(move |cluster| {
                    cluster.members().iter().filter(is_there).for_each(|other| cluster.restart(other))
                })
            }
            Kind::StaggeredReturn => returns::begin_staggered(cluster, &member, dice),
            Kind::RollingRestart => returns::begin_rolling(cluster, dice),
            Kind::Freeze | Kind::Oversleep => {
                process.freeze();
                Box::new(move |_| again.process.thaw())
            }
            Kind::GrayLink => links::begin_gray(cluster, world, &member, dice),
            Kind::Partition | Kind::OneWay | Kind::Isolate | Kind::ClientCut => {
                cut(cluster, world, kind, &member, &other)
            }
            Kind::SlowDisk => {
                process.slow_disk(dice.between(10, 1000) as f64);
                Box::new(move |_| again.process.slow_disk(1.0))
            }
            Kind::FullDisk => {
                process.fill_disk(Some(dice.below(4 << 20)));
                Box::new(move |_| again.process.fill_disk(None))
            }
            Kind::Skew => {
                let hour: u64 = 3_600_000_000_000;
                // Now and then by decades: a clock whose battery is empty is back before every file was made.
                let span = if dice.chance(0.2) { 24 * 365 * 30 * hour } else { hour };
                process.skew(dice.between(0, 2 * span).cast_signed() - span.cast_signed());
                Box::new(move |_| again.process.skew(0))
            }
            Kind::DiskError => {
                let chance = |dice: &mut Dice| if dice.coin() { 0.02 } else { 0.0 };
                process.disk_faults(DiskFaults {
                    read_error: chance(dice),
                    write_error: chance(dice),
                    sync_error: chance(dice),
                });
                Box::new(move |_| again.process.disk_faults(DiskFaults::default()))
            }
            Kind::BitFlip => {
                flip(&member, dice);
                Box::new(|_| {})
            }
            Kind::Misdirect => {
                process.misdirect_write(if dice.coin() { "replicas" } else { "journal" });
                Box::new(move |_| again.process.cancel_misdirection())
            }
            Kind::LostVolume => {
                process.power_off();
                // The whole disk, or one directory of it: a volume whose label is gone with it.
                let all = dice.coin();
                process.wipe_disk(Path::new(if all { BLOCK_DIR } else { VOLUME_DIR }));
                Box::new(move |cluster| cluster.restart(&again))
            }
            Kind::Absence => {
                process.power_off();
                cluster.set_away(&member, true);
                Box::new(move |cluster| {
                    cluster.set_away(&again, false);
                    cluster.restart(&again);
                })
            }
            Kind::Drain => drain::begin_drain(cluster, &member, dice),
            Kind::MasterError => master_disk::begin_error(&member, dice),
            Kind::MasterRot => master_disk::begin_rot(cluster, &member, dice),
            Kind::LostNode => {
                let on_host = cluster.members().iter().filter(|other| other.process.host() == process.host()).count();
                // Power that stays away would keep the processes beside it off the network for ever.
                match on_host {
                    1 => process.power_off(),
                    _ => process.crash(),
                }
                cluster.give_up(&member);
                Box::new(|_| {})
            }
        }
    }
}

fn cut(cluster: &Cluster, world: &World, kind: Kind, member: &Member, other: &Member) -> Undo {
    let own = member.process.host().to_owned();
    let others: Vec<String> = match kind {
        Kind::Isolate => cluster.members().iter().map(|other| other.process.host().to_owned()).collect(),
        Kind::ClientCut => {
            let blocks = cluster.members().iter().filter(|other| other.role == Role::Block);
            blocks.map(|other| other.process.host().to_owned()).collect()
        }
        _ => vec![other.process.host().to_owned()],
    };
    let others: Vec<String> = others.into_iter().filter(|other| *other != own).collect();
    let both_ways = kind != Kind::OneWay;
    for other in &others {
        world.partition_one_way(&own, other);
        if both_ways {
            world.partition_one_way(other, &own);
        }
    }
    let world = world.clone();
    Box::new(move |_| {
        for other in &others {
            world.mend_one_way(&own, other);
            if both_ways {
                world.mend_one_way(other, &own);
            }
        }
    })
}

/// Flips bits in a few places of one replica.
fn flip(member: &Member, dice: &mut Dice) {
    let files = member.process.disk_files();
    let replicas: Vec<_> = files.iter().filter(|(path, len)| *len > 0 && is_replica(path)).collect();
    if replicas.is_empty() {
        return;
    }
    let (path, len) = dice.pick(&replicas);
    for _ in 0..dice.between(1, 4) {
        let at = dice.below(*len);
        // A file that has gone meanwhile has nothing left to flip.
        let _ = member.process.flip_bits(path, at, dice.between(1, 600));
    }
}

/// Whether a path is that of a replica's file, or of one that is being copied.
#[must_use]
pub fn is_replica(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "replicas") && !path.ends_with(".lock")
}
