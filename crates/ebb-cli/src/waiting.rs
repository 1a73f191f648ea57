//! What a command waits for, in sentences on stderr, and the time limit of a command.
//!
//! A command that has waited for 1.5 s says for what: the operation of its client that has waited longest, and
//! processes of this machine's cluster that have ended or are stopped. A new sentence comes as soon as the reason
//! changes, the same one again after 10 s.

use std::future::Future;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ebb_client::Waits;
use ebb_runtime::Runtime;
use ebb_types::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::directory::ClusterDir;
use crate::output::Output;
use crate::process::{self, ProcessFile};

/// Time without a word.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Interval of looks.
const LOOK: Duration = Duration::from_millis(500);
/// The same sentence is repeated after this time.
const REPEAT: Duration = Duration::from_secs(10);

/// The waits of all clients of this process.
pub static WAITS: LazyLock<Waits> = LazyLock::new(Waits::default);

/// Runs a command of a running cluster: says what it waits for, and ends it after its time limit.
///
/// # Errors
/// Those of the command. `Timeout` after its time limit.
pub async fn run<T>(context: &Context, command: impl Future<Output = Result<T>>) -> Result<T> {
    let done = tokio::select! {
        biased;
        done = limit(context, command) => done,
        never = announce(context) => match never {},
    };
    done.map_err(|error| explain(context, error))
}

/// Adds the servers that have ended to an error that they may have caused.
fn explain(context: &Context, error: Error) -> Error {
    let is_of_silence =
        matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Disconnected | ErrorKind::Unavailable);
    let sentences = if is_of_silence { ill_servers(context) } else { Vec::new() };
    if sentences.is_empty() {
        return error;
    }
    let sentences = sentences.into_iter().map(|(_, sentence)| format!("; {sentence}")).collect::<String>();
    Error::new(error.kind(), format!("{}{sentences}", error.detail()))
}

/// Runs a command and ends it after its time limit.
///
/// # Errors
/// Those of the command. `Timeout` after its time limit.
pub async fn limit<T>(context: &Context, command: impl Future<Output = Result<T>>) -> Result<T> {
    let limit = async {
        match context.timeout {
            Some(span) => tokio::time::sleep(span).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = command => done,
        () = limit => {
            let span = context.timeout.unwrap_or_default();
            let reason = reason(context, Duration::ZERO).map_or_else(String::new, |reason| format!("; it waited for {reason}"));
            Err(Error::new(ErrorKind::Timeout, format!("not done within {span:?}{reason}")))
        }
    }
}

async fn announce(context: &Context) -> std::convert::Infallible {
    let mut said = Said::default();
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(reason) = reason(context, PATIENCE) {
            said.say(&context.output, &reason);
        }
    }
}

/// The last sentence on stderr, and its time.
#[derive(Debug, Default)]
pub struct Said(Option<(String, Instant)>);

impl Said {
    /// Prints "waiting for REASON", unless the last sentence was the same but for numbers, and not long ago.
    pub fn say(&mut self, output: &Output, reason: &str) {
        let kind: String = reason.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        if self.0.as_ref().is_some_and(|(before, at)| *before == kind && at.elapsed() < REPEAT) {
            return;
        }
        match output.json() {
            true => eprintln!("{}", serde_json::json!({ "waiting_for": reason })),
            false => eprintln!("waiting for {reason}"),
        }
        self.0 = Some((kind, Instant::now()));
    }
}

/// What the command has waited for, for this time or longer.
fn reason(context: &Context, patience: Duration) -> Option<String> {
    let now = Runtime::real().now();
    if now.since(*STARTED) < patience {
        return None;
    }
    let wait = WAITS.longest().filter(|wait| now.since(wait.since) >= patience);
    let ill = ill_servers(context);
    // A call without a client, as most administration, has no entry: a dead master says enough.
    let wait = match wait {
        Some(wait) => wait.reason.into_owned(),
        None if ill.iter().any(|(role, _)| role == "master") => "the master to answer".to_owned(),
        None => return None,
    };
    let ill = ill.into_iter().map(|(_, sentence)| format!("; {sentence}")).collect::<String>();
    Some(format!("{wait}{ill}"))
}

/// The start of this process, as far as it can be known here.
static STARTED: LazyLock<ebb_runtime::Moment> = LazyLock::new(|| Runtime::real().now());

/// The servers of this machine's cluster that have ended, or a master that is stopped: role and sentence.
fn ill_servers(context: &Context) -> Vec<(String, String)> {
    let Ok(cluster) = context.cluster() else { return Vec::new() };
    sentences(&process::list(&cluster).unwrap_or_default(), &cluster)
}

fn sentences(processes: &[ProcessFile], cluster: &ClusterDir) -> Vec<(String, String)> {
    let servers = processes.iter().filter(|process| ["master", "block", "proxy"].contains(&process.role.as_str()));
    let sentence = |process: &ProcessFile| {
        let name = match &process.node {
            Some(node) => format!("the {} server of {node}", process.role),
            None => format!("the {}", process.role),
        };
        if !process.is_running() {
            let dir = cluster.path.display();
            return Some(format!("{name} (pid {}) has ended: `ebb cluster up --dir {dir}` starts it", process.pid));
        }
        let is_stopped = process.role == "master" && process.is_frozen();
        is_stopped
            .then(|| format!("{name} (pid {}) is stopped: `kill -CONT {}` lets it go on", process.pid, process.pid))
    };
    servers.filter_map(|process| Some((process.role.clone(), sentence(process)?))).collect()
}
