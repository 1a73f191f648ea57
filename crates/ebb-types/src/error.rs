//! One error for all crates: a coarse kind that a caller can act on, and a sentence for a person.

use std::borrow::Cow;
use std::fmt;

/// Result with Ebb's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $errno:literal, $retry:ident;)*) => {
        /// The kind of a failure, as far as a caller can act on it. The numbers travel on the wire and never change.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[repr(u32)]
        pub enum ErrorKind { $($(#[$doc])* $name = $number,)* }

        impl ErrorKind {
            /// Every kind, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The kind with this wire number; unknown numbers come from a newer peer and are `Internal`.
            #[must_use]
            pub fn from_raw(raw: u32) -> Self {
                match raw { $($number => Self::$name,)* _ => Self::Internal }
            }

            /// Wire number.
            #[must_use]
            pub const fn raw(self) -> u32 { self as u32 }

            /// The Linux error number that a mount answers with.
            #[must_use]
            pub const fn errno(self) -> i32 { match self { $(Self::$name => $errno,)* } }

            /// Whether the same call may be sent again.
            #[must_use]
            pub const fn retry(self) -> Retry { match self { $(Self::$name => Retry::$retry,)* } }

            /// Whether a member that answers so has no good copy, and will not have one by itself.
            #[must_use]
            pub const fn is_copy_lost(self) -> bool {
                matches!(self, Self::Corrupt | Self::NoReplica | Self::StaleVersion | Self::VolumePoisoned)
            }
        }
    };
}

/// Verdict on sending a failed call again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Nothing was done: send again, to the same peer or another.
    Safe,
    /// It may have been done: send again only if repeating does no harm (or the request id makes it so).
    IfIdempotent,
    /// Sending again gives the same answer.
    Never,
}

kinds! {
    /// No such name, inode, metablock or dataset.
    NotFound = 1, 2, Never;
    /// Not permitted to this user at all (EPERM).
    NotPermitted = 2, 1, Never;
    /// Permission bits or ACL refuse it (EACCES).
    AccessDenied = 3, 13, Never;
    /// The name exists.
    Exists = 4, 17, Never;
    /// A path component is not a directory.
    NotDirectory = 5, 20, Never;
    /// The target is a directory.
    IsDirectory = 6, 21, Never;
    /// The directory has entries.
    NotEmpty = 7, 39, Never;
    /// A value is malformed or out of range.
    Invalid = 8, 22, Never;
    /// A name is longer than 255 bytes or a path longer than 4095.
    NameTooLong = 9, 36, Never;
    /// Too many symbolic links on the way.
    TooManyLinks = 10, 40, Never;
    /// The inode has as many hard links as it can.
    LinkLimit = 11, 31, Never;
    /// Rename or link across datasets or file systems.
    CrossDevice = 12, 18, Never;
    /// No volume has room.
    NoSpace = 13, 28, Never;
    /// A quota is used up.
    QuotaExceeded = 14, 122, Never;
    /// File larger than the largest allowed.
    FileTooLarge = 15, 27, Never;
    /// No such attribute (ENODATA).
    NoAttribute = 16, 61, Never;
    /// The answer does not fit in the buffer that was offered (ERANGE).
    Range = 17, 34, Never;
    /// Another owner holds the lock (EAGAIN).
    WouldBlock = 18, 11, Never;
    /// Waiting would close a circle of lock waiters (EDEADLK).
    Deadlock = 19, 35, Never;
    /// The file is in use in a way that forbids this (EBUSY).
    Busy = 20, 16, Safe;
    /// Not offered here (EOPNOTSUPP).
    Unsupported = 21, 95, Never;
    /// No data or hole beyond this offset (ENXIO).
    NoSuchOffset = 22, 6, Never;
    /// The handle or inode is gone (ESTALE).
    Stale = 23, 116, Never;
    /// Interrupted by the caller.
    Interrupted = 24, 4, Safe;
    /// The caller's file is read-only here (EROFS, EBADF by context).
    ReadOnly = 25, 30, Never;
    /// A value is longer than the largest allowed (E2BIG).
    TooBig = 26, 7, Never;
    /// No more locks (ENOLCK).
    NoLocks = 27, 37, Never;

    /// The epoch is older than one that was promised: the lease is lost.
    StaleEpoch = 40, 5, Never;
    /// The replica is below the version that was asked for.
    StaleVersion = 41, 5, Safe;
    /// The set changed since the caller read it: read it again.
    SetChanged = 42, 5, Safe;
    /// A write's predecessor never arrived.
    Gap = 43, 5, Never;
    /// The session has expired or is unknown.
    SessionExpired = 44, 5, Never;
    /// The file has another lease holder.
    LeaseHeld = 45, 11, Safe;
    /// This node has no such replica, volume or incarnation.
    NoReplica = 46, 5, Safe;
    /// Stored bytes do not match their checksum.
    Corrupt = 47, 5, Safe;
    /// The volume failed a sync or an I/O and takes no more work until it has been checked.
    VolumePoisoned = 48, 5, Safe;
    /// Not the leader; the detail names a possible leader.
    NotLeader = 49, 11, Safe;
    /// Too few nodes are awake or alive for the request.
    Unavailable = 50, 5, Safe;
    /// The file is held elsewhere, or under another epoch: ask the master where. Nothing was done.
    Moved = 51, 5, Safe;
    /// The master's memory is older than the state that others have seen of it. It serves nothing until an operator has
    /// decided.
    WentBack = 52, 5, Never;
    /// The caller's identity belongs to another process: the caller's directory is a copy or went back in time.
    Superseded = 53, 5, Never;
    /// Another client took the file over after this handle was opened: it may not write.
    TakenOver = 54, 5, Never;

    /// The deadline passed. The operation may have been carried out.
    Timeout = 60, 110, IfIdempotent;
    /// The connection broke. The operation may have been carried out.
    Disconnected = 61, 107, IfIdempotent;
    /// The peer could not be reached; nothing was done.
    Unreachable = 62, 113, Safe;
    /// The peer has as much work as it takes; nothing was done.
    Overloaded = 63, 11, Safe;
    /// The peer is not believed, or its role may not make or answer this call: [identities](identities.md).
    Unauthorized = 64, 13, Never;
    /// Bytes from a peer do not decode.
    Protocol = 65, 71, Never;
    /// The process is shutting down.
    ShuttingDown = 66, 5, Safe;

    /// Disk I/O failed.
    Io = 80, 5, Never;
    /// A bug in Ebb.
    Internal = 99, 5, Never;
}

/// A kind and a sentence. The sentence names the failure, its place and, if possible, a remedy.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Error {
    kind: ErrorKind,
    detail: Cow<'static, str>,
}

impl Error {
    /// An error of this kind with a sentence for a person.
    pub fn new(kind: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// The kind, which determines how the caller can react.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The sentence.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The Linux error number that a mount answers with.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        self.kind.errno()
    }

    /// Whether the call may be sent again.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        self.kind.retry()
    }

    /// The same error with context of the caller in front: `what: detail`.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        Self { kind: self.kind, detail: format!("{context}: {}", self.detail).into() }
    }

    /// A disk error, mapped to the kind that a caller can act on.
    pub fn from_io(error: &std::io::Error, context: impl fmt::Display) -> Self {
        use std::io::ErrorKind as Io;
        // EMFILE and ENFILE (errno(3)): nothing was done, and nothing is wrong with the disk.
        if matches!(error.raw_os_error(), Some(23 | 24)) {
            let advice = "close some of them, or raise the limit with `prlimit --nofile`";
            return Self::new(ErrorKind::Overloaded, format!("{context}: {error}; {advice}"));
        }
        let kind = match error.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::AlreadyExists => ErrorKind::Exists,
            Io::PermissionDenied => ErrorKind::AccessDenied,
            Io::StorageFull => ErrorKind::NoSpace,
            Io::QuotaExceeded => ErrorKind::QuotaExceeded,
            Io::TimedOut => ErrorKind::Timeout,
            Io::ConnectionRefused | Io::HostUnreachable | Io::NetworkUnreachable => ErrorKind::Unreachable,
            Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe | Io::UnexpectedEof | Io::NotConnected => {
                ErrorKind::Disconnected
            }
            _ => ErrorKind::Io,
        };
        Self::new(kind, format!("{context}: {error}"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({})", self.kind, self.detail)
    }
}

/// Shorthand for `Err(Error::new(kind, ...))` with a formatted sentence.
#[macro_export]
macro_rules! bail {
    ($kind:ident, $($arg:tt)*) => {
        return Err($crate::Error::new($crate::ErrorKind::$kind, format!($($arg)*)))
    };
}

/// Shorthand for `Error::new(kind, ...)` with a formatted sentence.
#[macro_export]
macro_rules! err {
    ($kind:ident, $($arg:tt)*) => {
        $crate::Error::new($crate::ErrorKind::$kind, format!($($arg)*))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_wire_and_numbers_are_unique() {
        for pair in ErrorKind::ALL.windows(2) {
            assert!(pair[0].raw() < pair[1].raw(), "{pair:?} out of order");
        }
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_raw(kind.raw()), *kind);
            assert!(kind.errno() > 0);
        }
        assert_eq!(ErrorKind::from_raw(12_345), ErrorKind::Internal);
    }

    #[test]
    fn want_of_descriptors_is_not_taken_for_a_bad_disk() {
        for errno in [23, 24] {
            let error = Error::from_io(&std::io::Error::from_raw_os_error(errno), "cannot open f");
            assert_eq!(error.kind(), ErrorKind::Overloaded);
            assert!(error.detail().contains("prlimit"), "{error}");
        }
    }

    #[test]
    fn context_reads_from_the_outside_in() {
        let error = err!(NoSpace, "volume v3 is full").context("writing m7");
        assert_eq!(error.to_string(), "writing m7: volume v3 is full");
        assert_eq!(error.errno(), 28);
    }
}
