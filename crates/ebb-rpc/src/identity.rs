//! The identity of a process towards its peers.

use std::time::Duration;

use ebb_identity::tls::Wire;
use ebb_identity::{Authority, Holder, Subject, Validity};
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, Credentials, HostName, Result, Role, bail};

/// How long a certificate holds, unless it is asked for another time.
pub const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// The host of a process whose certificate names none and that declares none.
const ANYWHERE: &str = "anywhere";

/// Who a process is, and how it proves it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// Its host.
    pub host: HostName,
    /// What it is.
    pub role: Role,
    /// How a peer knows.
    pub proof: Proof,
}

/// How a peer knows who a process is.
#[derive(Clone, Debug)]
pub enum Proof {
    /// By a certificate of the cluster's authority.
    Certificate(Holder),
    /// By its word. Only in virtual worlds.
    Word,
}

impl Identity {
    /// The identity in a certificate. `host` is that of a process whose certificate names none.
    ///
    /// # Errors
    /// `Invalid` if the certificate names another host.
    pub fn certified(holder: Holder, host: HostName) -> Result<Self> {
        let subject = holder.subject();
        if let Some(named) = subject.host.as_ref().filter(|named| **named != host) {
            bail!(Invalid, "the certificate is of host {named}, this process runs as {host}");
        }
        let (cluster, role) = (subject.cluster, subject.role);
        Ok(Self { cluster, host, role, proof: Proof::Certificate(holder) })
    }

    /// The identity of a process that is issued a new key now.
    ///
    /// # Errors
    /// `Invalid` if the host cannot be certified.
    pub fn issued(authority: &Authority, runtime: &Runtime, subject: &Subject, wire: Wire) -> Result<Self> {
        let key = authority.issue(subject, runtime.wall(), LIFETIME)?;
        let host = subject.host.clone().unwrap_or_else(|| HostName::new(ANYWHERE));
        Self::certified(Holder::new(runtime.clone(), key, wire)?, host)
    }

    /// The user for whom it acts; none if it speaks for any.
    #[must_use]
    pub fn user(&self) -> Option<&Credentials> {
        match &self.proof {
            Proof::Certificate(holder) => holder.subject().user.as_ref(),
            Proof::Word => None,
        }
    }

    /// The identity of a process of a virtual world.
    #[must_use]
    pub fn by_word(cluster: ClusterId, host: &str, role: Role) -> Self {
        Self { cluster, host: HostName::new(host), role, proof: Proof::Word }
    }

    /// Stops a process that would trust everybody in the real world.
    ///
    /// # Panics
    /// If it has no certificate there.
    pub(crate) fn assert_fits(&self, runtime: &Runtime) {
        assert!(
            runtime.is_virtual() || matches!(self.proof, Proof::Certificate(_)),
            "outside of virtual worlds a {} proves itself with a certificate",
            self.role
        );
    }
}

/// What a peer proved.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    pub subject: Subject,
    pub serial: Vec<u8>,
    pub validity: Validity,
    /// Knows what was revoked.
    pub holder: Holder,
}

impl Proven {
    /// Whether the proof is still believed.
    ///
    /// # Errors
    /// `Unauthorized` says why it is not.
    pub fn check(&self, runtime: &Runtime) -> Result<()> {
        if let Some(revocation) = self.holder.revocations().of(&self.subject, &self.serial, self.validity) {
            let before = revocation.before.0 / 1_000_000_000;
            bail!(Unauthorized, "certificates of the {} from before second {before} were revoked", self.subject);
        }
        if runtime.wall() > self.validity.until {
            bail!(Unauthorized, "the certificate of the {} has expired: let it join again", self.subject);
        }
        Ok(())
    }
}

/// The other side of a connection.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// Its host: certified, or declared if its certificate names none.
    pub host: HostName,
    /// What it is.
    pub role: Role,
    /// Its address, for messages to people.
    pub address: String,
    pub(crate) proven: Option<Proven>,
}

impl PeerInfo {
    /// A peer of a virtual world.
    #[must_use]
    pub fn by_word(host: &str, role: Role) -> Self {
        Self { host: HostName::new(host), role, address: "nowhere".to_owned(), proven: None }
    }

    /// Whom its certificate names; none in a virtual world.
    #[must_use]
    pub fn subject(&self) -> Option<&Subject> {
        self.proven.as_ref().map(|proven| &proven.subject)
    }

    /// The number of its certificate; none in a virtual world.
    #[must_use]
    pub fn serial(&self) -> Option<&[u8]> {
        self.proven.as_ref().map(|proven| &*proven.serial)
    }

    /// The user that its certificate names. Without one it speaks for any user.
    #[must_use]
    pub fn user(&self) -> Option<&Credentials> {
        self.proven.as_ref().and_then(|proven| proven.subject.user.as_ref())
    }

    /// Whether its proof, if it gave one, is still believed.
    pub(crate) fn check(&self, runtime: &Runtime) -> Result<()> {
        self.proven.as_ref().map_or(Ok(()), |proven| proven.check(runtime))
    }
}
