//! Who may become part of the cluster, and whose certificates are not believed any more.
//!
//! The machine keeps what the master decided. It reads no certificate: a number of a certificate is bytes here.

use std::collections::BTreeMap;

use ebb_types::trust::CERTIFICATE_MAX;
use ebb_types::{Result, bail, err};
use ebb_wire::pb;

use crate::machine::Machine;

/// Most invitations that are kept.
pub const INVITATIONS_MAX: usize = 1024;
/// Most revocations that are kept. Each process of the cluster has them all in memory, and compares each new peer.
pub const REVOCATIONS_MAX: usize = 1024;
/// A revocation is kept for so long: no certificate is issued for longer.
pub const REVOCATION_NS: i64 = CERTIFICATE_MAX.as_nanos() as i64;

/// More revocations than a lost history can have had.
const LOST_VERSIONS: u64 = 1 << 20;

/// Invitations and revocations.
#[derive(Clone, Default, Debug)]
pub(crate) struct Trust {
    /// Grows with each revocation.
    version: u64,
    revocations: Vec<pb::Revocation>,
    /// By the number of the token's certificate.
    invitations: BTreeMap<Vec<u8>, pb::Invitation>,
}

impl Trust {
    /// For a checkpoint; none while there is nothing.
    pub(crate) fn to_record(&self) -> Option<pb::TrustRecord> {
        let invitations = self.invitations.values().cloned().collect();
        let record = pb::TrustRecord { version: self.version, revocations: self.revocations.clone(), invitations };
        (record != pb::TrustRecord::default()).then_some(record)
    }

    /// From a checkpoint.
    ///
    /// # Errors
    /// `Corrupt` if it has more than there can be.
    pub(crate) fn from_record(record: pb::TrustRecord) -> Result<Self> {
        let pb::TrustRecord { version, revocations, invitations } = record;
        if revocations.len() > REVOCATIONS_MAX || invitations.len() > INVITATIONS_MAX {
            bail!(Corrupt, "{} revocations and {} invitations", revocations.len(), invitations.len());
        }
        let invitations = invitations.into_iter().map(|invitation| (invitation.serial.clone(), invitation)).collect();
        Ok(Self { version, revocations, invitations })
    }

    /// The lost history may have given later versions to other lists: processes that know one follow this list from now on.
    pub(crate) fn pass_over_lost(&mut self) {
        self.version = self.version.saturating_add(LOST_VERSIONS);
    }

    /// Makes room before something is recorded. A refused command leaves no trace, so what has expired may be there.
    fn forget_expired(&mut self, now_ns: i64) {
        self.invitations.retain(|_, invitation| is_open(invitation, now_ns));
        self.revocations.retain(|revocation| is_in_force(revocation, now_ns));
    }
}

fn is_open(invitation: &pb::Invitation, now_ns: i64) -> bool {
    invitation.until_ns >= now_ns
}

fn is_in_force(revocation: &pb::Revocation, now_ns: i64) -> bool {
    revocation.made_ns.saturating_add(REVOCATION_NS) >= now_ns
}

impl Machine {
    /// The revocations, in the order in which they were made, and the version of the list.
    #[must_use]
    pub fn revocations(&self) -> (u64, &[pb::Revocation]) {
        (self.trust.version, &self.trust.revocations)
    }

    /// Invitations that were not forgotten yet, used, expired or not.
    pub fn invitations(&self) -> impl Iterator<Item = &pb::Invitation> + '_ {
        self.trust.invitations.values()
    }

    /// The invitation whose token has this number.
    #[must_use]
    pub fn invitation(&self, serial: &[u8]) -> Option<&pb::Invitation> {
        self.trust.invitations.get(serial)
    }

    /// Records an invitation. Recording it again changes nothing.
    pub(crate) fn invite(&mut self, now_ns: i64, invitation: &pb::Invitation) -> Result<()> {
        if invitation.serial.is_empty() || !invitation.used_for.is_empty() {
            bail!(Invalid, "an invitation is made with the number of its token, and unused");
        }
        let known = &self.trust.invitations;
        if known.contains_key(&invitation.serial) {
            return Ok(());
        }
        if known.values().filter(|known| is_open(known, now_ns)).count() >= INVITATIONS_MAX {
            bail!(Overloaded, "{INVITATIONS_MAX} hosts are invited: wait until some invitations have expired");
        }
        self.trust.forget_expired(now_ns);
        self.trust.invitations.insert(invitation.serial.clone(), invitation.clone());
        Ok(())
    }

    /// Uses an invitation. One and the same request may use it again, because its answer may have been lost.
    pub(crate) fn admit_host(&mut self, now_ns: i64, admit: &pb::AdmitHost) -> Result<()> {
        let open = self.trust.invitations.get_mut(&admit.serial).filter(|invitation| is_open(invitation, now_ns));
        let invitation = open.ok_or_else(|| {
            err!(Unauthorized, "the token has expired, or is not this cluster's: make one with `ebb node token`")
        })?;
        let host = &invitation.host;
        if !invitation.used_for.is_empty() && invitation.used_for != admit.request {
            bail!(Unauthorized, "the token was used already, by host {host}: make another one with `ebb node token`");
        }
        if !host.is_empty() && *host != admit.host {
            bail!(Unauthorized, "the token is for host {host}, not for {}", admit.host);
        }
        invitation.used_for.clone_from(&admit.request);
        invitation.host.clone_from(&admit.host);
        Ok(())
    }

    /// Withdraws certificates.
    pub(crate) fn revoke(&mut self, now_ns: i64, revocation: &pb::Revocation) -> Result<()> {
        let in_force = self.trust.revocations.iter().filter(|known| is_in_force(known, now_ns)).count();
        if in_force >= REVOCATIONS_MAX {
            bail!(Overloaded, "{REVOCATIONS_MAX} revocations are in force: revoke by role or host, not one by one");
        }
        self.trust.forget_expired(now_ns);
        self.trust.version = self.trust.version.saturating_add(1);
        self.trust.revocations.push(pb::Revocation { made_ns: now_ns, ..revocation.clone() });
        Ok(())
    }
}
