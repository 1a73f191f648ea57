//! What a client holds of a file.

use ebb_wire::pb;

/// What this client holds on a file, in the order of what it allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Lease {
    /// Nothing: the master is asked.
    #[default]
    None,
    /// Data and attributes may be cached.
    Read,
    /// The only writer.
    Write,
}

impl Lease {
    /// As messages say it.
    pub fn mode(self) -> pb::LeaseMode {
        match self {
            Self::None => pb::LeaseMode::LeaseNone,
            Self::Read => pb::LeaseMode::LeaseRead,
            Self::Write => pb::LeaseMode::LeaseWrite,
        }
    }

    /// From a message.
    pub fn from_mode(mode: pb::LeaseMode) -> Self {
        match mode {
            pb::LeaseMode::LeaseNone => Self::None,
            pb::LeaseMode::LeaseRead => Self::Read,
            pb::LeaseMode::LeaseWrite => Self::Write,
        }
    }
}
