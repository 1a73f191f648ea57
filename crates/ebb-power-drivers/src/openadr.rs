//! Asks a server of OpenADR 3 (a VTN) for its events. They are read by `ebb_power::signal::openadr`.
//!
//! Access is by OAuth 2 client credentials (RFC 6749, Sec. 4.4): the server gives a token, which is used until it
//! expires. A refused token is replaced once in each poll.

use std::path::PathBuf;
use std::time::Duration;

use ebb_power::signal::openadr::{Calendar, EVENTS_MAX};
use ebb_runtime::{Moment, Runtime};
use ebb_types::{ErrorKind, Result, bail};
use parking_lot::Mutex;
use serde_json::Value;

use crate::secret::read_secret;
use crate::url::{Url, encode};
use crate::web::Web;

/// Events of one answer (`limit`, at most 50 by the specification).
const PAGE: usize = 50;
/// A token without a time of expiry is used for so long.
const TOKEN_FOR: Duration = Duration::from_secs(600);
/// No token is used for longer.
const TOKEN_FOR_MOST: Duration = Duration::from_secs(86_400);
/// A token is replaced so long before it expires.
const EARLY: Duration = Duration::from_secs(10);
/// Longest token.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// How a server is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VtnAccess {
    /// The base of its API, such as `https://vtn.example.org/openadr3/3.1.0`.
    pub url: String,
    /// Roots of trust in PEM, in place of the machine's.
    pub ca_file: Option<PathBuf>,
    /// The program whose events count. None: those of all programs.
    pub program: Option<String>,
    /// The targets that this cluster is one of. None of them: the server chooses by the client.
    pub targets: Vec<String>,
    /// None: the server wants no token.
    pub client: Option<Client>,
    /// Longest time for an answer.
    pub deadline: Duration,
    /// Longest time for all answers of one poll.
    pub poll_deadline: Duration,
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Its id.
    pub id: String,
    /// A file with its secret alone.
    pub secret_file: PathBuf,
    /// Where tokens are given. None: `/auth/token` of the server.
    pub token_url: Option<String>,
    /// Wanted scope.
    pub scope: Option<String>,
}

/// A server of events.
pub struct Vtn {
    runtime: Runtime,
    access: VtnAccess,
    web: Web,
    /// Where tokens are given, and the path there.
    tokens: Option<(Web, String)>,
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    text: String,
    until: Moment,
}

impl std::fmt::Debug for Vtn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vtn({})", self.web.url())
    }
}

impl Vtn {
    /// `Invalid` for an impossible address.
    pub fn new(runtime: Runtime, access: VtnAccess) -> Result<Self> {
        let service = |url| Web::new(runtime.clone(), url, access.ca_file.clone(), access.deadline);
        let url = Url::parse(&access.url)?;
        if url.path().contains('?') {
            bail!(Invalid, "{url}: the base of an API has no query");
        }
        let tokens = match access.client.as_ref().map(|client| client.token_url.as_deref()) {
            None => None,
            Some(None) => Some((service(url.clone()), url.path_below("/auth/token"))),
            Some(Some(text)) => {
                let url = Url::parse(text)?;
                let path = url.path().to_owned();
                Some((service(url), path))
            }
        };
        let web = service(url);
        Ok(Self { runtime, access, web, tokens, token: Mutex::default() })
    }

    /// All events that the server has for this cluster. Fails as a whole if one answer is missing or cannot be read.
    pub async fn events(&self) -> Result<Calendar> {
        let purpose = format!("events of {}", self.web.url());
        let polled = self.runtime.timeout(self.access.poll_deadline, &purpose, self.poll()).await?;
        let calendar = Calendar::parse(&polled, &self.access.targets);
        calendar.map_err(|error| error.context(self.web.url()))
    }

    async fn poll(&self) -> Result<Vec<Value>> {
        let mut events: Vec<Value> = Vec::new();
        loop {
            let page = self.page(events.len()).await?;
            // A server that takes no notice of `skip` gives its first page over and over.
            let is_repeated = !events.is_empty() && page.first() == events.first();
            let is_last = page.len() < PAGE;
            if !is_repeated {
                events.extend(page);
            }
            if events.len() > EVENTS_MAX {
                bail!(Protocol, "{}: more than {EVENTS_MAX} events", self.web.url());
            }
            if is_last || is_repeated {
                return Ok(events);
            }
        }
    }

    /// Events from `skip` on.
    async fn page(&self, skip: usize) -> Result<Vec<Value>> {
        let (skip, limit) = (skip.to_string(), PAGE.to_string());
        let mut query = vec![("skip", skip.as_str()), ("limit", limit.as_str())];
        query.extend(self.access.program.as_deref().map(|program| ("programID", program)));
        query.extend(self.access.targets.iter().map(|target| ("targets", target.as_str())));
        let path = format!("{}?{}", self.web.url().path_below("/events"), encode(&query));
        let answer = match self.get(&path).await {
            // The server may have forgotten its tokens. A new one is worth one attempt.
            Err(error) if error.kind() == ErrorKind::AccessDenied && self.token.lock().take().is_some() => {
                self.get(&path).await?
            }
            answer => answer?,
        };
        match answer {
            Value::Array(events) => Ok(events),
            _ => bail!(Protocol, "{}: the answer is no list of events", self.web.url()),
        }
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let mut http = self.web.http().await?;
        if let Some(token) = self.token().await? {
            http = http.with("authorization", format!("Bearer {token}"));
        }
        http.get(path).await
    }

    /// The token to use; none if the server wants none.
    async fn token(&self) -> Result<Option<String>> {
        let (Some(client), Some((web, path))) = (&self.access.client, &self.tokens) else { return Ok(None) };
        let now = self.runtime.now();
        let known = self.token.lock().clone().filter(|token| now < token.until);
        if let Some(known) = known {
            return Ok(Some(known.text));
        }
        let secret = read_secret(&self.runtime, &client.secret_file).await?;
        let mut form =
            vec![("grant_type", "client_credentials"), ("client_id", &client.id), ("client_secret", &secret)];
        form.extend(client.scope.as_deref().map(|scope| ("scope", scope)));
        let answer = web.http().await?.post_form(path, &form).await?;
        let (text, lasts) = parse_token(&answer).map_err(|error| error.context(web.url()))?;
        *self.token.lock() = Some(Token { text: text.clone(), until: now.after(lasts.saturating_sub(EARLY)) });
        Ok(Some(text))
    }
}

/// The token in an answer, and for how long it is used.
pub(crate) fn parse_token(answer: &Value) -> Result<(String, Duration)> {
    let text = |key: &str| answer.get(key).and_then(Value::as_str);
    if text("token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        bail!(Protocol, "the token is no bearer token");
    }
    let fits = |token: &&str| token.len() <= TOKEN_BYTES_MAX && token.bytes().all(|byte| byte.is_ascii_graphic());
    let Some(token) = text("access_token").filter(fits).filter(|token| !token.is_empty()) else {
        bail!(Protocol, "the answer has no access_token");
    };
    let lasts = match answer.get("expires_in") {
        None | Some(Value::Null) => TOKEN_FOR,
        Some(seconds) => match seconds.as_f64().map(Duration::try_from_secs_f64) {
            Some(Ok(lasts)) => lasts.min(TOKEN_FOR_MOST),
            _ => bail!(Protocol, "the token expires in {seconds} s, which cannot be"),
        },
    };
    Ok((token.to_owned(), lasts))
}

#[cfg(test)]
mod tests {
    use ebb_power::Supply;
    use ebb_power::signal::openadr::Rule;
    use serde_json::json;

    use super::*;
    use crate::testing::{MINUTE, Reply, Server, TempFile, file_with, now_text};

    fn access(server: &Server, secret: Option<&TempFile>) -> VtnAccess {
        VtnAccess {
            url: format!("{}/openadr3/3.1.0", server.url),
            ca_file: None,
            program: Some("prog 4".into()),
            targets: Vec::new(),
            client: secret.map(|secret| Client {
                id: "ven".into(),
                secret_file: secret.path().into(),
                token_url: None,
                scope: None,
            }),
            deadline: MINUTE,
            poll_deadline: MINUTE,
        }
    }

    fn vtn(server: &Server, secret: Option<&TempFile>) -> Vtn {
        Vtn::new(server.runtime.clone(), access(server, secret)).unwrap()
    }

    fn event(id: usize, kilowatts: f64) -> Value {
        json!({
            "id": id.to_string(), "programID": "4", "createdDateTime": now_text(-60),
            "intervalPeriod": { "start": now_text(-60), "duration": "PT1H" },
            "intervals": [{ "id": 0, "payloads": [{ "type": "IMPORT_CAPACITY_LIMIT", "values": [kilowatts] }] }],
        })
    }

    fn token(text: &str, expires_in: Value) -> Reply {
        Reply::json(&json!({ "access_token": text, "token_type": "Bearer", "expires_in": expires_in }))
    }

    fn events(events: &[Value]) -> Reply {
        Reply::json(&Value::from(events))
    }

    fn watts(calendar: &Calendar, server: &Server) -> f64 {
        let rule = Rule {
            normal_watts: None,
            level_shares: [1.0, 0.75, 0.5, 0.25],
            money_per_hour: None,
            grams_per_hour: None,
        };
        let now_ms = u64::try_from(server.runtime.wall().0 / 1_000_000).unwrap();
        let Supply::Watts(watts) = rule.supply_at(calendar, now_ms, 265.0) else { panic!("watts") };
        watts
    }

    #[tokio::test]
    async fn events_come_with_a_token_that_is_used_until_it_expires() {
        let replies = vec![token("t1", json!(3600)), events(&[event(1, 0.1)]), events(&[]), token("t2", json!(1))];
        let server = Server::start([replies, vec![events(&[]), token("t3", json!(1)), events(&[])]].concat()).await;
        let secret = file_with("pass word\n");
        let vtn = vtn(&server, Some(&secret));
        assert_eq!(watts(&vtn.events().await.unwrap(), &server), 100.0);
        assert_eq!(watts(&vtn.events().await.unwrap(), &server), 265.0, "an event that is gone counts no more");
        *vtn.token.lock() = None;
        vtn.events().await.unwrap();
        vtn.events().await.unwrap();
        let asked = server.requests().await;
        assert!(asked[0].starts_with("POST /openadr3/3.1.0/auth/token HTTP/1.1"), "{}", asked[0]);
        assert!(asked[0].contains("application/x-www-form-urlencoded"), "{}", asked[0]);
        let form = "grant_type=client_credentials&client_id=ven&client_secret=pass%20word";
        assert!(asked[0].ends_with(form), "{}", asked[0]);
        let first = &asked[1];
        assert!(first.starts_with("GET /openadr3/3.1.0/events?skip=0&limit=50&programID=prog%204 HTTP/1.1"), "{first}");
        assert!(first.contains("authorization: Bearer t1\r\n") && asked[2].contains("Bearer t1"), "{asked:?}");
        assert!(
            asked[4].contains("Bearer t2") && asked[6].contains("Bearer t3"),
            "one second is over early: {asked:?}"
        );
    }

    #[tokio::test]
    async fn a_refused_token_is_replaced_once() {
        let secret = file_with("s");
        let denied = || Reply::status("401 Unauthorized");
        let server = Server::start(vec![
            token("old", json!(3600)),
            events(&[]),
            denied(),
            token("new", json!(3600)),
            events(&[event(1, 0.1)]),
            denied(),
            token("newer", json!(3600)),
            denied(),
        ])
        .await;
        let vtn = vtn(&server, Some(&secret));
        vtn.events().await.unwrap();
        assert_eq!(watts(&vtn.events().await.unwrap(), &server), 100.0);
        assert_eq!(vtn.events().await.unwrap_err().kind(), ErrorKind::AccessDenied);
        assert_eq!(server.requests().await.len(), 8);
    }

    #[tokio::test]
    async fn a_wrong_secret_is_refused_with_the_servers_reason() {
        let secret = file_with("wrong");
        let body = r#"{"error":"invalid_client","error_description":"unknown client"}"#;
        let server = Server::start(vec![Reply::status_with("400 Bad Request", body)]).await;
        let error = vtn(&server, Some(&secret)).events().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("unknown client"), "{error}");
        for answer in [json!({}), json!({ "access_token": "a\r\nb" }), json!({ "access_token": "a", "expires_in": -1 })]
        {
            assert_eq!(parse_token(&answer).unwrap_err().kind(), ErrorKind::Protocol, "{answer}");
        }
        assert!(parse_token(&json!({ "access_token": "a", "token_type": "mac" })).is_err());
        let lasts = parse_token(&json!({ "access_token": "a", "expires_in": 1e12 })).unwrap().1;
        assert_eq!(lasts, TOKEN_FOR_MOST);
    }

    #[tokio::test]
    async fn pages_are_read_to_the_last_one_and_not_for_ever() {
        let page = |from: usize| -> Vec<Value> { (from..from + PAGE).map(|id| event(id, 0.2)).collect() };
        let server = Server::start(vec![events(&page(0)), events(&[event(50, 0.1)])]).await;
        let all = vtn(&server, None).events().await.unwrap();
        assert_eq!((all.count(), watts(&all, &server)), (51, 100.0));
        assert!(server.requests().await[1].contains("skip=50&limit=50"));
        let server = Server::start(vec![events(&page(0)), events(&page(0))]).await;
        assert_eq!(vtn(&server, None).events().await.unwrap().count(), 50, "a server that takes no notice of skip");
        let server = Server::start((0..=EVENTS_MAX / PAGE).map(|number| events(&page(number * PAGE))).collect()).await;
        assert!(vtn(&server, None).events().await.unwrap_err().to_string().contains("more than 1000 events"));
    }

    #[tokio::test]
    async fn every_kind_of_failure_is_an_error() {
        let broken = |reply: Reply| async move {
            let server = Server::start(vec![reply]).await;
            vtn(&server, None).events().await.unwrap_err()
        };
        let problem = r#"{"title":"Internal","status":500,"detail":"the database is away"}"#;
        let error = broken(Reply::status_with("500 Internal Server Error", problem)).await;
        assert!(error.kind() == ErrorKind::Protocol && error.to_string().contains("the database is away"), "{error}");
        assert_eq!(broken(Reply::status("403 Forbidden")).await.kind(), ErrorKind::AccessDenied);
        assert_eq!(broken(Reply::json(&json!({ "events": [] }))).await.kind(), ErrorKind::Protocol);
        assert_eq!(broken(Reply::text("garbage")).await.kind(), ErrorKind::Protocol);
        assert_eq!(broken(Reply::Endless).await.kind(), ErrorKind::Protocol);
        assert_eq!(broken(events(&[json!({ "intervals": 5 })])).await.kind(), ErrorKind::Protocol);
        let server = Server::start(vec![Reply::Silence]).await;
        let hurried = VtnAccess { poll_deadline: Duration::from_millis(50), ..access(&server, None) };
        let error = Vtn::new(server.runtime.clone(), hurried).unwrap().events().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
}
