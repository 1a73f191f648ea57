//! Certificates that are not believed any more, although they have not expired.

use ebb_types::{HostName, Role, WallTime};

use crate::authority::CLOCK_TOLERANCE;
use crate::subject::{Subject, Validity};

/// Withdraws certificates: those that have all that it names, and were issued before a moment. A field that is none
/// names nothing. What is certified anew afterwards is believed again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Revocation {
    /// Their role.
    pub role: Option<Role>,
    /// Their host.
    pub host: Option<HostName>,
    /// Their user.
    pub uid: Option<u32>,
    /// The number of one certificate.
    pub serial: Option<Vec<u8>>,
    /// Issued before.
    pub before: WallTime,
}

impl Revocation {
    /// Whether it withdraws this certificate.
    #[must_use]
    pub fn covers(&self, subject: &Subject, serial: &[u8], validity: Validity) -> bool {
        let tolerance = i64::try_from(CLOCK_TOLERANCE.as_nanos()).expect("minutes");
        let issued = validity.from.0.saturating_add(tolerance);
        issued < self.before.0
            && self.role.is_none_or(|role| role == subject.role)
            && self.host.as_ref().is_none_or(|host| subject.host.as_ref() == Some(host))
            && self.uid.is_none_or(|uid| subject.user.as_ref().is_some_and(|user| user.uid == uid))
            && self.serial.as_ref().is_none_or(|withdrawn| withdrawn == serial)
    }
}

/// All revocations of a cluster, as of a version of the list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Revocations {
    /// Grows with each change.
    pub version: u64,
    /// In the order in which they were made.
    pub list: Vec<Revocation>,
}

impl Revocations {
    /// The revocation of this certificate, if there is one.
    #[must_use]
    pub fn of(&self, subject: &Subject, serial: &[u8], validity: Validity) -> Option<&Revocation> {
        self.list.iter().find(|revocation| revocation.covers(subject, serial, validity))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebb_types::{ClusterId, Credentials};

    use super::*;
    use crate::Authority;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn what_was_issued_before_is_withdrawn_and_what_comes_after_is_not() {
        let cluster = ClusterId::new(7);
        let authority = Authority::create(cluster, WallTime(HOUR)).unwrap();
        let host = HostName::new("h1");
        let node = Subject::process(cluster, Role::Block, host.clone());
        let user = Subject {
            role: Role::Program,
            user: Some(Credentials { uid: 1000, gid: 1000, groups: Vec::new() }),
            ..node.clone()
        };
        let issue =
            |subject: &Subject, at| authority.issue(subject, WallTime(at), Duration::from_secs(90_000)).unwrap();
        let (old, new, of_user) = (issue(&node, HOUR), issue(&node, 3 * HOUR), issue(&user, HOUR));
        let is_revoked = |revocation: &Revocation, key: &crate::CertifiedKey| {
            let list = Revocations { version: 1, list: vec![revocation.clone()] };
            list.of(key.subject(), key.serial(), key.validity()).is_some()
        };
        let before = WallTime(2 * HOUR);
        let of_host = Revocation { host: Some(host), before, ..Default::default() };
        assert!(is_revoked(&of_host, &old) && is_revoked(&of_host, &of_user) && !is_revoked(&of_host, &new));
        let of_another = Revocation { host: Some(HostName::new("h2")), before, ..Default::default() };
        assert!(!is_revoked(&of_another, &old));
        let of_role = Revocation { role: Some(Role::Block), before, ..Default::default() };
        assert!(is_revoked(&of_role, &old) && !is_revoked(&of_role, &of_user));
        let of_uid = Revocation { uid: Some(1000), before, ..Default::default() };
        assert!(is_revoked(&of_uid, &of_user) && !is_revoked(&of_uid, &old));
        let of_one =
            Revocation { serial: Some(old.serial().to_vec()), before: WallTime(i64::MAX), ..Default::default() };
        assert!(is_revoked(&of_one, &old) && !is_revoked(&of_one, &new));
    }
}
