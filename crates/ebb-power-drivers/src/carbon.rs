//! Asks a service for the carbon intensity of the grid. The answers are read by `ebb_power::signal::carbon`.

use std::path::PathBuf;
use std::time::Duration;

use ebb_power::signal::carbon::{Intensity, Pointers};
use ebb_runtime::Runtime;
use ebb_types::{Result, bail};
use parking_lot::Mutex;

use crate::secret::read_secret;
use crate::url::Url;
use crate::web::Web;

/// How a carbon service is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CarbonAccess {
    /// The resource that has the value.
    pub url: String,
    /// Roots of trust in PEM, in place of the machine's.
    pub ca_file: Option<PathBuf>,
    /// A file with the token alone.
    pub token_file: Option<PathBuf>,
    /// The header that the token is sent in. None: `Authorization`, as a bearer.
    pub token_header: Option<String>,
    /// Places in the answer.
    pub pointers: Pointers,
    /// A value with an older time stamp is refused.
    pub age_max: Duration,
    /// Longest time for an answer.
    pub deadline: Duration,
}

/// A service that publishes carbon intensities.
pub struct CarbonService {
    runtime: Runtime,
    access: CarbonAccess,
    web: Web,
    /// Latest time stamp that was accepted.
    newest_ms: Mutex<Option<i64>>,
}

impl std::fmt::Debug for CarbonService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CarbonService({})", self.web.url())
    }
}

impl CarbonService {
    /// `Invalid` for an impossible address, place or header.
    pub fn new(runtime: Runtime, access: CarbonAccess) -> Result<Self> {
        access.pointers.check()?;
        let named = access.token_header.as_deref();
        if named.is_some_and(|name| hyper::header::HeaderName::try_from(name).is_err()) {
            bail!(Invalid, "{named:?} is no name of a header");
        }
        let web = Web::new(runtime.clone(), Url::parse(&access.url)?, access.ca_file.clone(), access.deadline);
        Ok(Self { runtime, access, web, newest_ms: Mutex::default() })
    }

    /// The intensity now. Fails if the service does not answer in time, or if its answer cannot be.
    pub async fn read(&self) -> Result<Intensity> {
        let mut http = self.web.http().await?;
        if let Some(file) = &self.access.token_file {
            let token = read_secret(&self.runtime, file).await?;
            http = match &self.access.token_header {
                Some(name) => http.with(name, token),
                None => http.with("authorization", format!("Bearer {token}")),
            };
        }
        let answer = http.get(self.web.url().path()).await?;
        let read = self.accept(&answer);
        read.map_err(|error| error.context(self.web.url()))
    }

    fn accept(&self, answer: &serde_json::Value) -> Result<Intensity> {
        let intensity = self.access.pointers.read(answer)?;
        let age_max_ms = i64::try_from(self.access.age_max.as_millis()).unwrap_or(i64::MAX);
        let now_ms = self.runtime.wall().0.div_euclid(1_000_000);
        let mut newest_ms = self.newest_ms.lock();
        intensity.check_stamp(now_ms, *newest_ms, age_max_ms)?;
        *newest_ms = intensity.stamp_ms.or(*newest_ms);
        Ok(intensity)
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;
    use serde_json::json;

    use super::*;
    use crate::testing::{MINUTE, Reply, Server, file_with, now_text};

    fn access(server: &Server) -> CarbonAccess {
        CarbonAccess {
            url: format!("{}/intensity?key=hidden", server.url),
            ca_file: None,
            token_file: None,
            token_header: None,
            pointers: Pointers::default(),
            age_max: Duration::from_secs(3_600),
            deadline: MINUTE,
        }
    }

    /// Asks once for each of these answers.
    async fn asked(replies: Vec<Reply>) -> Vec<Result<Intensity>> {
        let count = replies.len();
        let server = Server::start(replies).await;
        let service = CarbonService::new(server.runtime.clone(), access(&server)).unwrap();
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(service.read().await);
        }
        all
    }

    async fn refused(reply: Reply) -> ebb_types::Error {
        asked(vec![reply]).await.remove(0).unwrap_err()
    }

    fn uk(grams: serde_json::Value, from: &str) -> Reply {
        Reply::json(&json!({ "data": [{ "from": from, "intensity": { "actual": grams, "forecast": 200 } }] }))
    }

    #[tokio::test]
    async fn a_good_answer_is_read_and_a_clock_that_goes_back_is_not() {
        let (now, before) = (now_text(0), now_text(-600));
        let stale = now_text(-4_000);
        let replies = vec![uk(json!(150), &now), uk(json!(null), &now), uk(json!(1), &before), uk(json!(1), &stale)];
        let all = asked(replies).await;
        let grams: Vec<Option<f64>> =
            all.iter().map(|read| read.as_ref().ok().map(|intensity| intensity.grams_per_kwh)).collect();
        assert_eq!(grams, [Some(150.0), Some(200.0), None, None]);
        let said = all[2].as_ref().unwrap_err().to_string();
        assert!(said.contains("went back") && said.contains("/intensity") && !said.contains("hidden"), "{said}");
        let old = asked(vec![uk(json!(1), &stale)]).await.remove(0).unwrap_err();
        assert!(old.to_string().contains("s old"), "{old}");
        let ahead = asked(vec![uk(json!(1), &now_text(7_200))]).await.remove(0).unwrap_err();
        assert!(ahead.to_string().contains("ahead"), "{ahead}");
    }

    #[tokio::test]
    async fn every_kind_of_failure_is_an_error() {
        let kinds = [
            (Reply::status("401 Unauthorized"), ErrorKind::AccessDenied),
            (Reply::status("500 Internal Server Error"), ErrorKind::Protocol),
            (Reply::status("503 Service Unavailable"), ErrorKind::Busy),
            (Reply::status("429 Too Many Requests"), ErrorKind::Invalid),
            (Reply::status("302 Found"), ErrorKind::Protocol),
            (Reply::text("<html>maintenance</html>"), ErrorKind::Protocol),
            (Reply::text("{\"carbonIntensity\": 1e999}"), ErrorKind::Protocol),
            (Reply::text(&"[".repeat(100_000)), ErrorKind::Protocol),
            (Reply::json(&json!({ "carbonIntensity": -5, "datetime": now_text(0) })), ErrorKind::Protocol),
            (Reply::Bytes(b"garbage without an end\r\n\r\n".to_vec()), ErrorKind::Disconnected),
            (Reply::Bytes(Vec::new()), ErrorKind::Disconnected),
            (Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"carbon".to_vec()), ErrorKind::Disconnected),
            (Reply::Endless, ErrorKind::Protocol),
        ];
        for (reply, kind) in kinds {
            let shown = format!("{reply:?}");
            let error = refused(reply).await;
            assert_eq!(error.kind(), kind, "{shown}: {error}");
        }
    }

    #[tokio::test]
    async fn a_server_that_keeps_silent_is_given_up_at_the_deadline() {
        let server = Server::start(vec![Reply::Silence]).await;
        let short = CarbonAccess { deadline: Duration::from_millis(50), ..access(&server) };
        let service = CarbonService::new(server.runtime.clone(), short).unwrap();
        let error = service.read().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(!error.to_string().contains("hidden"), "{error}");
        let nobody = CarbonAccess { url: "http://127.0.0.1:1/".into(), ..access(&server) };
        let error = CarbonService::new(server.runtime.clone(), nobody).unwrap().read().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
    }

    #[tokio::test]
    async fn a_token_goes_in_its_header_and_is_read_anew_each_time() {
        let good = || Reply::json(&json!({ "carbonIntensity": 302, "datetime": now_text(0) }));
        let server = Server::start(vec![good(), good()]).await;
        let token = file_with("first\n");
        let keyed = |header: Option<&str>| CarbonAccess {
            token_file: Some(token.path().into()),
            token_header: header.map(str::to_owned),
            ..access(&server)
        };
        let service = |access| CarbonService::new(server.runtime.clone(), access).unwrap();
        assert_eq!(service(keyed(Some("auth-token"))).read().await.unwrap().grams_per_kwh, 302.0);
        token.replace("second");
        service(keyed(None)).read().await.unwrap();
        let asked = server.requests().await;
        assert!(
            asked[0].contains("auth-token: first\r\n") && asked[0].contains("GET /intensity?key=hidden "),
            "{asked:?}"
        );
        assert!(asked[1].to_lowercase().contains("authorization: bearer second\r\n"), "{asked:?}");
        let wrong = CarbonAccess { token_header: Some("a b".into()), ..access(&server) };
        assert!(CarbonService::new(server.runtime.clone(), wrong).is_err());
        token.replace("two\nlines");
        let error = service(keyed(None)).read().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && !error.to_string().contains("lines"), "{error}");
    }

    #[tokio::test]
    async fn a_certificate_is_checked() {
        let good = || Reply::json(&json!({ "carbonIntensity": 302, "datetime": now_text(0) }));
        let (server, ca) = Server::start_secure(vec![good(), good(), good()], "localhost", 4_000).await;
        let port = server.url.rsplit_once(':').unwrap().1;
        let at = |host: &str, ca_file: Option<PathBuf>| {
            let url = format!("https://{host}:{port}/");
            CarbonService::new(server.runtime.clone(), CarbonAccess { url, ca_file, ..access(&server) }).unwrap()
        };
        assert_eq!(at("localhost", Some(ca.path().into())).read().await.unwrap().grams_per_kwh, 302.0);
        let elsewhere = at("127.0.0.1", Some(ca.path().into())).read().await.unwrap_err();
        assert!(elsewhere.kind() == ErrorKind::AccessDenied && elsewhere.to_string().contains("TLS"), "{elsewhere}");
        let other = file_with(&crate::testing::authority().0);
        let unknown = at("localhost", Some(other.path().into())).read().await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::AccessDenied);
        let (expired, expired_ca) = Server::start_secure(vec![good()], "localhost", 2_001).await;
        let url = format!("https://localhost:{}/", expired.url.rsplit_once(':').unwrap().1);
        let late = CarbonAccess { url, ca_file: Some(expired_ca.path().into()), ..access(&expired) };
        let late = CarbonService::new(expired.runtime.clone(), late).unwrap().read().await.unwrap_err();
        assert!(late.to_string().contains("expired"), "{late}");
        let empty = file_with("no certificate");
        assert!(at("localhost", Some(empty.path().into())).read().await.unwrap_err().to_string().contains("PEM"));
    }
}
