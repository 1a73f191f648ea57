//! JSON over HTTP, one connection for each call. Redirections are not followed: they could lead a secret elsewhere.

use std::pin::pin;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use ebb_runtime::Runtime;
use ebb_types::{Result, bail, err};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::tls::Tls;
use crate::url::{Url, encode, without_query};

/// Largest answer that is read.
const ANSWER_MAX: usize = 1 << 20;

/// A server, and the headers that go with each call to it.
#[derive(Clone)]
pub(crate) struct Http {
    runtime: Runtime,
    address: String,
    tls: Option<Tls>,
    headers: Vec<(String, String)>,
    deadline: Duration,
}

/// The body of a request, and its type.
struct Body {
    content_type: &'static str,
    bytes: Bytes,
}

/// Status and body of an answer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Http {
    /// A server at `host:port`; user and password go with each call.
    pub fn new(runtime: Runtime, address: &str, user: Option<(&str, &str)>, deadline: Duration) -> Self {
        let basic = |(user, password)| {
            let both = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            format!("Basic {both}")
        };
        let authorization = user.map(|user| (AUTHORIZATION.to_string(), basic(user)));
        Self { runtime, address: address.into(), tls: None, headers: authorization.into_iter().collect(), deadline }
    }

    /// The server of an address, with TLS where the address asks for it.
    pub fn of(runtime: Runtime, url: &Url, tls: Option<Tls>, deadline: Duration) -> Self {
        Self { runtime, address: url.address(), tls, headers: Vec::new(), deadline }
    }

    /// The same with another header.
    pub fn with(mut self, name: &str, value: String) -> Self {
        self.headers.push((name.to_owned(), value));
        self
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let body = Body { content_type: "application/json", bytes: body.to_string().into() };
        self.call(Method::POST, path, Some(body)).await
    }

    /// Posts names and values as a form.
    pub async fn post_form(&self, path: &str, pairs: &[(&str, &str)]) -> Result<Value> {
        let body = Body { content_type: "application/x-www-form-urlencoded", bytes: encode(pairs).into() };
        self.call(Method::POST, path, Some(body)).await
    }

    /// The answer's body. `AccessDenied`, `NotFound`, `Busy`, `Invalid` or `Protocol` for an answer that is a refusal.
    async fn call(&self, method: Method, path: &str, body: Option<Body>) -> Result<Value> {
        let request = format!("{method} {}", self.place(path));
        let called = self.runtime.timeout(self.deadline, &request, self.exchange(method, path, body)).await?;
        let Answer { status, body } = called;
        let reason = || reason(&body);
        match status {
            200..=299 => Ok(body),
            300..=399 => bail!(Protocol, "{request}: {status}: it is elsewhere; give that address"),
            401 | 403 => bail!(AccessDenied, "{request}: {status}: user, password or token is refused"),
            404 => bail!(NotFound, "{request}: {status}: {}", reason()),
            409 | 503 => bail!(Busy, "{request}: {status}: {}", reason()),
            400..=499 => bail!(Invalid, "{request}: {status}: {}", reason()),
            _ => bail!(Protocol, "{request}: {status}: {}", reason()),
        }
    }

    /// The resource, for messages: without the query, which may contain a key.
    fn place(&self, path: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.address, without_query(path))
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<Body>) -> Result<Answer> {
        let stream = self.runtime.connect(&self.address).await?;
        let stream = tokio::io::join(stream.read, stream.write);
        let Some(tls) = &self.tls else { return self.exchange_on(stream, method, path, body).await };
        let secured = tls.connector.connect(tls.name.clone(), stream).await;
        let secured = secured.map_err(|error| err!(AccessDenied, "{}: TLS: {error}", self.place(path)))?;
        self.exchange_on(secured, method, path, body).await
    }

    async fn exchange_on(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        method: Method,
        path: &str,
        body: Option<Body>,
    ) -> Result<Answer> {
        let io = TokioIo::new(stream);
        let broken = |error: hyper::Error| err!(Disconnected, "{}: {error}", self.place(path));
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(broken)?;
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.address);
        request = request.header(ACCEPT, "application/json").header(USER_AGENT, "ebb");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = &body {
            request = request.header(CONTENT_TYPE, body.content_type);
        }
        let bytes = body.map_or_else(Bytes::new, |body| body.bytes);
        let request = request.body(Full::new(bytes)).map_err(|error| err!(Invalid, "{path:?}: {error}"))?;
        let asked = async move {
            let response = sender.send_request(request).await.map_err(broken)?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
            let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
                Some(_) => err!(Protocol, "{}: an answer of more than {ANSWER_MAX} bytes", self.place(path)),
                None => err!(Disconnected, "{}: {error}", self.place(path)),
            })?;
            Ok((status, body.to_bytes()))
        };
        // Cancel-safety: the connection lives within this call, and goes with it.
        let (mut asked, mut connection) = (pin!(asked), pin!(connection));
        let (status, body) = tokio::select! {
            biased;
            answer = &mut asked => answer?,
            // The server has hung up. An answer that it sent before is still there, or the call fails.
            _ = &mut connection => asked.await?,
        };
        let body = if body.is_empty() { Value::Null } else { parse(&body, status)? };
        Ok(Answer { status, body })
    }
}

/// The reason in a refusal: of Redfish, of a problem (RFC 9457), or of OAuth 2 (RFC 6749, Sec. 5.2).
fn reason(body: &Value) -> String {
    let places = ["/error/message", "/detail", "/error_description", "/title", "/error"];
    let found = places.iter().find_map(|place| body.pointer(place)?.as_str());
    found.unwrap_or("no reason given").chars().take(200).collect()
}

/// A refusal need not be JSON; an answer must.
pub(crate) fn parse(body: &[u8], status: u16) -> Result<Value> {
    match serde_json::from_slice(body) {
        Ok(value) => Ok(value),
        Err(_) if status >= 300 => Ok(Value::Null),
        Err(error) => bail!(Protocol, "an answer that is no JSON: {error}"),
    }
}
