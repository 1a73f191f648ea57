//! JSON over HTTP, one connection for each call.

use std::pin::pin;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use ebb_runtime::Runtime;
use ebb_types::{Result, bail, err};
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// Largest answer that is read.
const ANSWER_MAX: usize = 1 << 20;

/// A server, and the authorization for it.
#[derive(Clone)]
pub(crate) struct Http {
    runtime: Runtime,
    address: String,
    authorization: Option<String>,
    deadline: Duration,
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
        Self { runtime, address: address.into(), authorization: user.map(basic), deadline }
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        self.call(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// The answer's body. `AccessDenied`, `NotFound`, `Busy`, `Invalid` or `Protocol` for an answer that is a refusal.
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let request = format!("{method} http://{}{path}", self.address);
        let called = self.runtime.timeout(self.deadline, &request, self.exchange(method, path, body)).await?;
        let Answer { status, body } = called;
        let reason = || body.pointer("/error/message").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
        match status {
            200..=299 => Ok(body),
            401 | 403 => bail!(AccessDenied, "{request}: {status}: user or password is refused"),
            404 => bail!(NotFound, "{request}: {status}: {}", reason()),
            409 | 503 => bail!(Busy, "{request}: {status}: {}", reason()),
            400..=499 => bail!(Invalid, "{request}: {status}: {}", reason()),
            _ => bail!(Protocol, "{request}: {status}: {}", reason()),
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let stream = self.runtime.connect(&self.address).await?;
        let io = TokioIo::new(tokio::io::join(stream.read, stream.write));
        let broken = |error: hyper::Error| err!(Disconnected, "http://{}{path}: {error}", self.address);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(broken)?;
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.address);
        request = request.header(ACCEPT, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let bytes = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = request.body(Full::new(bytes)).map_err(|error| err!(Invalid, "{path:?}: {error}"))?;
        let asked = async move {
            let response = sender.send_request(request).await.map_err(broken)?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
            let body = body.map_err(|error| err!(Disconnected, "http://{}{path}: {error}", self.address))?;
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

/// A refusal need not be JSON; an answer must.
pub(crate) fn parse(body: &[u8], status: u16) -> Result<Value> {
    match serde_json::from_slice(body) {
        Ok(value) => Ok(value),
        Err(_) if status >= 300 => Ok(Value::Null),
        Err(error) => bail!(Protocol, "an answer that is no JSON: {error}"),
    }
}
