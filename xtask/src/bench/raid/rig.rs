//! A cluster with a dataset of RAID sets, and what is done with it in every part.

use std::fs::File;
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Bench;
use super::journal::Journal;
use crate::bench::cluster::{Cluster, Shape};
use crate::bench::cpu::{self, Cpu};
use crate::bench::stream;
use crate::interrupt;

/// Directory of the dataset that is encoded.
pub const COLD: &str = "cold";
/// Bytes of a metablock, unless a part says otherwise.
pub const METABLOCK: u64 = 64 << 20;
/// Time limit for the master's steps.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at the master's log.
const LOOK: Duration = Duration::from_millis(50);

/// A cluster with a dataset for cold data.
pub struct Rig {
    /// The cluster.
    pub cluster: Cluster,
}

impl Rig {
    /// A cluster of so many hosts, with these further arguments of `ebb cluster up`, and an empty dataset of this code.
    pub fn start(bench: &Bench, nodes: u32, code: &str, metablock: u64, up: &[&str]) -> Result<Self> {
        let shape = Shape { name: "raid", nodes, up, mount: &[], log: Journal::FILTER };
        let rig = Self { cluster: Cluster::start(&bench.program, &bench.scratch, shape)? };
        let (path, metablock) = (format!("/{COLD}"), format!("{}MiB", metablock >> 20));
        // Nothing is encoded before it is asked for.
        rig.cluster.ebb(&[
            "dataset",
            "create",
            &path,
            "--redundancy",
            code,
            "--delay",
            "30d",
            "--metablock",
            &metablock,
        ])?;
        Ok(rig)
    }

    /// A path on the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.cluster.root().join(name)
    }

    /// Writes a file of the dataset, synced. MB a second.
    pub fn write(&self, name: &str, bytes: u64) -> Result<f64> {
        interrupt::check()?;
        stream::write_synced(&self.path(COLD).join(name), bytes)
    }

    /// Has the dataset encoded, and waits until the copies of all RAID sets are gone from the disks. A copy that is still there
    /// would be found by a rebuild.
    pub fn encode(&self) -> Result<()> {
        let before = self.bytes_in_replicas()?;
        self.ask_for_encoding()?;
        self.wait_for("copies to leave", |journal| {
            let sealed = journal.count(&["a RAID set is sealed"]);
            sealed > 0 && journal.count(&["step=Drop"]) == sealed
        })?;
        // Of three copies one stays, and half as much in rows.
        self.wait_until("copies to be deleted", || Ok(self.bytes_in_replicas()? <= before / 2 + before / 16))
    }

    /// Bytes that replicas take on the disk.
    fn bytes_in_replicas(&self) -> Result<u64> {
        let volumes = self.cluster.volumes()?;
        volumes.iter().map(|volume| bytes_below(&volume.join("replicas"))).sum()
    }

    /// `ebb raid encode` of the dataset, until it returns.
    pub fn ask_for_encoding(&self) -> Result<()> {
        let mut asking = self.begin_encoding()?;
        let ended = wait(&mut asking, || Ok(()));
        // Nothing but the waiting ends with it.
        let _ = asking.kill();
        let _ = asking.wait();
        ended
    }

    /// Starts `ebb raid encode`.
    pub fn begin_encoding(&self) -> Result<std::process::Child> {
        let mut command = self.cluster.command(&["raid", "encode", &format!("/{COLD}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }

    /// The master's log.
    pub fn journal(&self) -> Result<Journal> {
        self.cluster.log("master").map(Journal)
    }

    /// Waits until the master's log says it.
    pub fn wait_for(&self, what: &str, is_there: impl Fn(&Journal) -> bool) -> Result<()> {
        self.wait_until(what, || Ok(is_there(&self.journal()?)))
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !is_so()? {
            interrupt::check()?;
            if begun.elapsed() > PATIENCE {
                return Err(Error::other(format!("{} s were too short for {what}", PATIENCE.as_secs())));
            }
            interrupt::sleep(LOOK);
        }
        Ok(())
    }

    /// Processor time so far.
    pub fn cpu(&self) -> Cpu {
        cpu::used(&self.cluster.daemons())
    }

    /// Processor time since then, for each GiB of so many bytes.
    pub fn cpu_since(&self, before: &Cpu, bytes: u64) -> Cpu {
        cpu::since(&self.cluster.daemons(), before, bytes as f64 / f64::from(1 << 30))
    }

    /// The host of the replica of each metablock of a file, by what the command for locations prints. Of more than one the first.
    pub fn hosts_of(&self, name: &str) -> Result<Vec<String>> {
        let printed = self.cluster.ebb(&["fs", "locations", &format!("/{COLD}/{name}"), "--json"])?;
        Ok(hosts_in(&printed))
    }
}

/// Bytes that the files below a directory take. One that was just deleted takes none.
fn bytes_below(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(found) if found.is_dir() => sum += bytes_below(&entry.path())?,
            Ok(found) => sum += found.blocks() * 512,
            Err(_) => {}
        }
    }
    Ok(sum)
}

/// Sum over all roles.
pub fn all(cpu: &Cpu) -> f64 {
    cpu.values().sum()
}

/// Waits for a program to end, and works meanwhile.
pub fn wait(child: &mut std::process::Child, mut meanwhile: impl FnMut() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(Error::other(format!("ebb raid encode: {status}"))),
            None if begun.elapsed() > PATIENCE => return Err(Error::other("encoding does not come to its end")),
            None => interrupt::check()?,
        }
        meanwhile()?;
        interrupt::sleep(LOOK);
    }
}

/// Reads a range of a file in calls of a MiB, and throws it away.
pub fn read_range(file: &File, start: u64, len: u64) -> Result<()> {
    let mut piece = vec![0; 1 << 20];
    for at in (start..start + len).step_by(piece.len()) {
        let wanted = piece.len().min((start + len - at) as usize);
        file.read_exact_at(&mut piece[..wanted], at)?;
    }
    interrupt::check()
}

/// The first host of each list of replicas.
fn hosts_in(printed: &str) -> Vec<String> {
    let lists = printed.split("\"replicas\"").skip(1);
    let host = |list: &str| list.split("\"host\"").nth(1)?.split('"').nth(1).map(ToOwned::to_owned);
    lists.filter_map(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metablock_has_a_host() {
        let printed = r#"{"metablocks": [{"extra": [], "replicas": [{"host": "h3", "node": "n3"}]},
            {"replicas": [{"host": "h1"}, {"host": "h2"}]}]}"#;
        assert_eq!(hosts_in(printed), ["h3", "h1"]);
    }
}
