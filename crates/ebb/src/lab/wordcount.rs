//! `ebb lab wordcount`.

use std::io::Write;
use std::time::{Duration, Instant};

use ebb_runtime::Runtime;
use ebb_types::{HostName, Result};
use ebb_worker::{JobOptions, Locality, Progress, Report, count_words};
use serde_json::json;

use super::WordcountArgs;
use crate::admin;
use crate::cli::Context;
use crate::cluster::process;
use crate::output::human_bytes;
use crate::path::explain;

/// How often progress is told to a program.
const TELL: Duration = Duration::from_millis(50);

/// Ships the work and adds up; false: some splits could not be counted.
pub async fn run(context: &Context, args: &WordcountArgs) -> Result<bool> {
    let cluster = context.cluster()?;
    let workers: Vec<(HostName, String)> = process::list(&cluster)?
        .into_iter()
        .filter(|process| process.role == "worker" && process.is_running())
        .map(|process| (HostName::new(process.host), process.address))
        .collect();
    let client = admin::client(&cluster, &HostName::new("client"), "cli").await?;
    let locality = if args.no_locations { Locality::Blind } else { Locality::Located };
    let options = JobOptions { locality, ..JobOptions::default() };
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
    print(context, args, &report);
    Ok(report.failed == 0)
}

/// One line of JSON on stderr. Nobody listening is no error.
fn tell(now: Progress) {
    let line = json!({"done_bytes": now.bytes_done, "total_bytes": now.walked.then_some(now.bytes_found)});
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn print(context: &Context, args: &WordcountArgs, report: &Report) {
    for error in &report.errors {
        context.output.warn(error);
    }
    if context.output.json() {
        context.output.print_json(&json!(report));
        return;
    }
    context.output.say(&format!(
        "{}: {} words in {} files, {} in {:.2} s ({} splits, {} of them on a host that holds the data; {} over the network)",
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
