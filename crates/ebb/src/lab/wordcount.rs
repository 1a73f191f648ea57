//! `ebb lab wordcount` and `ebb lab grep`.

use std::io::Write;
use std::time::{Duration, Instant};

use ebb_runtime::Runtime;
use ebb_types::{HostName, Result};
use ebb_worker::{JobOptions, Locality, Pattern, Progress, Report, Task, count_words};
use serde_json::json;

use super::WordcountArgs;
use crate::admin;
use crate::cli::Context;
use crate::cluster::config::ClusterDir;
use crate::cluster::process::{self, ProcessFile};
use crate::output::human_bytes;
use crate::path::explain;

/// How often progress is told to a program.
const TELL: Duration = Duration::from_millis(50);

/// Bytes of one read of a program that looks for a text in a file from one end to the other.
pub const BUFFER: u64 = 128 << 10;

/// The workers of a cluster that run: host and address.
pub fn workers(cluster: &ClusterDir) -> Result<Vec<(HostName, String)>> {
    let running = |process: &ProcessFile| process.role == "worker" && process.is_running();
    let all = process::list(cluster)?.into_iter().filter(running);
    Ok(all.map(|process| (HostName::new(process.host), process.address)).collect())
}

/// Ships the work and adds up, words or the lines with a text; false: some splits could not be counted.
pub async fn run(context: &Context, args: &WordcountArgs, text: Option<&str>) -> Result<bool> {
    let task = match text {
        None => Task::Words,
        Some(text) => Task::Lines(Pattern::new(text.to_owned().into())?),
    };
    let cluster = context.cluster()?;
    let workers = workers(&cluster)?;
    let client = admin::client(&cluster, &HostName::new("client"), "cli").await?;
    let locality = if args.no_locations { Locality::Blind } else { Locality::Located };
    let buffer_bytes = text.map(|_| BUFFER);
    let options = JobOptions { task, locality, buffer_bytes, ..JobOptions::default() };
    let bar = context.output.byte_bar(0, &format!("count {}", args.path));
    let mut last = Instant::now();
    let mut progress = |now: Progress| {
        bar.set_length(now.bytes_found);
        bar.set_position(now.bytes_done);
        if args.progress && last.elapsed() >= TELL {
            last = Instant::now();
            tell(now);
        }
    };
    let runtime = Runtime::real();
    let credentials = admin::credentials();
    let path = args.path.as_bytes();
    let counted = count_words(&runtime, &client, &credentials, path, &workers, &options, &mut progress).await;
    bar.finish_and_clear();
    client.disconnect().await?;
    let report = counted.map_err(|error| explain(error, &args.path))?;
    print(context, args, &report, if text.is_some() { "lines" } else { "words" });
    Ok(report.failed == 0)
}

/// One line of JSON on stderr. Nobody listening is no error.
fn tell(now: Progress) {
    let line = json!({"done_bytes": now.bytes_done, "total_bytes": now.walked.then_some(now.bytes_found)});
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn print(context: &Context, args: &WordcountArgs, report: &Report, what: &str) {
    for error in &report.errors {
        context.output.warn(error);
    }
    if context.output.json() {
        let mut value = json!(report);
        if let Some(found) = value.as_object_mut().and_then(|report| report.remove("words")) {
            value[what] = found;
        }
        context.output.print_json(&value);
        return;
    }
    context.output.say(&format!(
        "{}: {} {what} in {} files, {} in {:.2} s ({} splits, {} of them on a host that holds the data; {} over the network)",
        args.path,
        report.words,
        report.files,
        human_bytes(report.input_bytes),
        report.seconds,
        report.splits,
        report.local_splits,
        human_bytes(report.network_bytes),
    ));
}
