//! `ebb cluster up`: a master, block servers and workers as processes of this machine.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use ebb_cli::directory::{ClusterDir, is_absent};
use ebb_cli::host::{self, HostFile};
use ebb_cli::output::{Output, counted};
use ebb_cli::{admin, private, process};
use ebb_client::SetAttr;
use ebb_identity::tls::Wire;
use ebb_types::{Credentials, Error, HostName, InodeId, Result, Role, bail};
use serde_json::json;

use super::hosts::Host;
use super::parts::{NewNodes, NodeSpec, Part, SubRackCount, wanted};
use super::{hosts, start, status};
use crate::role::power_manager::PowerFigures;

/// How many nodes, and how they are made.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// Block servers; each is its own host h1..hN. `None`: as many as the cluster has, or as its sub-racks want.
    pub nodes: Option<u32>,
    /// How new ones are made.
    pub new: NewNodes,
    /// Copies that the default dataset keeps; none: three, with sub-racks two, or as many as there are nodes with volumes.
    pub replicas: Option<u32>,
    /// Overrides how long a silent block server counts as live.
    pub dead_after_ms: Option<u64>,
    /// Overrides how long a silent client keeps its leases.
    pub session_ttl_ms: Option<u64>,
    /// Policy and figures of the power manager.
    pub power: PowerFigures,
    /// Overrides how many proxies are processes of their own; 0: one, in the master's.
    pub proxies: Option<u32>,
    /// Overrides how many MB per second repair may move to or from one node; 0: no limit.
    pub repair_mb_per_s: Option<u64>,
    /// Overrides what connections carry.
    pub wire: Option<Wire>,
}

impl UpOptions {
    /// Nodes of a new cluster that have volumes. `None`: nothing says how many nodes there are to be.
    pub fn storing_nodes(&self) -> Option<u32> {
        match self.new.sub_racks {
            Some(count) if self.new.volumes == 0 => Some(count.sub_racks),
            Some(count) => Some(count.nodes()),
            None => self.nodes,
        }
    }
}

/// Where the directory's lock is.
const LOCK: &str = "up.lock";
/// Time for a process to serve.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the cluster in `path`, making it if it is not there, and returns when it serves. Of a cluster that runs in
/// part, only the missing processes are started.
pub async fn up(path: &Path, options: &UpOptions, output: &Output) -> Result<()> {
    check(options)?;
    let mut cluster = match ClusterDir::open(path) {
        Ok(cluster) => cluster,
        Err(error) if is_absent(&error) => {
            refuse_foreign_directory(path)?;
            let Some(nodes) = options.storing_nodes() else {
                bail!(Invalid, "{} has no cluster yet: give --nodes N to make one of N nodes", path.display());
            };
            // Two copies are one in each half of the localized storage nodes.
            let usual = if options.new.sub_racks.is_some() { 2 } else { 3 };
            ClusterDir::create(path, options.replicas.unwrap_or(nodes.min(usual)), options.wire.unwrap_or_default())?
        }
        Err(error) => return Err(error),
    };
    refuse_host(&cluster)?;
    let _lock = lock(&cluster)?;
    if cluster.certify_old()? {
        output
            .say("the cluster was of a release without certificates: it has an authority now, and its secret is gone");
    }
    // Refused at once if others can read the keys.
    cluster.keys().authority()?;
    cluster.identity(&HostName::new(admin::HOST), Role::Operator)?;
    if let Some(mode) = cluster.narrow()? {
        let dir = cluster.path.display();
        output
            .say(&format!("{dir} had mode {mode:04o}, now 0700: other users of this machine could read its contents"));
    }
    let running = process::running(&cluster, |process| process.role != "mount")?;
    let known = hosts::known(&cluster);
    if let Some(count) = options.new.sub_racks {
        check_sub_racks(&cluster, &known, count)?;
    }
    let wanted_nodes = options.nodes.or(options.new.sub_racks.map(SubRackCount::nodes));
    let nodes = wanted_nodes.map_or(known.len(), |nodes| nodes as usize);
    if running.is_empty() && known.len() > nodes {
        // Fewer nodes than hold data would leave replicas out of reach.
        let (dir, known) = (cluster.path.display(), known.len());
        bail!(Invalid, "{nodes} nodes: {dir} holds the data of {known} nodes; start at least these");
    }
    if nodes == 0 {
        bail!(Invalid, "{} has no node yet: give --nodes N", cluster.path.display());
    }
    let is_new = known.is_empty();
    let hosts = match options.new.sub_racks {
        Some(count) => hosts::of_sub_racks(count),
        None => hosts::with_new(&cluster, known, nodes),
    };
    let follows_power = options.power.policy.is_some() || cluster.path.join("power").exists();
    // The running processes were started with this number: the master has one in its process, or none.
    let proxies = if running.is_empty() { options.proxies } else { None }.unwrap_or(cluster.file.proxies);
    let wanted = wanted(&hosts, proxies, follows_power);
    let missing: Vec<&Part> = wanted.iter().filter(|part| !running.iter().any(|p| p.name == part.name())).collect();
    if let (Some(first), true) = (running.first(), missing.is_empty()) {
        bail!(Exists, "already serving (pid {})", first.pid);
    }
    if running.is_empty() {
        cluster.file.masters = vec![format!("127.0.0.1:{}", free_port()?)];
        cluster.file.dead_after_ms = options.dead_after_ms.unwrap_or(cluster.file.dead_after_ms);
        cluster.file.session_ttl_ms = options.session_ttl_ms.unwrap_or(cluster.file.session_ttl_ms);
        cluster.file.proxies = options.proxies.unwrap_or(cluster.file.proxies);
        cluster.file.repair_mb_per_s = options.repair_mb_per_s.unwrap_or(cluster.file.repair_mb_per_s);
        if let Some(wire) = options.wire {
            cluster.set_wire(wire);
        }
        cluster.save()?;
    } else {
        // The running processes know the master by its address and the times it was started with: both stay.
        let names: Vec<String> = missing.iter().map(|part| part.name()).collect();
        output.say(&format!("already serving in part; starting the missing processes: {}", names.join(", ")));
    }
    let mut started = start_all(&cluster, &missing, hosts.len(), options).await;
    if started.is_ok() {
        started = own_root(&cluster).await.and(started);
        if is_new && started.is_ok() {
            match super::place::place_default(&cluster, options).await {
                Ok(said) => said.iter().for_each(|said| output.say(said)),
                Err(error) => started = Err(error),
            }
        }
    }
    if started.is_err() && running.is_empty() {
        // Half a cluster is worse than none: the processes that were started end again.
        super::down::stop_processes(&cluster, output)?;
    }
    report(&cluster, &missing, hosts.len(), output, &started?);
    Ok(())
}

/// `Invalid` on a host of a cluster on several hosts, whose processes are services of their own.
fn refuse_host(cluster: &ClusterDir) -> Result<()> {
    if HostFile::read(&cluster.path)?.is_none() {
        return Ok(());
    }
    let (dir, file) = (cluster.path.display(), host::path(&cluster.path));
    bail!(
        Invalid,
        "{dir} is of one host of a cluster ({}): start its services, as `systemctl start ebb-block` or `ebb block`",
        file.display()
    )
}

/// `Invalid` if the cluster has hosts beyond these sub-racks: which LSN serves which host is decided when they are made.
fn check_sub_racks(cluster: &ClusterDir, known: &BTreeSet<Host>, count: SubRackCount) -> Result<()> {
    let wanted = hosts::of_sub_racks(count);
    if !known.is_subset(&wanted) {
        let names: Vec<String> = known.difference(&wanted).map(ToString::to_string).collect();
        bail!(
            Invalid,
            "--sub-racks {count}: {} has further hosts ({}); leave the option out to start the nodes that there are",
            cluster.path.display(),
            names.join(", ")
        );
    }
    Ok(())
}

/// The root directory of a new cluster is its user's: an ordinary user could make nothing in root's. It is new as long as
/// it was never changed.
async fn own_root(cluster: &ClusterDir) -> Result<()> {
    let own = admin::credentials();
    if own.is_root() {
        return Ok(());
    }
    let client = admin::operator(cluster).await?;
    let root = client.get_attr(&Credentials::root(), InodeId::ROOT).await?;
    if root.uid != Credentials::root().uid || root.ctime != root.btime {
        return client.disconnect().await;
    }
    let set = SetAttr { uid: Some(own.uid), gid: Some(own.gid), ..SetAttr::default() };
    let done = client.set_attr(&Credentials::root(), InodeId::ROOT, set).await;
    client.disconnect().await?;
    done.map(drop)
}

/// Starts processes. Returns what is to be known of the cluster that serves.
async fn start_all(cluster: &ClusterDir, parts: &[&Part], nodes: usize, options: &UpOptions) -> Result<Vec<String>> {
    let mut recorded = None;
    for part in parts {
        match part {
            Part::Master => start_one(cluster, &part.name(), &["master".to_owned()])?,
            Part::Proxy(_) => start_one(cluster, &part.name(), &["proxy".into(), "--name".into(), part.name()])?,
            Part::Block(host) => {
                if recorded.is_none() {
                    recorded = Some(status::ask(cluster).await?.nodes);
                }
                let name = host.to_string();
                let spec = match recorded.iter().flatten().find(|node| node.host == name) {
                    Some(node) => NodeSpec::of_record(node),
                    None => options.new.spec(*host)?,
                };
                start_block(cluster, &spec)?;
            }
            Part::Worker(host) => start_worker(cluster, *host)?,
            Part::PowerClient => start_one(cluster, &part.name(), &[part.name()])?,
            Part::PowerManager => {
                let arguments: Vec<String> = std::iter::once(part.name()).chain(options.power.arguments()).collect();
                start_one(cluster, &part.name(), &arguments)?;
            }
        }
    }
    status::wait_serving(cluster, nodes, START_TIMEOUT).await
}

/// Tells that the cluster serves, and what is to be known of it.
fn report(cluster: &ClusterDir, parts: &[&Part], nodes: usize, output: &Output, troubles: &[String]) {
    let servers = counted(nodes as u64, "block server");
    let sentence = format!("cluster {} serves: 1 master, {servers}", cluster.file.cluster);
    let started: Vec<String> = parts.iter().map(|part| part.name()).collect();
    let value = json!({
        "cluster": cluster.file.cluster.to_string(), "dir": cluster.path.display().to_string(), "nodes": nodes,
        "started": started, "troubles": troubles,
    });
    output.answer(&sentence, &value);
    troubles.iter().for_each(|trouble| output.say(trouble));
    output.say(&format!("next: ebb mount --dir {} MOUNTPOINT", cluster.path.display()));
}

/// Starts a node that this cluster has not had, with its worker. Returns its host.
pub fn add_node(cluster: &ClusterDir, rack: &str, volumes: u32) -> Result<String> {
    refuse_host(cluster)?;
    let _lock = lock(cluster)?;
    let known = hosts::known(cluster);
    let count = known.len() + 1;
    let newest = hosts::with_new(cluster, known, count).last().copied().expect("one is new");
    let spec = NodeSpec { host: newest.to_string(), rack: rack.to_owned(), volumes, serves_hosts: Vec::new() };
    start_block(cluster, &spec)?;
    start_worker(cluster, newest)?;
    Ok(spec.host)
}

/// Starts a localized storage node that this cluster has not had, and hosts without volumes that it serves. Returns their hosts.
pub fn add_sub_rack(cluster: &ClusterDir, rack: &str, volumes: u32, hosts: u32) -> Result<Vec<String>> {
    refuse_host(cluster)?;
    let _lock = lock(cluster)?;
    let (lsn, hosts) = hosts::new_sub_rack(cluster, hosts);
    let serves_hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let spec = NodeSpec { host: lsn.to_string(), rack: rack.to_owned(), volumes, serves_hosts };
    start_block(cluster, &spec)?;
    for host in &hosts {
        let host_spec = NodeSpec { host: host.to_string(), volumes: 0, serves_hosts: Vec::new(), ..spec.clone() };
        start_block(cluster, &host_spec)?;
        start_worker(cluster, *host)?;
    }
    Ok(std::iter::once(spec.host).chain(spec.serves_hosts).collect())
}

/// Starts a block server; its volumes are made at the first start.
pub fn start_block(cluster: &ClusterDir, spec: &NodeSpec) -> Result<()> {
    start_one(cluster, &format!("block-{}", spec.host), &spec.arguments())
}

fn start_worker(cluster: &ClusterDir, host: Host) -> Result<()> {
    let part = Part::Worker(host);
    start_one(cluster, &part.name(), &["worker".into(), "--host".into(), host.to_string()])
}

fn start_one(cluster: &ClusterDir, name: &str, arguments: &[String]) -> Result<()> {
    let mut all: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    all.extend([OsString::from("--dir"), cluster.path.clone().into_os_string()]);
    start::start(cluster, name, &all)?.wait_registered(cluster, START_TIMEOUT).map(drop)
}

fn check(options: &UpOptions) -> Result<()> {
    if let Some(nodes) = options.nodes.filter(|nodes| !(1..=256).contains(nodes)) {
        bail!(Invalid, "--nodes {nodes}: between 1 and 256");
    }
    options.new.check()?;
    if options.proxies.is_some_and(|proxies| proxies > 64) {
        bail!(Invalid, "--proxies: 64 at most");
    }
    let nodes = options.storing_nodes();
    if let Some(replicas) = options.replicas.filter(|replicas| !(1..=nodes.unwrap_or(u32::MAX)).contains(replicas)) {
        let nodes = nodes.map_or_else(String::new, |nodes| format!(" ({nodes})"));
        bail!(Invalid, "--replicas {replicas}: between 1 and the number of nodes with volumes{nodes}");
    }
    Ok(())
}

/// A directory with other things in it is not ours to fill. A new file system has a directory of its own.
pub fn refuse_foreign_directory(path: &Path) -> Result<()> {
    match fs::read_dir(path) {
        Ok(entries) => {
            if entries.flatten().any(|entry| entry.file_name() != "lost+found") {
                bail!(NotEmpty, "{} has files but no cluster.toml: give an empty or a new directory", path.display());
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::from_io(&error, path.display())),
    }
}

/// Two `up` at once must not both start processes.
pub fn lock(cluster: &ClusterDir) -> Result<fs::File> {
    let path = cluster.path.join(LOCK);
    let file = private::file()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| Error::from_io(&error, path.display()))?;
    if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!(Exists, "already starting: another `ebb cluster up` works on {}", cluster.path.display());
    }
    Ok(file)
}

fn free_port() -> Result<u16> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::from_io(&error, "looking for a free port"))
}
