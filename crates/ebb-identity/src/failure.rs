//! Failures of TLS, as sentences for an operator.

use std::io;

use ebb_types::{Error, err};
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};

/// The cause of a failed handshake. `Unauthorized` if TLS refused one of the sides; else the failure of the connection.
#[must_use]
pub fn explain(error: &io::Error, peer: &str) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(refusal) => err!(Unauthorized, "{}", sentence(refusal, peer)),
        None => Error::from_io(error, format_args!("handshake with {peer}")),
    }
}

fn sentence(error: &rustls::Error, peer: &str) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => of_certificate(error, peer),
        rustls::Error::AlertReceived(alert) => format!("{peer} refused this process: {}", of_alert(*alert)),
        rustls::Error::NoCertificatesPresented => format!("{peer} has no certificate"),
        rustls::Error::NoApplicationProtocol => {
            format!("{peer} and this process differ in `wire`, plain or encrypted: set it alike in both")
        }
        rustls::Error::InvalidMessage(_) => {
            format!("{peer} does not speak TLS: it is no process of this release of ebb ({error})")
        }
        other => format!("{peer}: {other}"),
    }
}

fn of_certificate(error: &CertificateError, peer: &str) -> String {
    let hours = |one: u64, other: u64| one.abs_diff(other) / 3600;
    match error {
        CertificateError::NotValidYetContext { time, not_before } => {
            let hours = hours(time.as_secs(), not_before.as_secs());
            format!(
                "the certificate of {peer} begins {hours} h after this machine's time: one of the two clocks is wrong"
            )
        }
        CertificateError::ExpiredContext { time, not_after } => {
            let hours = hours(time.as_secs(), not_after.as_secs());
            format!("the certificate of {peer} ended {hours} h ago: let it join again, or set the clock that is wrong")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("the certificate of {peer} is not of this cluster's authority: it belongs to another cluster")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("the certificate of {peer} is of another cluster")
        }
        other => format!("the certificate of {peer}: {other}"),
    }
}

fn of_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "its authority did not sign this process's certificate: they belong to different clusters"
        }
        AlertDescription::CertificateExpired => {
            "this process's certificate has expired by its clock: join again, or set the clock that is wrong"
        }
        AlertDescription::CertificateRequired => "it wants a certificate",
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "it does not accept this process's certificate: its log says why; the two clocks may differ"
        }
        AlertDescription::NoApplicationProtocol => "the two differ in `wire`, plain or encrypted: set it alike in both",
        _ => "its log says why",
    }
}
