//! The calls of the protocol: a number for each, its request and reply types, and the roles that make and answer it.

use ebb_types::{Role, Roles};

use crate::pb;

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $reply:ident, $callers:ident to $servers:ident $(, in order by $stream:ident)?;)*) => {
        /// Number of a call. The numbers travel on the wire and never change.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[repr(u16)]
        pub enum Method { $($(#[$doc])* $name = $number,)* }

        impl Method {
            /// Every method.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The method with this number, if this build knows it.
            #[must_use]
            pub fn from_raw(raw: u16) -> Option<Self> {
                match raw { $($number => Some(Self::$name),)* _ => None }
            }

            /// The roles that may make it. A server refuses it to all others.
            #[must_use]
            pub const fn callers(self) -> Roles {
                match self { $(Self::$name => $callers,)* }
            }

            /// The roles that answer it. A caller sends it to no other.
            #[must_use]
            pub const fn servers(self) -> Roles {
                match self { $(Self::$name => $servers,)* }
            }

            /// Whether these bytes are a request of this call: for callers that have only its number.
            pub fn check_request(self, bytes: &[u8]) -> Result<(), prost::DecodeError> {
                match self { $(Self::$name => <pb::$name as prost::Message>::decode(bytes).map(drop),)* }
            }

            /// Whether these bytes are a good answer to this call.
            pub fn check_reply(self, bytes: &[u8]) -> Result<(), prost::DecodeError> {
                match self { $(Self::$name => <pb::$reply as prost::Message>::decode(bytes).map(drop),)* }
            }
        }

        $(impl Call for pb::$name {
            const METHOD: Method = Method::$name;
            type Reply = pb::$reply;
            $(fn stream(&self) -> Option<u64> {
                Some(self.$stream)
            })?
        })*
    };
}

/// A request message that knows its number and its reply.
pub trait Call: prost::Message + Default {
    /// Its number.
    const METHOD: Method;
    /// The message that a good answer decodes to.
    type Reply: prost::Message + Default + 'static;

    /// Calls with the same stream wait for each other at the server, in the order in which they were sent.
    fn stream(&self) -> Option<u64> {
        None
    }
}

const ANY: Roles = Roles::MEMBERS;
const MASTERS: Roles = Roles::of(&[Role::Master]);
const NODES: Roles = Roles::of(&[Role::Block]);
const PROXIES: Roles = Roles::of(&[Role::Proxy]);
const WORKERS: Roles = Roles::of(&[Role::Worker]);
const MANAGERS: Roles = Roles::of(&[Role::PowerManager]);
const POWER_CLIENTS: Roles = Roles::of(&[Role::PowerClient]);
const OPERATORS: Roles = Roles::of(&[Role::Operator]);
/// Those that open sessions.
const CLIENTS: Roles = Roles::of(&[Role::Proxy, Role::Worker, Role::Mount, Role::Program, Role::Operator]);
/// Members pass writes on, and copy from each other.
const CLIENTS_AND_NODES: Roles = CLIENTS.and(NODES);
/// The master writes what a log has, in a recovery.
const WRITERS: Roles = CLIENTS_AND_NODES.and(MASTERS);
const MASTERS_AND_CLIENTS: Roles = MASTERS.and(CLIENTS);
/// A proxy has copies in memory, for nodes that are never awake together.
const HOLDERS: Roles = NODES.and(PROXIES);
/// Those that keep handoff logs.
const LOGGERS: Roles = MASTERS.and(NODES);
const PLANNERS: Roles = MANAGERS.and(OPERATORS);
const JOINERS: Roles = Roles::of(&[Role::Joiner]);
/// Those that others find through the master.
const SERVICES: Roles = WORKERS.and(MANAGERS).and(POWER_CLIENTS).and(NODES);

methods! {
    // Master: clients.
    /// Namespace query or mutation.
    MetaRequest = 1, MetaReply, CLIENTS to MASTERS;
    /// New session.
    OpenSession = 2, OpenSessionReply, CLIENTS to MASTERS;
    /// Ends a session cleanly.
    CloseSession = 3, Empty, CLIENTS to MASTERS;
    /// Long poll; keeps the session alive.
    Poll = 4, PollReply, CLIENTS to MASTERS;
    /// A session's leases and open files, for a new master.
    Reclaim = 5, Empty, CLIENTS to MASTERS;
    /// Lease on a file.
    Acquire = 6, AcquireReply, CLIENTS to MASTERS;
    /// Handles closed.
    Forget = 7, Empty, CLIENTS to MASTERS;
    /// Read leases given back.
    Release = 8, Empty, CLIENTS to MASTERS;
    /// Volume for a failed member's place.
    ChooseReplacement = 9, ChooseReplacementReply, CLIENTS to MASTERS;
    /// Damage noticed.
    ReportReplica = 10, Empty, CLIENTS_AND_NODES to MASTERS;
    /// Where a proxy listens.
    RegisterProxy = 11, Empty, PROXIES to MASTERS;
    /// Which sessions live.
    VouchSessions = 12, VouchSessionsReply, PROXIES to MASTERS;

    // Master: administration.
    /// State of the cluster.
    ClusterStatus = 20, ClusterStatusReply, ANY to MASTERS;
    /// Move all replicas off a node.
    DrainNode = 21, DrainReply, OPERATORS to MASTERS;
    /// Compare map and disks.
    Fsck = 22, FsckReply, OPERATORS to MASTERS;
    /// Files behind an inode's replicas.
    Locate = 23, LocateReply, OPERATORS to MASTERS;
    /// How a dataset lies on its nodes.
    DescribeDataset = 24, DescribeDatasetReply, OPERATORS to MASTERS;
    /// Why copies move, or do not.
    ExplainCopies = 25, ExplainCopiesReply, OPERATORS to MASTERS;
    /// An empty node leaves.
    RemoveNode = 26, Empty, OPERATORS to MASTERS;
    /// What is encoded, and what waits.
    RaidStatus = 27, RaidStatusReply, OPERATORS to MASTERS;
    /// RAID sets with the state of their parts.
    DescribeRaidSets = 28, DescribeRaidSetsReply, OPERATORS to MASTERS;
    /// Encode or repack now.
    RaidWork = 29, RaidWorkReply, OPERATORS to MASTERS;

    // Master: nodes and masters.
    /// A node starts.
    RegisterNode = 40, RegisterNodeReply, NODES to MASTERS;
    /// Its replicas.
    ReplicaReport = 41, Empty, NODES to MASTERS;
    /// It lives.
    Heartbeat = 42, HeartbeatReply, NODES to MASTERS;
    /// Raft message between masters.
    RaftMessage = 43, Empty, MASTERS to MASTERS;
    /// A client's process has ended.
    SessionEnded = 44, Empty, NODES to MASTERS;

    // Master: power.
    /// Make a plan durable and notify all.
    PublishPlan = 45, Empty, MANAGERS to MASTERS;
    /// Long poll for plans.
    WatchPower = 46, WatchPowerReply, POWER_CLIENTS to MASTERS;
    /// The state of the cluster that a power manager needs.
    DescribePower = 47, DescribePowerReply, PLANNERS to MASTERS;
    /// Parts of a handoff log that may go.
    JudgeLogs = 48, JudgeLogsReply, NODES to MASTERS;
    /// Logged writes, for a member that missed them.
    ReadLogged = 49, ReadLogReply, CLIENTS_AND_NODES to LOGGERS;

    // Block server.
    /// Versioned write, pipelined.
    WriteReplica = 60, WriteReplicaReply, WRITERS to NODES, in order by metablock;
    /// Sync up to a version.
    SyncReplicas = 61, SyncReplicasReply, CLIENTS_AND_NODES to NODES;
    /// Read chunks.
    ReadReplica = 62, ReadReplicaReply, CLIENTS_AND_NODES to HOLDERS;
    /// Next data or hole.
    SeekReplica = 63, SeekReplicaReply, CLIENTS_AND_NODES to HOLDERS;
    /// Recovery: promise and report.
    PromiseEpoch = 64, PromiseEpochReply, MASTERS to NODES;
    /// Copy from another node.
    PullReplica = 65, PullReplicaReply, MASTERS_AND_CLIENTS to NODES;
    /// Recovery: stamp.
    StampReplica = 66, StampReplicaReply, MASTERS to NODES;
    /// Free replicas.
    DeleteReplicas = 67, Empty, MASTERS to NODES;
    /// Where and how a replica lies.
    DescribeReplicas = 68, DescribeReplicasReply, MASTERS to NODES;
    /// Check every checksum.
    Scrub = 69, ScrubReply, MASTERS to NODES;
    /// Where clients of the host get descriptors.
    ShortCircuitTicket = 70, ShortCircuitTicketReply, CLIENTS to NODES;

    /// Take no new work, finish, sync: before sleep.
    Rest = 71, Empty, POWER_CLIENTS to NODES;
    /// Keep writes that sleeping members have not got (the master, too).
    LogWrites = 72, LogWritesReply, CLIENTS_AND_NODES to LOGGERS;
    /// Refuse lower epochs, then return the logged writes.
    ReadLog = 73, ReadLogReply, MASTERS to NODES;
    /// Keep the bytes of a direct write, forwarded.
    PutStaged = 74, WriteReplicaReply, CLIENTS_AND_NODES to NODES;
    /// Give them back, for a member that lost them.
    ReadStaged = 75, ReadStagedReply, PROXIES to NODES;
    /// Keep them no longer.
    DropStaged = 76, Empty, PROXIES to NODES;
    /// Get writes that it missed from the always-on node's log.
    FeedReplica = 77, WriteReplicaReply, CLIENTS to NODES;
    /// Make the check metablocks of a RAID set.
    EncodeSet = 78, EncodeSetReply, MASTERS to NODES;
    /// Make a part of a RAID set of the others.
    RebuildReplica = 79, RebuildReplicaReply, MASTERS_AND_CLIENTS to NODES;

    // Any process.
    /// Bytes and calls since start.
    Counters = 80, CountersReply, ANY to ANY;

    // Block server: more.
    /// Compare the rows of a RAID set with its slots.
    VerifySet = 81, VerifySetReply, MASTERS to NODES;

    // Worker.
    /// Word count of splits.
    CountWords = 100, CountWordsReply, OPERATORS to WORKERS;

    // Proxy.
    /// Take part in a shared file.
    JoinShared = 110, JoinSharedReply, CLIENTS to PROXIES;
    /// An operation on a shared file.
    SharedOp = 111, SharedOpReply, CLIENTS to PROXIES;
    /// A call to a block server that sleeps, held until it wakes.
    RelayCall = 112, RelayReply, CLIENTS to PROXIES;
    /// Have a replica in memory, for a node that never meets its source.
    FetchReplica = 113, FetchReplicaReply, MASTERS to PROXIES;

    // Power manager.
    /// The operator's override of the supply.
    SetPower = 120, Empty, OPERATORS to MANAGERS;
    /// Where the supply is read from.
    FollowSource = 121, Empty, OPERATORS to MANAGERS;
    /// Another policy.
    SetPolicy = 122, Empty, OPERATORS to MANAGERS;
    /// Plan, watts, nodes.
    PowerStatus = 123, PowerStatusReply, OPERATORS to MANAGERS;

    // Power client.
    /// The power states of its nodes.
    NodesPower = 130, NodesPowerReply, MANAGERS to POWER_CLIENTS;

    // Master: identities.
    /// Token for a host.
    InviteHost = 140, InviteHostReply, OPERATORS to MASTERS;
    /// Certificates for a host with a token.
    JoinCluster = 141, JoinClusterReply, JOINERS to MASTERS;
    /// Another certificate for the caller.
    RenewIdentity = 142, RenewIdentityReply, ANY to MASTERS;
    /// Certificates are not believed any more.
    RevokeIdentities = 143, Empty, OPERATORS to MASTERS;
    /// Invitations and revocations.
    DescribeTrust = 144, DescribeTrustReply, OPERATORS to MASTERS;
    /// The caller runs, and serves at an address.
    Announce = 145, AnnounceReply, ANY to MASTERS;
    /// The cluster's version is raised.
    RaiseVersion = 147, Empty, OPERATORS to MASTERS;
    /// Connect to the caller.
    CallBack = 146, Empty, SERVICES to MASTERS;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_method() {
        for method in Method::ALL {
            assert_eq!(Method::from_raw(*method as u16), Some(*method));
        }
        assert_eq!(Method::from_raw(0), None);
    }

    /// One row for all calls of the same roles, in the order of their first call.
    fn table() -> String {
        let mut rows: Vec<(Roles, Roles, Vec<String>)> = Vec::new();
        for method in Method::ALL {
            let (callers, servers, name) = (method.callers(), method.servers(), format!("`{method:?}`"));
            match rows.iter_mut().find(|(other, others, _)| (*other, *others) == (callers, servers)) {
                Some((_, _, names)) => names.push(name),
                None => rows.push((callers, servers, vec![name])),
            }
        }
        let words = |roles: Roles| if roles == Roles::MEMBERS { "any".to_owned() } else { roles.to_string() };
        let row = |(callers, servers, names): (Roles, Roles, Vec<String>)| {
            format!("| {} | {} | {} |\n", words(callers), words(servers), names.join(", "))
        };
        rows.into_iter().map(row).collect()
    }

    #[test]
    fn the_documented_table_is_the_one_that_is_enforced() {
        let documented = include_str!("../../../docs/identities.md");
        assert!(documented.contains(&table()), "write this into docs/identities.md:\n{}", table());
    }
}
