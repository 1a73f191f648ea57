//! Identifiers. Each is a tuple struct with a private field, so that one can never stand for another. It prints with a
//! letter that names its kind.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);

        impl $name {
            /// Wraps a number that came from the wire, from disk or from a counter.
            #[must_use]
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }

            /// The number, for the wire and for disk.
            #[must_use]
            pub const fn raw(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// One start of a block server process. A new boot id means that everything received and not synced is lost.
    BootId,
    "boot"
);
id!(
    /// Names a cluster for good; written into every data directory and proved in every handshake.
    ClusterId,
    "c"
);
id!(
    /// A dataset: a directory tree with one layout, replica count and geometry. 0 is the default dataset.
    DatasetId,
    "ds"
);
id!(
    /// Fencing number of a file, raised by the master at each write lease and each recovery.
    Epoch,
    "e"
);
id!(
    /// One life of a volume: new at every format and after a check that lost files.
    Incarnation,
    "inc"
);
id!(
    /// A file, directory or other object of the namespace. Never reused. 1 is the root.
    InodeId,
    "i"
);
id!(
    /// A metablock. Comes from a durable counter and is never reused.
    MetablockId,
    "m"
);
id!(
    /// A storage node.
    NodeId,
    "n"
);
id!(
    /// A power plan: each is the former plus one. 0 is none.
    PlanVersion,
    "plan"
);
id!(
    /// A RAID set. Comes from the counter of metablocks and is never reused.
    RaidSetId,
    "rs"
);
id!(
    /// Number of a request within its session; a repeated one is answered, not redone.
    RequestId,
    "r"
);
id!(
    /// One start of a client process, as the master knows it.
    SessionId,
    "s"
);
id!(
    /// A snapshot of a dataset. Comes from a durable counter and is never reused, so a higher one was taken later.
    SnapshotId,
    "snap"
);
id!(
    /// One disk of a node (or the directory that stands for one).
    VolumeId,
    "v"
);

impl InodeId {
    /// The root directory.
    pub const ROOT: Self = Self::new(1);
}

impl Epoch {
    /// Above the epoch of every writer and recovery. Members of a frozen metablock promise it, so that no write, stamp or
    /// deletion of a writer's epoch gets through.
    pub const FROZEN: Self = Self::new(1 << 63);

    /// Above [`Epoch::FROZEN`]. Members of ballast promise it: they serve the decoding of their RAID set, and no reader of
    /// a file.
    pub const RETIRED: Self = Self::new((1 << 63) + 1);

    /// Highest epoch of a writer or recovery. Above it and below [`Epoch::FROZEN`] there is none.
    pub const REAL_MAX: Self = Self::new(1 << 62);

    /// Whether a writer or a recovery can have it.
    #[must_use]
    pub const fn is_real(self) -> bool {
        self.raw() <= Self::REAL_MAX.raw()
    }

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.raw() + 1)
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(String);

        impl $name {
            /// Wraps a declared name.
            #[must_use]
            pub fn new(name: impl Into<String>) -> Self {
                Self(name.into())
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// Maps with names as keys are asked with text.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// Unit of locality and failure. Declared, never deduced from an address.
    HostName
);
name!(
    /// A group of hosts that can fail together.
    RackName
);
