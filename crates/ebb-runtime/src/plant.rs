//! Planted mistakes: wrong behaviour on demand, so that a checker can prove that it would notice.
//!
//! The code that decides asks [`crate::Runtime::has_plant`] at the line where the mistake would be made. A mistake is
//! planted in a world, never in a process: only [`crate::virt::WorldOptions`] has a place for it. The back end for
//! Linux has none and answers "no" to every question, so no option, message, environment or file can bring one into a
//! real cluster.

use std::fmt;

macro_rules! plants {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A mistake that can be planted.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        pub enum Plant { $($(#[$doc])* $name,)* }

        impl Plant {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// What people call it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

plants! {
    /// A volume answers "synced" without a sync of its journal.
    SkipFsync = "skip-fsync";
    /// A client takes cached bytes for good whatever version its new lease brings.
    StaleRead = "stale-read";
    /// A volume takes writes of an epoch below the one that it promised.
    EpochIgnored = "epoch-ignored";
    /// A volume places overwrites without journaling them first.
    TornOverwrite = "torn-overwrite";
    /// The master takes a copy for a move: it deletes the source before the new set is recorded.
    EarlyDelete = "early-delete";
    /// A client takes what members have received for synced, and acknowledges and commits it.
    CommitUnsynced = "commit-unsynced";
    /// A client answers fsync at once: what was written is on its way, and that is all.
    ForgetFsync = "forget-fsync";
    /// A handoff log confirms what it has not synced.
    StandinUnsynced = "standin-unsynced";
    /// A recovery does not read what was logged for members that sleep.
    LogIgnored = "log-ignored";
    /// A proxy gives the parts of a direct write their versions one after the other, and is in nobody's way meanwhile.
    DirectHalves = "direct-halves";
    /// What is away from home stays away.
    StaysAway = "stays-away";
    /// What lies where its chain does not want it stays there.
    StaysMisplaced = "stays-misplaced";
    /// A master believes what it reads of its log at a start, whether or not it was ever synced.
    CacheTrusted = "cache-trusted";
    /// A master that did not run for a while takes for silence what it did not hear.
    BlamesSilence = "blames-silence";
    /// A mount whose host slept lets its kernel go on believing.
    TrustStandsStill = "trust-stands-still";
    /// A client that cannot give a lease back keeps it as long as it polls, and the master waits.
    KeepsForever = "keeps-forever";
    /// The session of a dead mount ends while its kernel may still answer programs from its pages.
    EndsMountAtOnce = "ends-mount-at-once";
    /// An open of a file whose name was taken since it was looked up is answered that there is no such name.
    OpenDisplaced = "open-displaced";
    /// The master deletes what the map does not name, however few good copies the set has.
    MapAlone = "map-alone";
    /// A client keeps the write leases of files that it has closed.
    KeepsIdle = "keeps-idle";
    /// A master serves whatever others say that they have seen of a newer one.
    OldMasterServes = "old-master-serves";
    /// No node ever counts as gray, however slow it is.
    NeverGray = "never-gray";
    /// A node that was slow for a while counts as gray for good.
    GrayForGood = "gray-for-good";
    /// A client goes on with fewer members only when the operation's deadline is over.
    WaitsToGoOn = "waits-to-go-on";
    /// Repair brings a node back at once that the writer cannot reach.
    BringsBack = "brings-back";
}

impl Plant {
    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|plant| plant.name() == name)
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
