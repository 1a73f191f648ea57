//! bonnie++ (Debian's package) on a real mount.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ebb_cli::programs;
use ebb_cli::units::ByteSize;
use ebb_figures::metablocks::{Setting, Speeds};
use ebb_types::{Error, Prefetch, Result, bail, err};
use tokio::process::Command;

use super::last_line;
use super::site::{CACHE_BYTES, DIRECTORY, Site};

const PROGRAM: &str = "bonnie++";
/// Seeks of one run: fewer are over too soon for bonnie++ to measure their time.
const SEEKS: u32 = 4096;
/// Longest that a run may take.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Fields of the numbers in its line of CSV (bon_csv2txt(1)).
const GET_BLOCK: usize = 17;
const SEEKS_PER_SEC: usize = 19;

/// Checks that bonnie++ is installed. The error names the remedy.
pub fn check() -> Result<()> {
    program().map(drop)
}

fn program() -> Result<PathBuf> {
    // Debian installs it in a directory that only root's PATH contains.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    places.find(|place| place.join(PROGRAM).is_file()).map(|place| place.join(PROGRAM)).ok_or_else(|| {
        err!(
            Unavailable,
            "{PROGRAM} is not installed: apt-get install {PROGRAM}, or leave its part out: --parts search,prefetch"
        )
    })
}

/// Mounts the cluster, and runs bonnie++ in a setting's dataset.
pub async fn run(site: &Site, setting: Setting) -> Result<Speeds> {
    // The dataset's prefetch may have been changed in between.
    let mountpoint = site.mountpoint();
    std::fs::create_dir_all(&mountpoint).map_err(|error| Error::from_io(&error, mountpoint.display()))?;
    start_mount(site, &mountpoint, setting.prefetch).await?;
    let seen = bonnie(site, &mountpoint.join(DIRECTORY).join(setting.name)).await;
    output_of(site, ebb()?.arg("umount").arg(&mountpoint)).await?;
    std::fs::remove_dir(&mountpoint).map_err(|error| Error::from_io(&error, mountpoint.display()))?;
    seen
}

/// The product, which mounts.
fn ebb() -> Result<Command> {
    programs::beside("ebb").map(Command::new)
}

async fn start_mount(site: &Site, mountpoint: &Path, prefetch: Prefetch) -> Result<()> {
    let mut command = ebb()?;
    command.arg("mount").arg("--dir").arg(&site.cluster.path);
    command.args(["--prefetch", &prefetch.to_string(), "--read-cache", &ByteSize(CACHE_BYTES as u64).to_string()]);
    output_of(site, command.arg(mountpoint)).await.map(drop)
}

async fn bonnie(site: &Site, directory: &Path) -> Result<Speeds> {
    let mib = site.size() >> 20;
    let mut command = Command::new(program()?);
    command.arg("-d").arg(directory);
    // Without the kernel's page cache (-D), which would have all of a small file; files are not made and removed (-n
    // 0), single characters not written (-f); no check of the machine's memory (-r 0), because the mount's cache takes
    // its part.
    command.args(["-s", &format!("{mib}:8k:{SEEKS}:1"), "-n", "0", "-f", "-D", "-r", "0", "-q"]);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    parse(&output_of(site, &mut command).await?)
}

/// Output of a command. If it fails, the error has its last line on stderr.
async fn output_of(site: &Site, command: &mut Command) -> Result<String> {
    let name = Path::new(command.as_std().get_program()).file_name().unwrap_or(OsStr::new("?")).to_owned();
    let name = name.to_string_lossy();
    let ran = async {
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
        output.map_err(|error| Error::from_io(&error, format_args!("running {name}")))
    };
    let output = site.runtime.timeout(TIMEOUT, "a program of the experiment", ran).await?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let last = last_line(&complaint).unwrap_or("it said nothing");
        bail!(Io, "{name}: {}: {last}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Seeks and KiB of sequential reading, each in a second, from its line of CSV. A measurement that was over too soon is
/// no number there.
fn parse(printed: &str) -> Result<Speeds> {
    let Some(line) = printed.lines().rfind(|line| line.split(',').count() > SEEKS_PER_SEC) else {
        bail!(Protocol, "{PROGRAM} printed no line of numbers: {printed:?}");
    };
    let fields: Vec<&str> = line.split(',').collect();
    let number = |at: usize| fields[at].parse().unwrap_or(f64::NAN);
    Ok(Speeds { random: number(SEEKS_PER_SEC), sequential: number(GET_BLOCK) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_line_is_read_and_a_missing_measurement_is_no_number() {
        let line = |get: &str, seeks: &str| {
            format!(
                "note\n1.98,2.00a,small,1,1795409143,64M,,2000,1,,,83319,24,76551,18,,,{get},3,{seeks},9,,,,,,,,,,,,,,,,,,,\
                 18291us,32172us,,20130us,11973us,,,,,,\n"
            )
        };
        assert_eq!(parse(&line("250000", "812.5")).unwrap(), Speeds { random: 812.5, sequential: 250_000.0 });
        let soon = parse(&line("+++++", "+++++")).unwrap();
        assert!(soon.random.is_nan() && soon.sequential.is_nan());
        assert!(parse("Writing a byte at a time...done\n").is_err());
    }
}
