//! The calls of the protocol: a number for each, and its request and reply types.

use crate::pb;

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $reply:ident $(, in order by $stream:ident)?;)*) => {
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

methods! {
    // Master: clients.
    /// Namespace query or mutation.
    MetaRequest = 1, MetaReply;
    /// New session.
    OpenSession = 2, OpenSessionReply;
    /// Ends a session cleanly.
    CloseSession = 3, Empty;
    /// Long poll; keeps the session alive.
    Poll = 4, PollReply;
    /// A session's leases and open files, for a new master.
    Reclaim = 5, Empty;
    /// Lease on a file.
    Acquire = 6, AcquireReply;
    /// Handles closed.
    Forget = 7, Empty;
    /// Read leases given back.
    Release = 8, Empty;
    /// Volume for a failed member's place.
    ChooseReplacement = 9, ChooseReplacementReply;
    /// Damage noticed.
    ReportReplica = 10, Empty;
    /// Where a proxy listens.
    RegisterProxy = 11, Empty;
    /// Which sessions live.
    VouchSessions = 12, VouchSessionsReply;

    // Master: administration.
    /// State of the cluster.
    ClusterStatus = 20, ClusterStatusReply;
    /// Move all replicas off a node.
    DrainNode = 21, DrainReply;
    /// Compare map and disks.
    Fsck = 22, FsckReply;
    /// Files behind an inode's replicas.
    Locate = 23, LocateReply;
    /// How a dataset lies on its nodes.
    DescribeDataset = 24, DescribeDatasetReply;
    /// Why copies move, or do not.
    ExplainCopies = 25, ExplainCopiesReply;
    /// An empty node leaves.
    RemoveNode = 26, Empty;
    /// What is encoded, and what waits.
    RaidStatus = 27, RaidStatusReply;
    /// RAID sets with the state of their parts.
    DescribeRaidSets = 28, DescribeRaidSetsReply;
    /// Encode or repack now.
    RaidWork = 29, RaidWorkReply;

    // Master: nodes and masters.
    /// A node starts.
    RegisterNode = 40, RegisterNodeReply;
    /// Its replicas.
    ReplicaReport = 41, Empty;
    /// It lives.
    Heartbeat = 42, HeartbeatReply;
    /// Raft message between masters.
    RaftMessage = 43, Empty;
    /// A client's process has ended.
    SessionEnded = 44, Empty;

    // Master: power.
    /// Make a plan durable and notify all.
    PublishPlan = 45, Empty;
    /// Long poll for plans.
    WatchPower = 46, WatchPowerReply;
    /// The state of the cluster that a power manager needs.
    DescribePower = 47, DescribePowerReply;
    /// Parts of a handoff log that may go.
    JudgeLogs = 48, JudgeLogsReply;
    /// Logged writes, for a member that missed them.
    ReadLogged = 49, ReadLogReply;

    // Block server.
    /// Versioned write, pipelined.
    WriteReplica = 60, WriteReplicaReply, in order by metablock;
    /// Sync up to a version.
    SyncReplicas = 61, SyncReplicasReply;
    /// Read chunks.
    ReadReplica = 62, ReadReplicaReply;
    /// Next data or hole.
    SeekReplica = 63, SeekReplicaReply;
    /// Recovery: promise and report.
    PromiseEpoch = 64, PromiseEpochReply;
    /// Copy from another node.
    PullReplica = 65, PullReplicaReply;
    /// Recovery: stamp.
    StampReplica = 66, StampReplicaReply;
    /// Free replicas.
    DeleteReplicas = 67, Empty;
    /// Where and how a replica lies.
    DescribeReplicas = 68, DescribeReplicasReply;
    /// Check every checksum.
    Scrub = 69, ScrubReply;
    /// Where clients of the host get descriptors.
    ShortCircuitTicket = 70, ShortCircuitTicketReply;

    /// Take no new work, finish, sync: before sleep.
    Rest = 71, Empty;
    /// Keep writes that sleeping members have not got (the master, too).
    LogWrites = 72, LogWritesReply;
    /// Refuse lower epochs, then return the logged writes.
    ReadLog = 73, ReadLogReply;
    /// Keep the bytes of a direct write, forwarded.
    PutStaged = 74, WriteReplicaReply;
    /// Give them back, for a member that lost them.
    ReadStaged = 75, ReadStagedReply;
    /// Keep them no longer.
    DropStaged = 76, Empty;
    /// Get writes that it missed from the always-on node's log.
    FeedReplica = 77, WriteReplicaReply;
    /// Make the check metablocks of a RAID set.
    EncodeSet = 78, EncodeSetReply;
    /// Make a part of a RAID set of the others.
    RebuildReplica = 79, RebuildReplicaReply;

    // Any process.
    /// Bytes and calls since start.
    Counters = 80, CountersReply;

    // Block server: more.
    /// Compare the rows of a RAID set with its slots.
    VerifySet = 81, VerifySetReply;

    // Worker.
    /// Word count of splits.
    CountWords = 100, CountWordsReply;

    // Proxy.
    /// Take part in a shared file.
    JoinShared = 110, JoinSharedReply;
    /// An operation on a shared file.
    SharedOp = 111, SharedOpReply;
    /// A call to a block server that sleeps, held until it wakes.
    RelayCall = 112, RelayReply;
    /// Have a replica in memory, for a node that never meets its source.
    FetchReplica = 113, FetchReplicaReply;

    // Power manager.
    /// The operator's override of the supply.
    SetPower = 120, Empty;
    /// Where the supply is read from.
    FollowSource = 121, Empty;
    /// Another policy.
    SetPolicy = 122, Empty;
    /// Plan, watts, nodes.
    PowerStatus = 123, PowerStatusReply;

    // Power client.
    /// The power states of its nodes.
    NodesPower = 130, NodesPowerReply;
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
}
