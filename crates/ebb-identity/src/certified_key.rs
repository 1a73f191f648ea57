//! A key with its certificate, as a process keeps it.

use ebb_types::{Result, bail};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::pem;
use crate::subject::{Subject, Validity};

/// A key, its certificate, and the authorities that its holder trusts. One file of PEM keeps all three, in this order:
/// certificate, authorities, key.
pub struct CertifiedKey {
    subject: Subject,
    serial: Vec<u8>,
    validity: Validity,
    certificate: CertificateDer<'static>,
    authorities: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    pem: String,
}

impl CertifiedKey {
    /// Reads the text of such a file.
    ///
    /// # Errors
    /// `Invalid` names what it lacks, `Unauthorized` if the certificate is of no cluster.
    pub fn from_pem(text: &str) -> Result<Self> {
        let mut certificates = pem::certificates(text)?.into_iter();
        let Some(certificate) = certificates.next() else { bail!(Invalid, "it has no certificate") };
        let authorities: Vec<_> = certificates.collect();
        if authorities.is_empty() {
            bail!(Invalid, "it has no certificate of the cluster's authority after its own");
        }
        let key = pem::private_key(text)?;
        let (subject, serial, validity) = Subject::of_certificate(&certificate)?;
        Ok(Self { subject, serial, validity, certificate, authorities, key, pem: text.to_owned() })
    }

    /// The text of its file. Whoever reads it is this process to every other.
    #[must_use]
    pub fn to_pem(&self) -> &str {
        &self.pem
    }

    /// Who its holder is.
    #[must_use]
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The number of its certificate.
    #[must_use]
    pub fn serial(&self) -> &[u8] {
        &self.serial
    }

    /// When its certificate holds.
    #[must_use]
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    pub(crate) const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn authorities(&self) -> &[CertificateDer<'static>] {
        &self.authorities
    }

    pub(crate) const fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }
}

impl std::fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CertifiedKey({})", self.subject)
    }
}
