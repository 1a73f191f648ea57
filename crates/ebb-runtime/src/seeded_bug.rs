//! Seeded bugs: wrong behaviour on demand, so that a checker can prove that it would notice.
//!
//! The code that decides asks [`crate::Runtime::has_bug`] at the line where the mistake would be made. A bug is
//! seeded in a world, never in a process: only [`crate::virt::WorldOptions`] has a place for it. The back end for
//! Linux has none and answers "no" to every question, so no option, message, environment or file can bring one into a
//! real cluster.

use std::fmt;

macro_rules! seeded_bugs {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A bug that can be seeded.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        pub enum SeededBug { $($(#[$doc])* $name,)* }

        impl SeededBug {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name on command lines and in logs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

seeded_bugs! {
    /// A volume answers "synced" without a sync of its journal.
    SkipFsync = "skip-fsync";
    /// A client trusts cached bytes without regard to the version that its new lease brings.
    StaleRead = "stale-read";
    /// A volume takes writes of an epoch below the one that it promised.
    EpochIgnored = "epoch-ignored";
    /// A volume places overwrites without journaling them first.
    TornOverwrite = "torn-overwrite";
    /// The master takes a copy for a move: it deletes the source before the new set is recorded.
    EarlyDelete = "early-delete";
    /// A client treats received writes as synced, and acknowledges and commits them.
    CommitUnsynced = "commit-unsynced";
    /// A client answers fsync at once, while the writes are still on their way.
    ForgetFsync = "forget-fsync";
    /// A client answers a push at once, while the writes are still on their way.
    ForgetPush = "forget-push";
    /// A handoff log confirms writes that it has not synced.
    StandinUnsynced = "standin-unsynced";
    /// A recovery does not read the writes that were logged for sleeping members.
    LogIgnored = "log-ignored";
    /// A proxy gives the parts of a direct write their versions one after the other, and blocks no other operation
    /// meanwhile.
    DirectHalves = "direct-halves";
    /// Copies away from home stay away.
    StaysAway = "stays-away";
    /// Copies at places that their chain does not want stay there.
    StaysMisplaced = "stays-misplaced";
    /// A master trusts the log that it reads at a start, even if it was never synced.
    CacheTrusted = "cache-trusted";
    /// A master that did not run for a while treats messages that it missed as silence.
    BlamesSilence = "blames-silence";
    /// A mount whose host slept lets its kernel trust the cache for longer.
    TrustStandsStill = "trust-stands-still";
    /// A client that cannot give a lease back keeps it as long as it polls, and the master waits.
    KeepsForever = "keeps-forever";
    /// The session of a dead mount ends while its kernel may still answer programs from its pages.
    EndsMountAtOnce = "ends-mount-at-once";
    /// An open fails with "no such name" if the file's name was taken after the lookup.
    OpenDisplaced = "open-displaced";
    /// The master deletes every replica that the map does not name, even if the set has too few good copies.
    MapAlone = "map-alone";
    /// A client keeps the write leases of files that it has closed.
    KeepsIdle = "keeps-idle";
    /// A master serves although others report that they have seen a newer state of it.
    OldMasterServes = "old-master-serves";
    /// No node ever counts as gray, however slow it is.
    NeverGray = "never-gray";
    /// A node that was slow for a while counts as gray for good.
    GrayForGood = "gray-for-good";
    /// A client goes on with fewer members only when the operation's deadline is over.
    WaitsToGoOn = "waits-to-go-on";
    /// A row of a RAID set is not the code of its slots, and its encoder proves nothing.
    WrongRow = "wrong-row";
    /// An heir takes its place before its members have the bytes.
    SwapUnfilled = "swap-unfilled";
    /// What a file has lost is not retired: it serves every reader.
    NotRetired = "not-retired";
    /// A thaw copies what was cut off, too.
    ThawsTheCut = "thaws-the-cut";
    /// A client writes in place what a snapshot has.
    WritesFrozen = "writes-frozen";
    /// Repair brings a node back at once that the writer cannot reach.
    BringsBack = "brings-back";
    /// A client that takes a file over does not tell the master.
    TakeoverUncounted = "takeover-uncounted";
    /// A proxy keeps a file that was taken over, so that its clients do not learn of it.
    StayGoesOn = "stay-goes-on";
}

impl SeededBug {
    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

impl fmt::Display for SeededBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
