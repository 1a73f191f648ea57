//! The authority of a cluster: its certificate, and the key that signs the certificates of processes.

use std::time::Duration;

use ebb_types::{ClusterId, Error, Result, WallTime, bail, err};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::certified_key::CertifiedKey;
use crate::pem;
use crate::subject::{Subject, Validity};

/// How long the authority itself lasts. It is replaced by a second one that is trusted beside it, never by surprise.
const LIFETIME: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// Certificates hold from so long before they are issued: clocks of hosts differ by minutes, not by hours.
pub const CLOCK_TOLERANCE: Duration = Duration::from_secs(600);

/// The authority of a cluster, with its key.
pub struct Authority {
    cluster: ClusterId,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A new key that waits for its certificate.
pub struct KeyRequest(KeyPair);

impl Authority {
    /// The authority of a new cluster.
    ///
    /// # Errors
    /// `Io` if the system has no random bytes.
    pub fn create(cluster: ClusterId, now: WallTime) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("Ebb cluster {:016x}", cluster.raw()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        last(&mut params, validity(now, LIFETIME))?;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate_pem = params.self_signed(&key).map_err(failed)?.pem();
        Self::from_pem(&format!("{certificate_pem}{}", key.serialize_pem()), cluster)
    }

    /// Reads the certificate and the key of this cluster's authority.
    ///
    /// # Errors
    /// `Invalid` if the text lacks one of them.
    pub fn from_pem(text: &str, cluster: ClusterId) -> Result<Self> {
        let Some(certificate) = pem::certificates(text)?.into_iter().next() else {
            bail!(Invalid, "it has no certificate");
        };
        let certificate_pem = pem::block(text, "CERTIFICATE").expect("it was read above").to_owned() + "\n";
        let key = KeyPair::from_pem(pem::block(text, "PRIVATE KEY").unwrap_or_default());
        let key = key.map_err(|error| err!(Invalid, "it has no private key: {error}"))?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(failed)?;
        Ok(Self { cluster, certificate, certificate_pem, issuer })
    }

    /// Its cluster.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Certificate and key, for a file that nobody else may read.
    #[must_use]
    pub fn to_pem(&self) -> String {
        format!("{}{}", self.certificate_pem, self.issuer.key().serialize_pem())
    }

    /// The certificate alone, for all to see.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// SHA-256 of its certificate: names the authority to a host that has nothing else of it yet.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(&self.certificate).into()
    }

    /// Certifies the key of a request for `subject`, from now on for so long. What else the request says is not
    /// believed. The answer is PEM: the certificate, then the authority's.
    ///
    /// # Errors
    /// `Invalid` if the request proves no key, or the subject is of another cluster or cannot be written down.
    pub fn certify(&self, request: &[u8], subject: &Subject, now: WallTime, lifetime: Duration) -> Result<String> {
        let request = CertificateSigningRequestParams::from_der(&request.to_vec().into())
            .map_err(|error| err!(Invalid, "the request for a certificate cannot be read: {error}"))?;
        self.sign(&request.public_key, subject, now, lifetime)
    }

    /// A new key with its certificate, for a process of this machine.
    ///
    /// # Errors
    /// As [`Self::certify`].
    pub fn issue(&self, subject: &Subject, now: WallTime, lifetime: Duration) -> Result<CertifiedKey> {
        let request = KeyRequest::new()?;
        let certificates = self.sign(&request.0, subject, now, lifetime)?;
        request.complete(&certificates)
    }

    fn sign(&self, key: &impl PublicKeyData, subject: &Subject, now: WallTime, lifetime: Duration) -> Result<String> {
        if subject.cluster != self.cluster {
            bail!(Invalid, "the authority of cluster {} certifies nothing of {}", self.cluster, subject.cluster);
        }
        subject.check()?;
        let name = |text: String| text.try_into().map_err(failed);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject.to_string());
        params.subject_alt_names =
            vec![SanType::URI(name(subject.to_uri())?), SanType::DnsName(name(Subject::dns_name(self.cluster))?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        last(&mut params, validity(now, lifetime))?;
        let certificate = params.signed_by(key, &self.issuer).map_err(failed)?;
        Ok(format!("{}{}", certificate.pem(), self.certificate_pem))
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.cluster)
    }
}

impl KeyRequest {
    /// Draws a key: ECDSA on P-256, which every tool reads.
    ///
    /// # Errors
    /// `Io` if the system has no random bytes.
    pub fn new() -> Result<Self> {
        KeyPair::generate().map(Self).map_err(failed)
    }

    /// The request for the authority (PKCS #10): proves that its author has the key.
    ///
    /// # Errors
    /// `Io` if it cannot be signed.
    pub fn to_der(&self) -> Result<Vec<u8>> {
        let request = CertificateParams::default().serialize_request(&self.0).map_err(failed)?;
        Ok(request.der().to_vec())
    }

    /// The key alone, for a file that nobody else may read.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// Reads a key that was kept until it is certified.
    ///
    /// # Errors
    /// `Invalid` if it is none.
    pub fn from_pem(text: &str) -> Result<Self> {
        KeyPair::from_pem(text).map(Self).map_err(|error| err!(Invalid, "it is no key: {error}"))
    }

    /// The key with its certificate.
    ///
    /// # Errors
    /// `Invalid` if the certificate is not of this key.
    pub fn complete(self, certificates: &str) -> Result<CertifiedKey> {
        CertifiedKey::from_pem(&format!("{certificates}{}", self.0.serialize_pem()))
    }
}

impl std::fmt::Debug for KeyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyRequest(..)")
    }
}

fn validity(now: WallTime, lifetime: Duration) -> Validity {
    let tolerance = i64::try_from(CLOCK_TOLERANCE.as_nanos()).expect("minutes");
    Validity { from: WallTime(now.0.saturating_sub(tolerance)), ..Validity::lasting(now, lifetime) }
}

fn last(params: &mut CertificateParams, validity: Validity) -> Result<()> {
    let date = |wall: WallTime| {
        let date = OffsetDateTime::from_unix_timestamp(wall.0 / 1_000_000_000);
        date.map_err(|error| err!(Invalid, "this machine's clock says {}: {error}", wall.0))
    };
    (params.not_before, params.not_after) = (date(validity.from)?, date(validity.until)?);
    Ok(())
}

fn failed(error: rcgen::Error) -> Error {
    err!(Io, "certificates: {error}")
}
