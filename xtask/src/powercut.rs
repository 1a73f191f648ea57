//! Real power cuts: the directories of nodes and of the master lie on file systems of their own, which are cut off while a
//! program writes; everything that an fsync had acknowledged is read back.
//!
//! Killing a process is no power cut, for its page cache stays. Here each directory is an XFS or ext4 image on a loop
//! device, and the kernel is ordered to drop it at once, log included (`XFS_IOC_GOINGDOWN`, which ext4 takes too): no
//! byte that was not synced gets there any more. Then the processes are killed, the image is mounted again, which
//! replays its journal, and the cluster starts from that state.
//!
//! [`image`] has the disks, [`cluster`] the processes, [`kernel`] the call that std lacks. [`writer`] writes, and
//! keeps the ledger of acknowledged writes in memory, so that no cut reaches it. [`record`] defines the value of each
//! byte, and [`check`] reads everything back.

mod check;
mod cluster;
mod image;
mod kernel;
mod record;
mod writer;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use self::cluster::Cluster;
use self::image::FileSystem;
use self::record::Ledger;
use crate::failure::Failure;
use crate::interrupt;
use crate::tree::root;

/// Number of cuts of the long form, and of the short one for CI.
const LONG: usize = 100;
const SHORT: usize = 5;

/// Time for which writers write before a cut: the minimum, and the most that is added to it.
const WRITE_MIN: Duration = Duration::from_millis(400);
const WRITE_SPREAD_MS: u64 = 1200;

/// An error is a sentence.
type Result<T> = std::result::Result<T, String>;

/// The machines that lose their power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// One node, while all else goes on.
    Node(usize),
    /// All nodes at once, and the mount.
    Nodes,
    /// The master, while all else goes on.
    Master,
    /// All nodes, the master and the mount.
    Everything,
}

impl Cut {
    /// The kinds of cuts take turns, and so do the nodes.
    fn nth(number: usize) -> Self {
        match number % 4 {
            0 => Self::Node(number / 4 % cluster::NODES + 1),
            1 => Self::Nodes,
            2 => Self::Master,
            _ => Self::Everything,
        }
    }

    /// Names of the disks that lose their power.
    fn disks(self) -> Vec<String> {
        let nodes = (1..=cluster::NODES).map(|node| format!("h{node}"));
        match self {
            Self::Node(node) => vec![format!("h{node}")],
            Self::Nodes => nodes.collect(),
            Self::Master => vec!["master".to_owned()],
            Self::Everything => nodes.chain(["master".to_owned()]).collect(),
        }
    }

    /// Whether the machine with the mount loses its power too.
    fn takes_mount(self) -> bool {
        matches!(self, Self::Nodes | Self::Everything)
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node h{node}"),
            Self::Nodes => f.write_str("all nodes"),
            Self::Master => f.write_str("the master"),
            Self::Everything => f.write_str("everything"),
        }
    }
}

/// The options of the command.
struct Plan {
    cuts: usize,
    systems: Vec<FileSystem>,
    seed: u64,
    /// Redundancy of cold files: `copies`, or RAID sets such as `2+1`, for three nodes.
    redundancy: String,
}

impl Plan {
    fn short() -> Self {
        Self { cuts: SHORT, systems: FileSystem::ALL.to_vec(), seed: 1, redundancy: "copies".to_owned() }
    }
}

/// The results of the cuts.
#[derive(Default)]
struct Counts {
    cuts: usize,
    acknowledged: u64,
    lost: u64,
}

/// The command. `None`: unknown arguments.
pub fn run(words: &[&str]) -> Option<std::result::Result<(), Failure>> {
    let mut plan = Plan { cuts: LONG, ..Plan::short() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--short" => plan.cuts = SHORT,
            "--cuts" => plan.cuts = words.next()?.parse().ok()?,
            "--seed" => plan.seed = words.next()?.parse().ok()?,
            "--redundancy" => plan.redundancy = (*words.next()?).to_owned(),
            "--on" => plan.systems = vec![FileSystem::from_name(words.next()?)?],
            _ => return None,
        }
    }
    if let Err(why) = possible() {
        return Some(Err(Failure::new("powercut", vec![format!("cannot be run here: {why}")])));
    }
    Some(carry_out(&plan))
}

/// The short form for CI. If the machine does not allow cuts, it prints a message and succeeds.
pub fn run_short() -> std::result::Result<(), Failure> {
    match possible() {
        Ok(()) => carry_out(&Plan::short()),
        Err(why) => {
            println!("== powercut: left out, no power was cut: {why}");
            Ok(())
        }
    }
}

/// Whether this machine can cut the power of a file system.
fn possible() -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc/self/status: {error}"))?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).and_then(|ids| ids.split_whitespace().nth(1));
    if uid != Some("0") {
        return Err("mounting images takes root; run it as root".to_owned());
    }
    if !std::path::Path::new("/dev/loop-control").exists() {
        return Err("there is no /dev/loop-control: load the kernel's loop module (modprobe loop)".to_owned());
    }
    for system in FileSystem::ALL {
        let made = Command::new(system.mkfs()).arg("-V").output();
        made.map_err(|error| format!("{}: {error}; `make setup` installs it", system.mkfs()))?;
    }
    let scratch = scratch();
    image::clear(&scratch)?;
    std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    for system in FileSystem::ALL {
        image::Image::make(*system, &scratch, "trial")?.try_cut()?;
    }
    image::clear(&scratch)
}

fn scratch() -> PathBuf {
    root().join("target/powercut")
}

fn carry_out(plan: &Plan) -> std::result::Result<(), Failure> {
    crate::programs::build()?;
    interrupt::catch_signals();
    println!("== powercut: {} cuts, seed {}", plan.cuts, plan.seed);
    let started = Instant::now();
    let mut counts = Counts::default();
    let mut causes = Vec::new();
    for (place, system) in plan.systems.iter().enumerate() {
        let share = plan.cuts / plan.systems.len() + usize::from(place < plan.cuts % plan.systems.len());
        // With few cuts, the next file system gets the kinds of cuts that this one did not have.
        let first = plan.cuts / plan.systems.len() * place;
        if let Err(sentence) = cut_one(plan, *system, first..first + share, &mut counts) {
            println!("powercut: {}: {sentence}", system.name());
            causes.push(format!("{}: {sentence}", system.name()));
        }
        if interrupt::is_interrupted() {
            println!("powercut: interrupted");
            causes.push("interrupted".to_owned());
            break;
        }
    }
    if let Err(sentence) = image::clear(&scratch()) {
        println!("powercut: {sentence}");
        causes.push(sentence);
    }
    if counts.lost > 0 {
        causes.push(format!("{} acknowledged records were lost, see the lines LOST above", counts.lost));
    }
    let Counts { cuts, acknowledged, lost } = counts;
    let seconds = started.elapsed().as_secs();
    let verdict = if causes.is_empty() { "ok" } else { "FAILED" };
    println!("== powercut: {verdict} cuts={cuts} acknowledged={acknowledged} lost={lost} seconds={seconds}");
    if causes.is_empty() { Ok(()) } else { Err(Failure::new("powercut", causes)) }
}

/// Cuts on one kind of file system. Each cut waits until the results of the one before were checked, and every copy is
/// good again.
fn cut_one(plan: &Plan, system: FileSystem, cuts: std::ops::Range<usize>, counts: &mut Counts) -> Result<()> {
    let seed = plan.seed;
    let scratch = scratch();
    image::clear(&scratch)?;
    let mut cluster = Cluster::make(system, &scratch, &plan.redundancy)?;
    let mut ledger = Ledger::new(seed);
    let total = cuts.len();
    for (done, number) in cuts.enumerate() {
        if interrupt::is_interrupted() {
            break;
        }
        let cut = Cut::nth(number);
        let before = ledger.acknowledged();
        let span = WRITE_MIN + Duration::from_millis(record::draw(seed, number as u64) % WRITE_SPREAD_MS);
        let done_once = cut_once(&mut cluster, &mut ledger, cut, span);
        let (lost, sets) = match done_once.and_then(|lost| Ok((lost, cluster.compare_rows()?))) {
            Ok(found) => found,
            Err(sentence) => {
                println!("{}", cluster.last_words());
                return Err(format!("cut {} ({cut}): {sentence}", done + 1));
            }
        };
        let fresh = ledger.acknowledged() - before;
        let raid_sets = if sets > 0 { format!(", {sets} RAID sets") } else { String::new() };
        println!("{} cut {}/{total} ({cut}): {fresh} acknowledged, {lost} lost{raid_sets}", system.name(), done + 1);
        counts.cuts += 1;
        counts.acknowledged += fresh;
        counts.lost += lost;
    }
    cluster.end()
}

/// Writes, cuts, starts again and reads back. Returns the number of lost acknowledged records.
fn cut_once(cluster: &mut Cluster, ledger: &mut Ledger, cut: Cut, span: Duration) -> Result<u64> {
    let place = cluster.place();
    let written = writer::during(&place, ledger, || {
        interrupt::sleep(span);
        cluster.cut(&cut.disks(), cut.takes_mount())?;
        cluster.start_again()?;
        if !cut.takes_mount() {
            // The mount has survived: its writers go on for a while with the restarted processes.
            interrupt::sleep(WRITE_MIN);
        }
        Ok(())
    });
    written?;
    cluster.mount_anew()?;
    let findings = check::read_back(&place, ledger);
    for finding in findings.iter().take(10) {
        println!("LOST after a cut of {cut}: {finding}");
    }
    // Every copy is good again before the next cut, or two cuts would be one failure of two nodes.
    cluster.wait_healthy()?;
    Ok(findings.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_cuts_are_of_every_kind() {
        let kinds: Vec<Cut> = (0..SHORT).map(Cut::nth).collect();
        assert_eq!(kinds[..4], [Cut::Node(1), Cut::Nodes, Cut::Master, Cut::Everything]);
        assert_eq!(kinds[4], Cut::Node(2));
        assert_eq!(Cut::Everything.disks(), ["h1", "h2", "h3", "master"]);
    }
}
