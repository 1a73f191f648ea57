//! What a certificate says of its holder.

use std::fmt;
use std::time::Duration;

use ebb_types::{ClusterId, Credentials, HostName, Result, Role, WallTime, bail, err};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Longest name of a host in a certificate, as of DNS (RFC 1035).
const HOST_LEN_MAX: usize = 253;
/// Most supplementary groups of a user in a certificate.
const GROUPS_MAX: usize = 1024;

/// The holder of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// The cluster whose authority certifies it.
    pub cluster: ClusterId,
    /// What it is.
    pub role: Role,
    /// The host that it runs on. Without one it may run anywhere, and name its host itself.
    pub host: Option<HostName>,
    /// The user that it acts for. Without one it speaks for any user.
    pub user: Option<Credentials>,
}

/// The time in which a certificate holds, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// It does not hold before.
    pub from: WallTime,
    /// Nor after.
    pub until: WallTime,
}

impl Validity {
    /// Begins at `now` and takes so long.
    #[must_use]
    pub fn lasting(now: WallTime, span: Duration) -> Self {
        let span = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        Self { from: now, until: WallTime(now.0.saturating_add(span)) }
    }

    /// Whether more than the given part of it, in percent, is over.
    #[must_use]
    pub fn is_spent(self, now: WallTime, percent: u8) -> bool {
        let whole = i128::from(self.until.0) - i128::from(self.from.0);
        (i128::from(now.0) - i128::from(self.from.0)) * 100 >= whole * i128::from(percent)
    }
}

impl Subject {
    /// A process of the cluster that is no single user's.
    #[must_use]
    pub const fn process(cluster: ClusterId, role: Role, host: HostName) -> Self {
        Self { cluster, role, host: Some(host), user: None }
    }

    /// The name by which a TLS client asks for any process of the cluster. `internal` is for private use (ICANN, 2024).
    #[must_use]
    pub fn dns_name(cluster: ClusterId) -> String {
        format!("{:016x}.ebb.internal", cluster.raw())
    }

    /// Refuses what a certificate cannot say.
    ///
    /// # Errors
    /// `Invalid` names it.
    pub fn check(&self) -> Result<()> {
        if let Some(host) = &self.host {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
            let name = host.as_str();
            if name.is_empty() || name.len() > HOST_LEN_MAX || !name.chars().all(is_plain) {
                bail!(
                    Invalid,
                    "host {name:?}: write letters, digits, dots, hyphens, underscores and colons, at most {HOST_LEN_MAX}"
                );
            }
        }
        match &self.user {
            Some(user) if user.groups.len() > GROUPS_MAX => {
                bail!(Invalid, "user {} is in {} groups, the most is {GROUPS_MAX}", user.uid, user.groups.len())
            }
            None if self.role == Role::Program => bail!(Invalid, "a program acts for a user: name the user"),
            _ => Ok(()),
        }
    }

    /// As a certificate has it.
    #[must_use]
    pub fn to_uri(&self) -> String {
        let mut fields = Vec::new();
        if let Some(host) = &self.host {
            fields.push(format!("host={host}"));
        }
        if let Some(user) = &self.user {
            fields.push(format!("uid={}&gid={}", user.uid, user.gid));
            if !user.groups.is_empty() {
                let groups: Vec<String> = user.groups.iter().map(ToString::to_string).collect();
                fields.push(format!("groups={}", groups.join(",")));
            }
        }
        let query = if fields.is_empty() { String::new() } else { format!("?{}", fields.join("&")) };
        format!("ebb://{:016x}/{}{query}", self.cluster.raw(), self.role)
    }

    /// Reads it from a certificate.
    ///
    /// # Errors
    /// `Invalid` for every text that [`Self::to_uri`] does not write.
    pub fn parse(uri: &str) -> Result<Self> {
        let malformed = || err!(Invalid, "{uri:?} is no subject of a cluster");
        let (place, query) = uri.split_once('?').unwrap_or((uri, ""));
        let (cluster, role) =
            place.strip_prefix("ebb://").and_then(|rest| rest.split_once('/')).ok_or_else(malformed)?;
        let cluster = u64::from_str_radix(cluster, 16).map_err(|_| malformed())?;
        let role = role.parse().map_err(|_| malformed())?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| malformed());
        let (mut host, mut uid, mut gid, mut groups) = (None, None, None, Vec::new());
        for field in query.split('&').filter(|field| !field.is_empty()) {
            match field.split_once('=').ok_or_else(malformed)? {
                ("host", name) => host = Some(HostName::new(name)),
                ("uid", text) => uid = Some(number(text)?),
                ("gid", text) => gid = Some(number(text)?),
                ("groups", text) => groups = text.split(',').map(number).collect::<Result<_>>()?,
                _ => return Err(malformed()),
            }
        }
        let user = uid.zip(gid).map(|(uid, gid)| Credentials { uid, gid, groups });
        let subject = Self { cluster: ClusterId::new(cluster), role, host, user };
        // One text for one subject: what is compared as text cannot be written in two ways.
        if subject.to_uri() != uri {
            return Err(malformed());
        }
        subject.check()?;
        Ok(subject)
    }

    /// The subject of a certificate, its serial number and the time in which it holds.
    ///
    /// # Errors
    /// `Unauthorized` if it is no certificate of a cluster.
    pub fn of_certificate(der: &[u8]) -> Result<(Self, Vec<u8>, Validity)> {
        let strange = |why: &dyn fmt::Display| err!(Unauthorized, "it is no certificate of a cluster: {why}");
        let (_, certificate) = X509Certificate::from_der(der).map_err(|error| strange(&error))?;
        let names = certificate.subject_alternative_name().map_err(|error| strange(&error))?;
        let uris: Vec<&str> = names
            .iter()
            .flat_map(|names| &names.value.general_names)
            .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None })
            .collect();
        let [uri] = uris[..] else { return Err(strange(&format_args!("it has {} URIs", uris.len()))) };
        let subject = Self::parse(uri).map_err(|error| strange(&error))?;
        let wall = |seconds: i64| WallTime(seconds.saturating_mul(1_000_000_000));
        let validity = Validity {
            from: wall(certificate.validity().not_before.timestamp()),
            until: wall(certificate.validity().not_after.timestamp()),
        };
        Ok((subject, certificate.raw_serial().to_vec(), validity))
    }
}

/// For people: `block on h3`, `program of user 1000 on h3`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.role)?;
        if let Some(user) = &self.user {
            write!(f, " of user {}", user.uid)?;
        }
        if let Some(host) = &self.host {
            write!(f, " on {host}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(uid: u32, groups: &[u32]) -> Option<Credentials> {
        Some(Credentials { uid, gid: uid, groups: groups.to_vec() })
    }

    #[test]
    fn a_subject_reads_as_it_was_written() {
        let cluster = ClusterId::new(0xa7);
        for subject in [
            Subject::process(cluster, Role::Block, HostName::new("h1.example.org")),
            Subject { cluster, role: Role::Operator, host: None, user: None },
            Subject { cluster, role: Role::Program, host: Some(HostName::new("fd00::1")), user: user(1000, &[4, 24]) },
        ] {
            assert_eq!(Subject::parse(&subject.to_uri()).unwrap(), subject, "{}", subject.to_uri());
        }
    }

    #[test]
    fn another_text_is_refused() {
        for text in [
            "",
            "ebb://a7/block?host=h1",
            "ebb://00000000000000a7/cli",
            "ebb://00000000000000a7/block?host=",
            "ebb://00000000000000a7/block?host=h1&host=h2",
            "ebb://00000000000000a7/block?uid=0",
            "ebb://00000000000000a7/program?host=h1",
            "ebb://00000000000000a7/mount?host=h1&uid=0&gid=0&groups=",
            "ebb://00000000000000a7/mount?host=a/b",
            "https://00000000000000a7/block?host=h1",
        ] {
            assert!(Subject::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_validity_is_spent_by_parts() {
        let validity = Validity::lasting(WallTime(0), Duration::from_secs(100));
        let at = |seconds: i64| WallTime(seconds * 1_000_000_000);
        assert!(!validity.is_spent(at(32), 33) && validity.is_spent(at(33), 33) && validity.is_spent(at(100), 100));
        assert!(!validity.is_spent(at(-50), 1), "a clock that is behind");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(ebb://[0-9a-f]{16}/)?[a-z]{0,8}(\\?[a-z]{0,6}=[a-z0-9,]{0,6}(&[a-z]{3,6}=[0-9,]{0,6}){0,3})?") {
            if let Ok(subject) = Subject::parse(&text) {
                prop_assert_eq!(subject.to_uri(), text);
            }
        }

        #[test]
        fn any_bytes_are_a_certificate_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Subject::of_certificate(&bytes).is_err());
        }
    }
}
