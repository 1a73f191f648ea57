//! Options of a master.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ebb_identity::Authority;
use ebb_layout::OverloadRule;
use ebb_power::popularity::ExtraRule;
use ebb_rpc::{Identity, ServerOptions};
use ebb_types::deadlines;

use crate::group::GroupOptions;
use crate::leases::sharing::SharingRule;

/// Settings of a master.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the identity, the log and the checkpoints. It is created if it does not exist.
    pub data_dir: PathBuf,
    /// Address to listen at, `ip:port`. Port 0 chooses any free port.
    pub listen: String,
    /// Identity of this process: cluster, host and role ("master").
    pub identity: Identity,
    /// Certifies hosts that join, and renews certificates. `None` if an operator keeps it elsewhere.
    pub authority: Option<Arc<Authority>>,
    /// Number of copies in the default dataset of a new cluster. Three copies survive the loss of two nodes in
    /// succession.
    pub default_replicas: u32,
    /// Share of the unused capacity that extra copies of frequently read data may take in that dataset, in percent.
    pub extra_share_percent: u32,
    /// Time without a poll after which a session ends. Ten seconds are longer than any pause of a healthy client, and
    /// short enough that others wait for a dead writer's file about as long as for a slow disk.
    pub session_ttl: Duration,
    /// Maximum number of sessions, each of which is in the log. A host has at most as many as are free for all others.
    pub sessions_max: usize,
    /// Time of silence after which a node is dead, and its replicas are made again elsewhere.
    pub dead_time: Duration,
    /// Time of silence after which a node is lost for good, and another node takes its place on expansion chains. Ten
    /// minutes are the time of a repair by hand.
    pub replace_after: Duration,
    /// Time of silence after which a node is late. A late node gets new replicas only if there is no other, and clients
    /// learn that it is late. Three heartbeats, because one may be late on a busy machine.
    pub suspect_time: Duration,
    /// Time that a starting master waits for further nodes after the first one has reported its position. If no node is
    /// on by plan, it waits this long for any. Three heartbeats. With zero it does not wait.
    pub hear_time: Duration,
    /// Interval of the nodes' heartbeats.
    pub heartbeat: Duration,
    /// Deadline of a short call to a block server.
    pub call_timeout: Duration,
    /// Maximum weight of copies in progress to and from one node. A copy of more than a MiB weighs four, a smaller one
    /// weighs one.
    pub copies_per_node_max: usize,
    /// Maximum bytes per second of all copies to or from one node; 0 means no limit. It leaves most of a node's link
    /// and disks to programs.
    pub copy_rate_bytes_per_sec: u64,
    /// Maximum bytes per second that one node reads to encode; 0 means no limit. A quarter of the rate of copies: nobody waits
    /// for it.
    pub encode_rate_bytes_per_sec: u64,
    /// Time after which a lost member of a RAID set is made again that can bear further losses. A rebuild reads as many
    /// members as there are slots, and most nodes come back sooner.
    pub rebuild_after: Duration,
    /// Maximum number of RAID sets that are made at a time, each by another node.
    pub encodings_max: usize,
    /// Maximum number of files in recovery at a time.
    pub recoveries_max: usize,
    /// Whether the proxy is in this process. If so, all proxy sessions in the log have ended when it starts: the lock
    /// on the data directory shows that the process before it is gone. Otherwise there are any number of proxies in
    /// processes of their own, and a session ends only when no proxy can believe in it any more.
    pub hosts_proxy: bool,
    /// Conditions under which a file goes to the proxy.
    pub sharing: SharingRule,
    /// Interval of the averages of reads, while no power plan has an interval.
    pub popularity_interval: Duration,
    /// Conditions under which a home has so much to write that others write for it.
    pub overload_rule: OverloadRule,
    /// Rule for extra copies. The share comes from each dataset.
    pub extra_rule: ExtraRule,
    /// Maximum bytes in the handoff log.
    pub handoff_bytes_max: usize,
    /// Maximum bytes on their way from the handoff log to members that missed them. Beyond that, holders send them.
    pub feed_bytes_max: u32,
    /// Settings of the log and the checkpoints.
    pub group: GroupOptions,
    /// Limits of the server.
    pub server: ServerOptions,
}

/// A node that encodes reads one part in so many of the rate of copies.
const ENCODE_PART: u64 = 4;

impl Options {
    /// The defaults for a data directory, an address and an identity.
    #[must_use]
    pub fn new(data_dir: PathBuf, listen: impl Into<String>, identity: Identity) -> Self {
        Self {
            data_dir,
            listen: listen.into(),
            identity,
            authority: None,
            default_replicas: 3,
            extra_share_percent: 10,
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
            encode_rate_bytes_per_sec: (200 << 20) / ENCODE_PART,
            encodings_max: 4,
            rebuild_after: Duration::from_secs(600),
            recoveries_max: 32,
            hosts_proxy: true,
            popularity_interval: Duration::from_secs(10),
            overload_rule: OverloadRule::default(),
            extra_rule: ExtraRule::default(),
            handoff_bytes_max: 256 << 20,
            feed_bytes_max: 8 << 20,
            sharing: SharingRule::default(),
            group: GroupOptions::default(),
            server: ServerOptions::default(),
        }
    }

    /// Limits copies to or from one node to so many bytes per second, and encoding to its part of it; 0: no limit.
    pub fn limit_copies(&mut self, bytes_per_sec: u64) {
        self.copy_rate_bytes_per_sec = bytes_per_sec;
        self.encode_rate_bytes_per_sec = bytes_per_sec / ENCODE_PART;
    }
}
