//! What an operator may set.

use std::path::PathBuf;
use std::time::Duration;

use ebb_layout::OverloadRule;
use ebb_power::popularity::ExtraRule;
use ebb_rpc::{Identity, ServerOptions};
use ebb_types::deadlines;

use crate::group::GroupOptions;
use crate::leases::sharing::SharingRule;

/// Settings of a master.
#[derive(Clone, Debug)]
pub struct Options {
    /// Identity, log and checkpoints. Made if it does not exist.
    pub data_dir: PathBuf,
    /// `ip:port`; port 0 for any.
    pub listen: String,
    /// Cluster, secret, host and role ("master") of this process.
    pub identity: Identity,
    /// Copies in the default dataset of a new cluster. Three survive the loss of two nodes one after the other.
    pub default_replicas: u32,
    /// A session that has not polled for so long is ended. Ten seconds: longer than any pause of a healthy client,
    /// short enough that others wait for a dead writer's file about as long as for a slow disk.
    pub session_ttl: Duration,
    /// Sessions at a time; each is in the log. A host has at most as many as are left for all others.
    pub sessions_max: usize,
    /// A node that is silent for so long is dead: its replicas are made again elsewhere.
    pub dead_time: Duration,
    /// A node that is silent for so long is lost for good: another one that is on no such chain takes its place on expansion
    /// chains. Ten minutes, as nodes that are put right by hand take.
    pub replace_after: Duration,
    /// A node that is silent for so long gets no new replicas as long as there are others, and clients are told that it is
    /// late. Three heartbeats: on a busy machine one may be.
    pub suspect_time: Duration,
    /// How long a master that starts waits for further nodes to say which master they saw last, once one has; where none is
    /// on by plan, for any. Three heartbeats. Zero: it waits for nobody.
    pub hear_time: Duration,
    /// How often nodes tell that they live.
    pub heartbeat: Duration,
    /// Deadline of a short call to a block server.
    pub call_timeout: Duration,
    /// Copies in progress to and from one node; one of more than a MiB counts as four.
    pub copies_per_node_max: usize,
    /// Bytes per second that all copies to or from one node may take together; 0: no limit. Users' reads and writes go
    /// first: a node's link and disks carry several times as much.
    pub copy_rate_bytes_per_sec: u64,
    /// Files that are recovered at a time.
    pub recoveries_max: usize,
    /// The proxy lives in this process: sessions of proxies in the log are over when it starts, for the lock on the data
    /// directory tells that the process before it is gone. False: proxies are processes of their own, as many as come, and
    /// a session ends when none of them can believe in it any more.
    pub hosts_proxy: bool,
    /// When a file that several sessions use goes to the proxy.
    pub sharing: SharingRule,
    /// How often the averages of reads take in what was counted, while no power plan has an interval.
    pub popularity_interval: Duration,
    /// When a home has so much to write that others write for it.
    pub overload_rule: OverloadRule,
    /// Which metablocks get extra copies, and how many. The share comes from their datasets.
    pub extra_rule: ExtraRule,
    /// Most bytes in the handoff log.
    pub handoff_bytes_max: usize,
    /// Log and checkpoints.
    pub group: GroupOptions,
    /// Bounds of the server.
    pub server: ServerOptions,
}

impl Options {
    /// The defaults for a data directory, an address and an identity.
    #[must_use]
    pub fn new(data_dir: PathBuf, listen: impl Into<String>, identity: Identity) -> Self {
        Self {
            data_dir,
            listen: listen.into(),
            identity,
            default_replicas: 3,
            session_ttl: Duration::from_secs(10),
            sessions_max: 1 << 14,
            dead_time: deadlines::DEAD_TIME,
            replace_after: Duration::from_secs(600),
            suspect_time: deadlines::SUSPECT_TIME,
            hear_time: Duration::from_secs(3),
            heartbeat: Duration::from_secs(1),
            call_timeout: Duration::from_secs(5),
            copies_per_node_max: 16,
            copy_rate_bytes_per_sec: 200 << 20,
            recoveries_max: 32,
            hosts_proxy: true,
            popularity_interval: Duration::from_secs(10),
            overload_rule: OverloadRule::default(),
            extra_rule: ExtraRule::default(),
            handoff_bytes_max: 256 << 20,
            sharing: SharingRule::default(),
            group: GroupOptions::default(),
            server: ServerOptions::default(),
        }
    }
}
