//! A real server on loopback for tests, over HTTP and over TLS, and files with secrets.
#![allow(clippy::disallowed_methods, reason = "a test writes the files that an operator would write")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Listener, Runtime};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};

/// A deadline that no test reaches.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The answer to one connection.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// No answer, and no end.
    Silence,
    /// A body that never ends.
    Endless,
}

impl Reply {
    pub fn json(value: &Value) -> Self {
        Self::text(&value.to_string())
    }

    pub fn text(body: &str) -> Self {
        Self::status_with("200 OK", body)
    }

    pub fn status(status: &str) -> Self {
        Self::status_with(status, "")
    }

    pub fn status_with(status: &str, body: &str) -> Self {
        Self::Bytes(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
    }
}

/// A server that gives one answer for each connection, in order.
pub(crate) struct Server {
    pub runtime: Runtime,
    /// `http://host:port`.
    pub url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub async fn start(replies: Vec<Reply>) -> Self {
        let runtime = Runtime::real();
        let listener = runtime.listen("127.0.0.1:0").await.unwrap();
        Self::serve(runtime, listener, replies, None)
    }

    /// A server with a certificate for this name until a year, and the file of the authority that signed it.
    pub async fn start_secure(replies: Vec<Reply>, name: &str, until_year: i32) -> (Self, TempFile) {
        let runtime = Runtime::real();
        let listener = runtime.listen("127.0.0.1:0").await.unwrap();
        let (pem, issuer) = authority();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(until_year, 1, 1);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        (Self::serve(runtime, listener, replies, Some(acceptor)), file_with(&pem))
    }

    fn serve(runtime: Runtime, listener: Listener, replies: Vec<Reply>, tls: Option<TlsAcceptor>) -> Self {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (url, seen, own) = (format!("http://{}", listener.address()), Arc::clone(&requests), runtime.clone());
        runtime.spawn("server", async move {
            for reply in replies {
                let stream = listener.accept().await.unwrap();
                let stream = tokio::io::join(stream.read, stream.write);
                let (tls, seen) = (tls.clone(), Arc::clone(&seen));
                own.spawn("connection", async move {
                    match tls {
                        None => answer(stream, reply, &seen).await,
                        // A client that does not like the certificate goes away.
                        Some(tls) => {
                            let Ok(secured) = tls.accept(stream).await else { return };
                            answer(secured, reply, &seen).await;
                        }
                    }
                });
            }
        });
        Self { runtime, url, requests }
    }

    /// The requests so far.
    pub async fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, reply: Reply, seen: &Mutex<Vec<String>>) {
    let mut request = Vec::new();
    let body_bytes = loop {
        let Ok(byte) = stream.read_u8().await else { return };
        request.push(byte);
        if request.ends_with(b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            break length.unwrap_or(0);
        }
    };
    let mut body = vec![0; body_bytes];
    if stream.read_exact(&mut body).await.is_err() {
        return;
    }
    request.extend(body);
    seen.lock().push(String::from_utf8(request).unwrap());
    match reply {
        Reply::Bytes(bytes) => {
            // The client may have hung up.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Silence => std::future::pending().await,
        Reply::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            let chunk = format!("1000\r\n{}\r\n", "[".repeat(0x1000));
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
        }
    }
}

/// A new authority: its certificate in PEM, and what signs.
pub(crate) fn authority() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    (pem("CERTIFICATE", certificate.der()), Issuer::new(params, key))
}

/// RFC 7468.
fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A file that is removed at the end.
pub(crate) struct TempFile(tempfile::NamedTempFile);

impl TempFile {
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn replace(&self, text: &str) {
        std::fs::write(self.path(), text).unwrap();
    }
}

pub(crate) fn file_with(text: &str) -> TempFile {
    let file = TempFile(tempfile::NamedTempFile::new().unwrap());
    file.replace(text);
    file
}

/// A time by RFC 3339, so many seconds from now.
pub(crate) fn now_text(shift_s: i64) -> String {
    let seconds = Runtime::real().wall().0 / 1_000_000_000 + shift_s;
    let (days, clock) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant's `civil_from_days`.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * month_index + 2) / 5 + 1, (month_index + 2) % 12 + 1);
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", clock / 3_600, clock / 60 % 60, clock % 60)
}
