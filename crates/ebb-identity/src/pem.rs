//! PEM text (RFC 7468) of certificates and keys.

use ebb_types::{Result, err};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Most certificates of a file.
const CERTIFICATES_MAX: usize = 16;

/// The certificates in a text, in their order.
pub(crate) fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(text.as_bytes()).take(CERTIFICATES_MAX);
    all.map(|one| one.map_err(|error| err!(Invalid, "a certificate in it cannot be read: {error}"))).collect()
}

/// The private key in a text.
pub(crate) fn private_key(text: &str) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| err!(Invalid, "it has no private key: {error}"))
}

/// The block of the text with this label, as it stands there.
pub(crate) fn block<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let start = text.find(&begin)?;
    let len = text[start..].find(&end)? + end.len();
    Some(&text[start..start + len])
}
