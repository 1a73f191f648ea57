//! A disk or a node dies while a job reads (ours): what is out of reach, what is lost, and what the job takes.

mod show;

use std::time::Duration;

use ebb_client::Access;
use ebb_plan::Section;
use ebb_sim::claims::testbed_hardware;
use ebb_sim::cluster::MIB;
use ebb_sim::{App, Cluster, Placement, Study};
use ebb_types::{Credentials, Encode, Error, ErrorKind, NodeId, Result, bail, err};
use ebb_wire::pb;

use super::bed::{self, Bed, PIECE};
use super::job::{self, Input, JobTimes};
use super::tracker::Choice;
use crate::part::Lab;

pub const SOURCES: &[&str] = &["Deaths"];

/// The least LSNs on which 4+2 heals.
const SUB_RACKS: usize = 7;
/// Slots and rows of RAID sets.
const CODE: (u32, u32) = (4, 2);
/// From the start of the job to the death.
const DIES_AFTER: Duration = Duration::from_secs(3);
/// Data that are not whole after this will not be: a RAID set waits ten minutes for a lost node.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// Data that are in no RAID sets after this will not be.
const ENCODED_WITHIN: Duration = Duration::from_secs(7_200);
/// Between two looks at the master's account.
const LOOK: Duration = Duration::from_secs(2);
/// How long a reader tries, who asks whether a byte is in reach.
const TRY: Duration = Duration::from_secs(8);

/// How files are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Three copies on disks of hosts.
    Baseline,
    /// One copy on its writer's LSN.
    One,
    /// Two copies on two LSNs.
    Two,
    /// RAID sets over LSNs.
    Raid,
}

/// What dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// One disk, for good.
    Disk,
    /// A node with its disks: an LSN, or a block server of a host, whose tasks go on. It stays away until its data are made again
    /// elsewhere, or for [`PATIENCE`], and is then back with its disks.
    Node,
}

/// What was seen of one death.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seen {
    pub kept: Kept,
    pub death: Death,
    /// Of the input, as they are stored once.
    pub user_bytes: u64,
    /// On all disks for each of them, before the death.
    pub stored: f64,
    /// Seconds of the job before anything died.
    pub quiet_s: f64,
    /// Seconds of the job under which it died; none: it failed.
    pub job_s: Option<f64>,
    /// Bytes that cannot be read right after it.
    pub out_of_reach: u64,
    /// Until all copies or members are there again without what died; none: not within [`PATIENCE`].
    pub whole_s: Option<f64>,
    /// Bytes that cannot be read in the end, when a node that died is back.
    pub lost: u64,
}

impl Kept {
    pub const ALL: [Self; 4] = [Self::Baseline, Self::One, Self::Two, Self::Raid];

    /// As many disks in all of them.
    fn cluster(self) -> Result<Cluster> {
        let placement = if self == Self::Baseline { Placement::Baseline } else { Placement::Hybrid };
        Ok(Cluster {
            placement,
            hardware: testbed_hardware(),
            nodes: 2 * SUB_RACKS,
            sub_racks: SUB_RACKS,
            node_disks: 2,
            lsn_disks: 4,
            lsn_gbps: 10.0,
            lsn_replicas: if self == Self::One { 1 } else { 2 },
            ..Study::by_name("real-cluster")?.cluster
        })
    }

    /// Settings of the dataset with the input.
    fn settings(self, bed: &Bed) -> pb::Dataset {
        let usual = bed.for_files(if self == Self::Baseline { 3 } else { bed.spec.lsn_replicas });
        let (raid_copies, (raid_slots, raid_rows)) = (1, CODE);
        let encode = Encode::Immediate.to_raw();
        match self {
            Self::Raid => pb::Dataset { raid_copies, raid_slots, raid_rows, encode, ..usual },
            _ => usual,
        }
    }

    /// The host with what dies: of the first LSN, or the first host.
    const fn host(self) -> &'static str {
        if matches!(self, Self::Baseline) { "h1" } else { "lsn1" }
    }
}

impl Death {
    pub const ALL: [Self; 2] = [Self::Disk, Self::Node];

    fn happen(self, world: &ebb_runtime::virt::World, host: &str) {
        match self {
            Self::Disk => world.process(host).spindle(&Bed::volume(1)).fail(),
            Self::Node => world.process(host).kill(),
        }
    }
}

/// A search over a gibibyte for each host. The work on a byte is the lightest of all applications, so
/// that disks decide.
fn search(size: f64) -> Result<App> {
    let light = App::by_name("TeraSort")?;
    let bytes = [14.0 * 1024.0 * MIB, MIB, MIB];
    let [map_input_bytes, map_output_bytes, reduce_output_bytes] = bytes;
    let app = App { map_input_bytes, map_output_bytes, reduce_output_bytes, mappers: 224, reducers: 14, ..light };
    Ok(App { name: "search".to_owned(), ..app.scaled(size) })
}

/// One placement under one death.
pub fn run(seed: u64, kept: Kept, death: Death, size: f64) -> Result<Seen> {
    bed::on(seed, &kept.cluster()?, |mut bed| async move {
        // The job's own files are in the dataset of the bed, which nothing lacks: two copies on LSNs, or three.
        let output = bed.data;
        bed.data = bed.make_dataset("/input", &kept.settings(&bed)).await?;
        let (app, empty) = (search(size)?, used_bytes(&bed).await?);
        let input = job::write_input(&bed, &app).await?.ok_or_else(|| err!(Internal, "a search has an input"))?;
        bed.data = output;
        if kept == Kept::Raid {
            wait_until_encoded(&bed, &input).await?;
        }
        bed.world.sleep(bed::REST).await;
        let stored = (used_bytes(&bed).await? - empty) as f64 / input.bytes() as f64;
        let quiet = job::run(&bed, &app, Some(&input), Choice::Located, seed).await?;
        let (world, host) = (bed.world.clone(), kept.host());
        let dies = async {
            world.sleep(DIES_AFTER).await;
            death.happen(&world, host);
            wait_until_whole(&bed, world.now()).await
        };
        let reads = async {
            let job_s = job_seconds(job::run(&bed, &app, Some(&input), Choice::Located, seed).await)?;
            Ok::<_, Error>((job_s, unread_bytes(&bed, &input).await?))
        };
        let (whole_s, read) = tokio::join!(dies, reads);
        let (whole_s, (job_s, out_of_reach)) = (whole_s?, read?);
        if death == Death::Node {
            bed.cluster.repair(node_on(&bed, host).await?)?;
            bed.world.sleep(bed::REST).await;
        }
        let lost = unread_bytes(&bed, &input).await?;
        let user_bytes = input.bytes();
        Ok(Seen { kept, death, user_bytes, stored, quiet_s: quiet.seconds, job_s, out_of_reach, whole_s, lost })
    })
}

/// Seconds of a job; none: data were out of reach. Other errors are ours.
fn job_seconds(ended: Result<JobTimes>) -> Result<Option<f64>> {
    match ended {
        Ok(times) => Ok(Some(times.seconds)),
        Err(error) if is_out_of_reach(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_out_of_reach(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::Io | ErrorKind::Corrupt)
}

async fn node_on(bed: &Bed, host: &str) -> Result<NodeId> {
    let nodes = bed.cluster.cluster_status().await?.nodes;
    let node = nodes.into_iter().find(|node| node.host == host);
    node.map(|node| NodeId::new(node.id)).ok_or_else(|| err!(NotFound, "no node on {host}"))
}

/// Bytes that all volumes have in use.
async fn used_bytes(bed: &Bed) -> Result<u64> {
    let nodes = bed.cluster.cluster_status().await?.nodes;
    Ok(nodes.iter().flat_map(|node| &node.volumes).map(|volume| volume.used_bytes).sum())
}

async fn wait_until_encoded(bed: &Bed, input: &Input) -> Result<()> {
    let end = bed.world.now() + ENCODED_WITHIN;
    // The last file of a host may end with slots for which there are no others.
    let enough = input.bytes() - input.bytes() / 20;
    while bed.cluster.thin_bytes().await?.is_none_or(|thin| thin < enough) {
        if bed.world.now() > end {
            bail!(Timeout, "after {ENCODED_WITHIN:?} not all is in RAID sets: {:?}", bed.cluster.raid_status().await?);
        }
        bed.world.sleep(bed::REST).await;
    }
    Ok(())
}

/// Seconds from the death until nothing is short of copies or members, by the master's account.
async fn wait_until_whole(bed: &Bed, began: Duration) -> Result<Option<f64>> {
    let mut since = None;
    while bed.world.now() - began < PATIENCE {
        let status = bed.cluster.cluster_status().await?;
        let is_noticed = status.nodes.iter().any(|node| {
            let is_poisoned = |volume: &pb::Volume| volume.state() == pb::VolumeState::VolumePoisoned;
            node.state() == pb::NodeState::NodeDead || node.volumes.iter().any(is_poisoned)
        });
        let is_short = status.under_replicated + status.without_good_copy + status.out_of_reach_by_failure > 0
            || bed.cluster.raid_status().await?.iter().any(|one| one.lost_some + one.lost_too_many > 0);
        match since {
            _ if is_short || !is_noticed => since = None,
            None => since = Some(bed.world.now()),
            // Steps that come one after the other leave no lack for a moment between them.
            Some(first) if bed.world.now() - first > bed::REST => return Ok(Some((first - began).as_secs_f64())),
            Some(_) => {}
        }
        bed.world.sleep(LOOK).await;
    }
    Ok(None)
}

/// Bytes of the input that a client with an empty cache cannot read. It asks for all files side by side.
async fn unread_bytes(bed: &Bed, input: &Input) -> Result<u64> {
    let process = bed.world.process("asker");
    let client = bed
        .cluster
        .session_with(&process, ebb_rpc::Counters::default(), |options| options.operation_deadline = TRY)
        .await?;
    let mut readers = Vec::new();
    for file in input.files.clone() {
        let client = client.clone();
        readers.push(process.runtime().spawn("asker", async move {
            let handle = client.open(&Credentials::root(), file.inode, Access::Read).await?.0;
            let mut unread = 0;
            for at in (0..file.size).step_by(PIECE as usize) {
                let len = PIECE.min(file.size - at);
                match client.read(handle, at, len as u32).await {
                    Ok(_) => {}
                    Err(error) if is_out_of_reach(&error) => unread += len,
                    Err(error) => return Err(error),
                }
            }
            client.close(handle).await;
            Ok(unread)
        }));
    }
    let mut unread = 0;
    for reader in readers {
        unread += reader.join().await??;
    }
    client.disconnect().await?;
    Ok(unread)
}

pub fn section(lab: &Lab<'_>) -> Result<Section> {
    let size = lab.effort.of(0.5, 0.25);
    let cases: Vec<(Kept, Death)> =
        Kept::ALL.into_iter().flat_map(|kept| Death::ALL.map(|death| (kept, death))).collect();
    let seen = lab.map(&cases, |(kept, death)| run(lab.seed, *kept, *death, size))?;
    Ok(show::section(&seen))
}
