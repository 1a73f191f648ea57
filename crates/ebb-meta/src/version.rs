//! The cluster version: which commands and records the log of a cluster may have.
//!
//! Two releases run side by side during an upgrade, and the older one must read what the newer one writes. So a release
//! that brings a command, or a record of checkpoints, brings a version, too. It uses neither before an operator has raised
//! the cluster to that version. There is no way back: from then on only releases that know the version can serve.

pub use ebb_types::cluster_version::{NEWEST, OLDEST};
use ebb_types::{Error, Result, bail, err};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;

use crate::machine::Machine;

/// The version that a command needs.
#[must_use]
pub const fn needed(change: &Change) -> u32 {
    match change {
        Change::Invite(_) | Change::AdmitHost(_) | Change::Revoke(_) => 2,
        _ => OLDEST,
    }
}

/// Refuses a command that the release of this process does not know. A master that passed over one would have another
/// state than the others: it must stop instead.
///
/// # Errors
/// `Unsupported`.
pub fn check_known(command: &pb::Command) -> Result<()> {
    match &command.command {
        None => bail!(Unsupported, "the log has a command that this release does not know: use a newer one"),
        Some(Change::RaiseVersion(version)) if *version > NEWEST => Err(too_new(*version)),
        Some(_) => Ok(()),
    }
}

/// The refusal of a log or a checkpoint of a later version.
pub(crate) fn too_new(version: u32) -> Error {
    err!(Unsupported, "the cluster is at version {version}, this release knows up to {NEWEST}: use a newer one")
}

impl Machine {
    /// The cluster's version.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Refuses a command for which the cluster's version is too old.
    ///
    /// # Errors
    /// `Unsupported` says how to go on.
    pub fn check_version(&self, change: &Change) -> Result<()> {
        let (needed, version) = (needed(change), self.version);
        if version < needed {
            bail!(
                Unsupported,
                "the cluster is at version {version}, and this takes version {needed}: when all masters and nodes run this \
                 release, raise it with `ebb cluster raise-version`"
            );
        }
        Ok(())
    }

    /// Raises the version. Raising it to the present one changes nothing.
    pub(crate) fn raise_version(&mut self, version: u32) -> Result<()> {
        if version < self.version {
            bail!(Invalid, "the cluster is at version {}: there is no way back to {version}", self.version);
        }
        self.version = version;
        Ok(())
    }
}
