//! `--figure 2`: Hadoop's jobs on Ebb and on HDFS. A script of the source tree starts all of it and measures; this reads
//! its lines.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use ebb_cli::signals::Signals;
use ebb_cli::{Context, programs};
use ebb_figures::Outcome;
use ebb_figures::metablocks::jobs::{Figure2, JOBS, SETTINGS, SYSTEMS, section};
use ebb_types::{Error, Result, bail, err};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{MetablocksArgs, last_line};
use crate::paper;

/// In a source tree.
const SCRIPT: &str = "tests/hadoop/figure2.sh";
/// The exit code of a script that could not try.
const SKIPPED: i32 = 77;
/// Measurements of a round beside those of the jobs: six writes, four uses on two systems.
const OTHERS: usize = 6 + 4 * 2;

/// Name in `--out` of the file with the lines that the script printed.
const KEPT: &str = "measured.jsonl";

/// Measures, or reads what was measured, and reports.
pub async fn run(context: &Context, args: &MetablocksArgs) -> Result<()> {
    let figure = if args.from.is_empty() {
        let script = find_script(args.scripts.as_deref())?;
        parse(&measure(context, args, &script).await?)?
    } else {
        let runs: Result<Vec<Figure2>> = args.from.iter().map(|path| read(path)).collect();
        Figure2::join(runs?)?
    };
    let outcome = Outcome { section: section(&figure) };
    let about = "What the paper says, ours on the same YARN as HDFS, and the reason for a difference.";
    paper::report_measured(context, &outcome, figure.setup.rounds, args.out.as_deref(), about)
}

fn parse(lines: &[String]) -> Result<Figure2> {
    Figure2::parse(lines.iter().map(String::as_str))
}

/// A file of lines that were kept.
fn read(path: &Path) -> Result<Figure2> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::from_io(&error, path.display()))?;
    Figure2::parse(text.lines()).map_err(|error| error.context(path.display()))
}

/// The file that gets each line as it comes: an hour of measurements outlives what stops the next one.
fn keep_lines(directory: &Path) -> Result<File> {
    let path = directory.join(KEPT);
    let made = std::fs::create_dir_all(directory).and_then(|()| File::create(&path));
    made.map_err(|error| Error::from_io(&error, path.display()))
}

/// The script: in the directory that was given, or in the source tree of this program or of the current directory.
fn find_script(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(directory) = given {
        let script = directory.join("figure2.sh");
        return script.is_file().then_some(script).ok_or_else(|| {
            err!(
                NotFound,
                "--scripts {}: there is no figure2.sh; it is in tests/hadoop of a source tree",
                directory.display()
            )
        });
    }
    let starts = [std::env::current_exe(), std::env::current_dir()];
    let trees = starts.iter().flatten().flat_map(|start| start.ancestors());
    trees.map(|tree| tree.join(SCRIPT)).find(|script| script.is_file()).ok_or_else(|| {
        err!(NotFound, "{SCRIPT} is not found: run this in a source tree, or give its directory with --scripts")
    })
}

/// Lines that the script printed.
async fn measure(context: &Context, args: &MetablocksArgs, script: &Path) -> Result<Vec<String>> {
    let mut kept = args.out.as_deref().map(keep_lines).transpose()?;
    let mut signals = Signals::listen()?;
    let log = std::env::temp_dir().join(format!("ebb-figure2-{}.log", std::process::id()));
    let mut command = Command::new("bash");
    command.arg(script).args(["--rounds", &args.rounds.to_string()]).arg("--log").arg(&log);
    if let Some(size) = args.size {
        command.args(["--bytes", &size.0.to_string()]);
    }
    command.env("EBB", programs::beside("ebb")?).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error| Error::from_io(&error, script.display());
    let mut child = command.spawn().map_err(failed)?;
    context.output.say(&format!("{} measures; what it does is told in {}", script.display(), log.display()));
    let all = JOBS.len() * SETTINGS.len() * SYSTEMS.len() + OTHERS;
    let bar = context.output.item_bar(all as u64 * u64::from(args.rounds), "measurements");
    let mut lines = Vec::new();
    let mut output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let complaints = tokio::spawn(all_of(child.stderr.take().expect("it is piped")));
    let ended = loop {
        let line = tokio::select! {
            biased;
            _ = signals.next() => break stop(&mut child).await,
            line = output.next_line() => line.map_err(failed)?,
        };
        let Some(line) = line else { break child.wait().await };
        if let Some(Err(error)) = kept.as_mut().map(|file| writeln!(file, "{line}")) {
            stop(&mut child).await.map_err(failed)?;
            return Err(Error::from_io(&error, KEPT));
        }
        bar.inc(u64::from(!lines.is_empty()));
        lines.push(line);
    };
    bar.finish_and_clear();
    let complaint = complaints.await.unwrap_or_default();
    check_end(ended.map_err(failed)?, &lines, last_line(&complaint).unwrap_or_default(), &log)?;
    Ok(lines)
}

/// It takes down what it has started.
async fn stop(child: &mut Child) -> std::io::Result<ExitStatus> {
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        // If it has ended meanwhile, its status tells.
        let _ = kill_process(pid, Signal::TERM);
    }
    child.wait().await
}

/// Reads to the end. What cannot be read is left out.
async fn all_of(mut stream: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

fn check_end(status: ExitStatus, lines: &[String], complaint: &str, log: &Path) -> Result<()> {
    match status.code() {
        Some(0) => Ok(()),
        Some(SKIPPED) => {
            let why = lines.last().map_or(complaint, String::as_str);
            bail!(Unavailable, "not measured: {}", why.trim_start_matches("skipped: "))
        }
        Some(130 | 143) | None => bail!(Interrupted, "interrupted, and all is taken down"),
        Some(code) => bail!(Internal, "the script ended with {code}: {complaint} (its log: {})", log.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn its_end_is_told_in_words() {
        let log = Path::new("/tmp/log");
        let end = |code: i32, lines: &[&str]| {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            check_end(ExitStatus::from_raw(code << 8), &lines, "no space left", log)
        };
        assert!(end(0, &["{}"]).is_ok());
        let skipped = end(77, &["skipped: 6 hosts need 12000 MiB of memory; 900 are free"]).unwrap_err();
        assert_eq!(skipped.to_string(), "not measured: 6 hosts need 12000 MiB of memory; 900 are free");
        assert_eq!(skipped.kind(), ErrorKind::Unavailable);
        let failed = end(1, &["{}"]).unwrap_err().to_string();
        assert!(failed.contains("no space left") && failed.contains("/tmp/log"), "{failed}");
    }

    #[test]
    fn kept_lines_are_read_again_and_a_file_of_others_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let setup = r#"{"hosts":6,"bytes":600,"split":100,"link_bytes_per_second":10,"rounds":2,"cores":2}"#;
        writeln!(keep_lines(&folder.path().join("a/b")).unwrap(), "{setup}").unwrap();
        assert_eq!(read(&folder.path().join("a/b").join(KEPT)).unwrap().setup.rounds, 2);
        let other = folder.path().join("other");
        std::fs::write(&other, "seconds 3\n").unwrap();
        let error = read(&other).unwrap_err().to_string();
        assert!(error.contains("other") && error.contains("seconds 3"), "{error}");
        assert!(keep_lines(&other.join("below a file")).is_err());
    }

    #[test]
    fn the_script_is_found_in_the_source_tree_or_the_way_to_it_is_told() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(find_script(Some(&tree.join("tests/hadoop"))).is_ok());
        let error = find_script(Some(&tree.join("docs"))).unwrap_err().to_string();
        assert!(error.contains("tests/hadoop of a source tree"), "{error}");
    }
}
