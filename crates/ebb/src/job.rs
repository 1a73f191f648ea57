//! `ebb job`: work that is shipped to the hosts that hold the data.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use ebb_api::explain::{explain, with_paths};
use ebb_api::path::EbbPath;
use ebb_cli::output::{counted, human_bytes};
use ebb_cli::{Context, admin};
use ebb_client::{Access, Client};
use ebb_runtime::Runtime;
use ebb_types::{Credentials, Result};
use ebb_worker::{JobOptions, Locality, Pattern, Progress, Report, SEARCH_BUFFER, Slow, Task, count_words};
use parking_lot::Mutex;
use serde_json::json;

/// Interval of looks at the split that takes longest.
const LOOK: Duration = Duration::from_millis(100);
/// How often progress is reported to a program.
const TELL: Duration = Duration::from_millis(50);

/// Jobs that run where the data are.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Count the words of a file or a directory tree.
    ///
    /// The work runs on the hosts that hold the metablocks.
    Count(JobArgs),
    /// Count the lines that contain a text, as `grep -F -c` does.
    ///
    /// The work runs on the hosts that hold the metablocks.
    Grep {
        /// Text to look for.
        text: String,
        #[command(flatten)]
        job: JobArgs,
    },
}

#[derive(Debug, Args)]
pub struct JobArgs {
    /// File or directory to read.
    path: EbbPath,
    /// Assign the work without regard to where the data are.
    #[arg(long)]
    no_locations: bool,
    /// Print progress as JSON lines on stderr.
    #[arg(long)]
    progress: bool,
}

/// The arguments of `ebb` for an earlier spelling under `ebb lab`; none if these words are no job.
pub fn from_old_spelling(lab: &[OsString]) -> Option<Vec<OsString>> {
    let (first, rest) = lab.split_first()?;
    let name = match first.to_str()? {
        "wordcount" => "count",
        "grep" => "grep",
        _ => return None,
    };
    Some(["job", name].map(OsString::from).into_iter().chain(rest.iter().cloned()).collect())
}

/// Does it; false: some splits could not be counted.
pub async fn run(context: &Context, command: JobCommand) -> Result<bool> {
    match command {
        JobCommand::Count(args) => ship(context, &args, None).await,
        JobCommand::Grep { text, job } => ship(context, &job, Some(&text)).await,
    }
}

/// Ships the work and adds up, words or the lines with a text; false: some splits could not be counted.
async fn ship(context: &Context, args: &JobArgs, text: Option<&str>) -> Result<bool> {
    let task = match text {
        None => Task::Words,
        Some(text) => Task::Lines(Pattern::new(text.to_owned().into())?),
    };
    let cluster = context.cluster()?;
    let workers = admin::workers(&cluster).await?;
    let client = admin::operator(&cluster).await?;
    let locality = if args.no_locations { Locality::Blind } else { Locality::Located };
    let buffer_bytes = text.map(|_| SEARCH_BUFFER);
    let options = JobOptions { task, locality, buffer_bytes, ..JobOptions::default() };
    let bar = context.output.byte_bar(0, &format!("count {}", args.path));
    let mut last = Instant::now();
    let slowest = Mutex::new(None);
    let mut progress = |now: Progress| {
        *slowest.lock() = now.slowest;
        bar.set_length(now.bytes_found);
        bar.set_position(now.bytes_done);
        if args.progress && last.elapsed() >= TELL {
            last = Instant::now();
            show_progress(now);
        }
    };
    let runtime = Runtime::real();
    let credentials = admin::credentials();
    let path = args.path.as_bytes();
    let counted = tokio::select! {
        counted = count_words(&runtime, &client, &credentials, path, &workers, &options, &mut progress) => counted,
        never = feel(&client, &credentials, &slowest) => match never {},
    };
    bar.finish_and_clear();
    client.disconnect().await?;
    let report = counted.map_err(|error| explain(error, &args.path, |inode| client.kept_path(inode)))?;
    print(context, &client, args, &report, if text.is_some() { "lines" } else { "words" });
    Ok(report.failed == 0)
}

/// Reads a byte of the split that takes longest. So this command's own client finds what keeps the workers, and tells a
/// person who waits.
async fn feel(client: &Client, credentials: &Credentials, slowest: &Mutex<Option<Slow>>) -> Infallible {
    let mut last = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let slow = *slowest.lock();
        if slow == last {
            continue;
        }
        last = slow;
        let Some(Slow { inode, offset }) = slow else { continue };
        // Its errors are the workers' too, and they report them.
        if let Ok((handle, _)) = client.open(credentials, inode, Access::Read).await {
            let _ = client.read(handle, offset, 1).await;
            client.close(handle).await;
        }
    }
}

/// One line of JSON on stderr. A missing reader is no error.
fn show_progress(now: Progress) {
    let line = json!({"done_bytes": now.bytes_done, "total_bytes": now.walked.then_some(now.bytes_found)});
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn print(context: &Context, client: &Client, args: &JobArgs, report: &Report, name: &str) {
    let errors: Vec<String> =
        report.errors.iter().map(|error| with_paths(error, &|inode| client.kept_path(inode))).collect();
    for error in &errors {
        context.output.warn(error);
    }
    if context.output.json() {
        let mut value = json!(report);
        if let Some(found) = value.as_object_mut().and_then(|report| report.remove("words")) {
            value[name] = found;
        }
        value["errors"] = json!(errors);
        context.output.print_json(&value);
        return;
    }
    context.output.say(&format!(
        "{}: {} {name} in {}, {} in {:.2} s ({}, {} of them on a host that holds the data{}; {} over the network{})",
        args.path,
        report.words,
        counted(report.files, "file"),
        human_bytes(report.input_bytes),
        report.seconds,
        counted(report.splits, "split"),
        report.local_splits,
        if report.sub_rack_splits > 0 {
            format!(", {} in its sub-rack", report.sub_rack_splits)
        } else {
            String::new()
        },
        human_bytes(report.network_bytes),
        match report.sub_rack_bytes {
            0 => String::new(),
            bytes => format!(", {} of it within sub-racks", human_bytes(bytes)),
        },
    ));
}
