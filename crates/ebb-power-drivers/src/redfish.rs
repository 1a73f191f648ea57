//! Switches a node through its baseboard management controller by Redfish (DMTF DSP0266, DSP0268).

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_types::{NodeId, Result, bail};
use serde_json::{Value, json};

use crate::http::Http;
use crate::ipmi::Off;
use crate::{PowerDriver, Powered, Work};

/// A system behind a controller.
#[derive(Clone, PartialEq, Eq)]
pub struct Service {
    /// `host:port` of the controller.
    pub address: String,
    /// Path of the system, such as `/redfish/v1/Systems/1`.
    pub system: String,
    /// User and password, if it asks for them.
    pub user: Option<(String, String)>,
}

/// Passwords are not printed.
impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({}{})", self.address, self.system)
    }
}

/// Nodes behind controllers.
pub struct Redfish {
    runtime: Runtime,
    systems: BTreeMap<NodeId, (Http, String)>,
    off: Off,
    deadline: Duration,
}

/// How often a controller is asked whether it has carried a call out.
const LOOK: Duration = Duration::from_millis(200);

/// Kinds of reset (DSP0268, ComputerSystem.Reset) in the order in which they are tried.
pub(crate) const SOFT: &[&str] = &["Suspend", "GracefulShutdown", "PushPowerButton"];
pub(crate) const HARD: &[&str] = &["ForceOff"];
pub(crate) const ON: &[&str] = &["On", "ForceOn", "PushPowerButton"];

impl Redfish {
    /// Each call may take `call`, and a node up to `deadline` to go on or off.
    #[must_use]
    pub fn new(
        runtime: Runtime,
        services: BTreeMap<NodeId, Service>,
        off: Off,
        call: Duration,
        deadline: Duration,
    ) -> Self {
        let system = |(node, service): (NodeId, Service)| {
            let user = service.user.as_ref().map(|(user, password)| (user.as_str(), password.as_str()));
            (node, (Http::new(runtime.clone(), &service.address, user, call), service.system))
        };
        let systems = services.into_iter().map(system).collect();
        Self { runtime, systems, off, deadline }
    }

    /// Watts that the node's chassis draws, if its controller measures them.
    pub async fn watts(&self, node: NodeId) -> Result<Option<f64>> {
        let (http, path) = self.system(node)?;
        let system = http.get(path).await?;
        let Some(chassis) = system.pointer("/Links/Chassis/0/@odata.id").and_then(Value::as_str) else {
            return Ok(None);
        };
        let chassis = http.get(chassis).await?;
        let Some(power) = chassis.pointer("/Power/@odata.id").and_then(Value::as_str) else { return Ok(None) };
        let watts = http.get(power).await?.pointer("/PowerControl/0/PowerConsumedWatts").and_then(Value::as_f64);
        Ok(watts.filter(|watts| watts.is_finite() && *watts >= 0.0))
    }

    fn system(&self, node: NodeId) -> Result<(&Http, &str)> {
        match self.systems.get(&node) {
            Some((http, path)) => Ok((http, path)),
            None => bail!(NotFound, "nothing is known of the controller of {node}"),
        }
    }

    async fn switch(&self, node: NodeId, kinds: &[&'static str], wanted: Powered) -> Result<()> {
        let (http, path) = self.system(node)?;
        let system = http.get(path).await?;
        if powered(&system)? == wanted {
            return Ok(());
        }
        let Some(target) = system.pointer("/Actions/#ComputerSystem.Reset/target").and_then(Value::as_str) else {
            bail!(Unsupported, "the controller of {node} offers no way to switch {path}");
        };
        let kind = choose_kind(&system, kinds, wanted);
        let Some(kind) = kind else {
            bail!(Unsupported, "the controller of {node} can do none of {} with {path}", kinds.join(", "));
        };
        http.post(target, &json!({ "ResetType": kind })).await?;
        let seen = async {
            while powered(&http.get(path).await?)? != wanted {
                self.runtime.sleep(LOOK).await;
            }
            Ok(())
        };
        self.runtime.timeout(self.deadline, &format!("{node} after {kind}"), seen).await
    }
}

/// The first kind that the controller allows; the first that every controller knows if it does not say.
pub(crate) fn choose_kind(system: &Value, kinds: &[&'static str], wanted: Powered) -> Option<&'static str> {
    if wanted == Powered::On && system["PowerState"] == "Paused" {
        return Some("Resume");
    }
    let allowed = &system["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"];
    match allowed.as_array() {
        Some(allowed) => kinds.iter().copied().find(|kind| allowed.iter().any(|value| value == kind)),
        None => kinds.iter().copied().find(|kind| *kind != "Suspend"),
    }
}

pub(crate) fn powered(system: &Value) -> Result<Powered> {
    match system["PowerState"].as_str() {
        Some("On") => Ok(Powered::On),
        Some("Off" | "Paused") => Ok(Powered::Off),
        Some("PoweringOn" | "PoweringOff") => Ok(Powered::Changing),
        _ => bail!(Protocol, "a system whose power state is {}", system["PowerState"]),
    }
}

impl PowerDriver for Redfish {
    fn name(&self) -> &'static str {
        "redfish"
    }

    fn sleep(&self, node: NodeId, _wake_ms: Option<u64>) -> Work<'_, Result<()>> {
        let kinds = match self.off {
            Off::Soft => SOFT,
            Off::Hard => HARD,
        };
        Box::pin(self.switch(node, kinds, Powered::Off))
    }

    fn wake(&self, node: NodeId) -> Work<'_, Result<()>> {
        Box::pin(self.switch(node, ON, Powered::On))
    }

    fn powered(&self, node: NodeId) -> Work<'_, Result<Powered>> {
        Box::pin(async move {
            let (http, path) = self.system(node)?;
            powered(&http.get(path).await?)
        })
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const NODE: NodeId = NodeId::new(2);

    fn system(state: &str) -> Value {
        json!({
            "PowerState": state,
            "Actions": {"#ComputerSystem.Reset": {
                "target": "/systems/2/reset",
                "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown"],
            }},
        })
    }

    /// A controller that gives these answers, one for each connection. Also returns the requests that it got.
    async fn asked<T>(answers: Vec<String>, work: impl AsyncFnOnce(Redfish) -> Result<T>) -> (Result<T>, Vec<String>) {
        let runtime = Runtime::real();
        let listener = runtime.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        let server = runtime.spawn("controller", async move {
            let mut questions = Vec::new();
            for answer in answers {
                let mut stream = listener.accept().await.unwrap();
                let mut question = Vec::new();
                // Head and body come in one or two pieces; every body here ends in a brace.
                while !question.ends_with(b"\r\n\r\n") && !question.ends_with(b"}") {
                    let byte = stream.read.read_u8().await.unwrap();
                    question.push(byte);
                    if question.ends_with(b"\r\n\r\n") && question.starts_with(b"POST") {
                        question.push(stream.read.read_u8().await.unwrap());
                    }
                }
                questions.push(String::from_utf8(question).unwrap());
                stream.write.write_all(answer.as_bytes()).await.unwrap();
                stream.write.flush().await.unwrap();
            }
            questions
        });
        let service = Service { address, system: "/systems/2".into(), user: Some(("ebb".into(), "secret".into())) };
        let minute = Duration::from_secs(60);
        let client = Redfish::new(runtime, BTreeMap::from([(NODE, service)]), Off::Soft, minute, minute);
        let done = work(client).await;
        (done, server.join().await.unwrap())
    }

    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    fn shows(state: &str) -> String {
        answer("200 OK", &system(state).to_string())
    }

    #[tokio::test]
    async fn a_node_is_shut_down_by_a_reset_kind_that_its_controller_allows() {
        let answers = vec![shows("On"), answer("204 No Content", ""), shows("PoweringOff"), shows("Off")];
        let (done, questions) = asked(answers, async |client| client.sleep(NODE, None).await).await;
        done.unwrap();
        assert!(questions[1].starts_with("POST /systems/2/reset HTTP/1.1"), "{}", questions[1]);
        assert!(questions[1].contains(r#"{"ResetType":"GracefulShutdown"}"#), "{}", questions[1]);
        assert!(questions[0].to_lowercase().contains("authorization: basic zwjionnly3jlda=="), "{}", questions[0]);
    }

    #[tokio::test]
    async fn a_node_that_is_on_is_left_alone() {
        let (done, questions) = asked(vec![shows("On")], async |client| client.wake(NODE).await).await;
        done.unwrap();
        assert_eq!(questions.len(), 1);
    }

    #[tokio::test]
    async fn refusals_and_nonsense_are_reported() {
        let failing =
            async |answer: String| asked(vec![answer], async |client| client.powered(NODE).await).await.0.unwrap_err();
        assert_eq!(failing(answer("401 Unauthorized", "")).await.kind(), ErrorKind::AccessDenied);
        assert_eq!(failing(answer("200 OK", "<html>")).await.kind(), ErrorKind::Protocol);
        assert_eq!(failing(answer("200 OK", "{}")).await.kind(), ErrorKind::Protocol);
        let error = failing(answer("404 Not Found", r#"{"error":{"message":"no such system"}}"#)).await;
        assert!(error.to_string().contains("no such system"), "{error}");
        assert_eq!(failing("HTTP/1.1 200".into()).await.kind(), ErrorKind::Disconnected);
    }

    #[test]
    fn the_kind_is_chosen_among_the_allowed_ones() {
        let mut paused = system("Paused");
        assert_eq!(choose_kind(&paused, ON, Powered::On), Some("Resume"));
        paused["PowerState"] = "Off".into();
        assert_eq!(choose_kind(&paused, ON, Powered::On), Some("On"));
        assert_eq!(choose_kind(&json!({}), SOFT, Powered::Off), Some("GracefulShutdown"));
        assert_eq!(choose_kind(&system("On"), &["Suspend"], Powered::Off), None);
    }
}
