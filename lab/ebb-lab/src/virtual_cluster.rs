//! `ebb lab virtual`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;

use clap::Args;
use ebb_cli::Context;
use ebb_power::PolicyKind;
use ebb_runtime::SeededBug;
use ebb_types::{Result, err};
use ebb_virtual::faults::kind::Kind;
use ebb_virtual::power::options::{Fault, PowerOptions, SignalKind};
use ebb_virtual::single::SingleOptions;
use ebb_virtual::swarm::{self, Next};
use ebb_virtual::{ProxyUse, Report, VirtualOptions};
use serde_json::json;

#[derive(Debug, Args)]
pub struct VirtualArgs {
    /// Seed of a single run, from which everything that happens follows.
    #[arg(long, conflicts_with_all = ["seeds", "jobs"])]
    seed: Option<u64>,
    /// Range of seeds, as FIRST..END; END is not included.
    #[arg(long)]
    seeds: Option<String>,
    /// Number of seeds that run at a time.
    #[arg(long, default_value = "1")]
    jobs: NonZeroUsize,
    /// Inject one fault at a time, and check how long operations wait meanwhile. Most of these clusters have as many
    /// block servers as copies.
    #[arg(long, conflicts_with_all = ["large", "power", "raid", "snapshots"])]
    single: bool,
    /// Run clusters whose cold metablocks trade their copies for check metablocks.
    #[arg(long, conflicts_with_all = ["large", "power", "snapshots"])]
    raid: bool,
    /// Run clusters whose clients take snapshots. Half of them have RAID sets, too.
    #[arg(long, conflicts_with_all = ["large", "power"])]
    snapshots: bool,
    /// Run large clusters: up to twenty block servers, eight clients and three proxies, with several faults at a time.
    #[arg(long, conflicts_with = "power")]
    large: bool,
    /// Kinds of faults, by the names in the report with hyphens, such as crash,one-way [default: drawn from the seed].
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["single", "large", "power", "raid", "snapshots"])]
    faults: Vec<String>,
    /// Run clusters that follow their power. Policy, signal and kinds of faults are drawn from the seed.
    #[arg(long)]
    power: bool,
    /// Power policy of all runs [default: drawn from the seed].
    #[arg(long, requires = "power")]
    policy: Option<String>,
    /// Power signal of all runs: constant, oscillating, falling-to-zero or renewable [default: drawn from the seed].
    #[arg(long, requires = "power")]
    signal: Option<String>,
    /// Seed a bug in the code, to see whether it is found: skip-fsync, stale-read, epoch-ignored, torn-overwrite,
    /// early-delete, commit-unsynced or forget-fsync. With --power, standin-unsynced and log-ignored are possible too.
    /// Only virtual clusters can have seeded bugs. A range of seeds stops at the first finding.
    #[arg(long, alias = "plant")]
    bug: Option<String>,
}

/// Violations shown of one seed.
const SHOWN_MAX: usize = 10;

/// Runs one seed or a range of them. False: a guarantee did not hold.
pub fn run(context: &Context, args: &VirtualArgs) -> Result<bool> {
    let bug = args.bug.as_deref().map(parse_bug).transpose()?;
    let work = Work::of(args)?;
    let seeds = match (args.seed, args.seeds.as_deref()) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(text)) => parse_range(text)?,
        (None, None) => return Err(err!(Invalid, "which seeds? give --seed N or --seeds FIRST..END")),
    };
    match args.seed {
        Some(_) => Ok(run_one(context, seeds, &work, bug)),
        None => Ok(run_range(context, seeds, args.jobs, &work, bug)),
    }
}

/// The kind of the run.
pub(super) enum Work {
    /// A cluster under faults, of these kinds if any are named.
    Faults(Vec<Kind>),
    /// A large cluster.
    Large,
    /// One fault at a time.
    Single,
    /// A cluster with RAID sets, under faults.
    Raid,
    /// A cluster with snapshots, under faults.
    Snapshots,
    /// A cluster that follows its power, under faults. `None` is drawn from the seed.
    Power { policy: Option<PolicyKind>, signal: Option<SignalKind> },
}

impl Work {
    fn of(args: &VirtualArgs) -> Result<Self> {
        if args.single {
            return Ok(Self::Single);
        }
        if args.raid {
            return Ok(Self::Raid);
        }
        if args.snapshots {
            return Ok(Self::Snapshots);
        }
        if !args.power {
            let kinds = args.faults.iter().map(|name| parse_kind(name)).collect::<Result<_>>()?;
            return Ok(if args.large { Self::Large } else { Self::Faults(kinds) });
        }
        let policy = args.policy.as_deref().map(str::parse).transpose()?;
        Ok(Self::Power { policy, signal: args.signal.as_deref().map(parse_signal).transpose()? })
    }

    pub(super) fn run(&self, seed: u64, bug: Option<SeededBug>) -> Report {
        match self {
            Self::Large => ebb_virtual::run(seed, VirtualOptions { bug, ..VirtualOptions::large(seed) }),
            Self::Raid => ebb_virtual::run(seed, VirtualOptions { bug, ..VirtualOptions::raid(seed) }),
            Self::Snapshots => ebb_virtual::run(seed, VirtualOptions { bug, ..VirtualOptions::snapshots(seed) }),
            Self::Faults(kinds) => {
                let drawn = VirtualOptions::drawn(seed);
                let faults = if kinds.is_empty() { drawn.faults } else { Some(kinds.clone()) };
                ebb_virtual::run(seed, VirtualOptions { bug, faults, ..drawn })
            }
            Self::Single => ebb_virtual::single::run(seed, SingleOptions { bug, ..SingleOptions::drawn(seed) }),
            Self::Power { policy, signal } => {
                let drawn = PowerOptions::drawn(seed);
                let (policy, signal) = (policy.unwrap_or(drawn.policy), signal.unwrap_or(drawn.signal));
                ebb_virtual::power::run::run(seed, PowerOptions { policy, signal, bug, ..drawn })
            }
        }
    }

    /// Names of the possible faults.
    fn faults(&self) -> Vec<String> {
        match self {
            Self::Faults(kinds) if !kinds.is_empty() => kinds.iter().map(ToString::to_string).collect(),
            Self::Faults(_) | Self::Large | Self::Raid | Self::Snapshots => {
                Kind::ALL.iter().map(ToString::to_string).collect()
            }
            Self::Single => Vec::new(),
            Self::Power { .. } => Fault::ALL.iter().map(|fault| fault.name().to_owned()).collect(),
        }
    }

    /// The arguments for this kind of run.
    pub(super) fn arguments(&self) -> String {
        let (policy, signal) = match self {
            Self::Faults(kinds) if kinds.is_empty() => return String::new(),
            Self::Faults(kinds) => {
                return format!(" --faults {}", kinds.iter().map(name_of).collect::<Vec<_>>().join(","));
            }
            Self::Large => return " --large".to_owned(),
            Self::Single => return " --single".to_owned(),
            Self::Raid => return " --raid".to_owned(),
            Self::Snapshots => return " --snapshots".to_owned(),
            Self::Power { policy, signal } => (policy, signal),
        };
        let policy = policy.map_or_else(String::new, |policy| format!(" --policy {policy}"));
        let signal = signal.map_or_else(String::new, |signal| format!(" --signal {}", signal.name()));
        format!(" --power{policy}{signal}")
    }
}

fn run_one(context: &Context, seed: Range<u64>, work: &Work, bug: Option<SeededBug>) -> bool {
    let mut good = true;
    swarm::run_each(
        seed,
        NonZeroUsize::MIN,
        |seed| work.run(seed, bug),
        |report| {
            print(context, &report, work, bug);
            good = report.violations.is_empty();
            Next::GoOn
        },
    );
    good
}

fn run_range(context: &Context, seeds: Range<u64>, jobs: NonZeroUsize, work: &Work, bug: Option<SeededBug>) -> bool {
    let bar = context.output.item_bar(seeds.end - seeds.start, "seeds");
    let (mut passed, mut failed) = (0_u64, Vec::new());
    let mut injected: BTreeMap<String, u64> = work.faults().into_iter().map(|kind| (kind, 0)).collect();
    let (mut proxy, mut lost_in) = (ProxyUse::default(), 0_u64);
    let (mut names, mut names_in, mut snapshots) = (0_u64, 0_u64, 0_u64);
    swarm::run_each(
        seeds,
        jobs,
        |seed| work.run(seed, bug),
        |report| {
            bar.inc(1);
            for (kind, count) in &report.injected {
                *injected.entry(kind.clone()).or_default() += count;
            }
            proxy = proxy.with(report.proxy);
            lost_in += u64::from(report.proxy.lost > 0);
            names += report.names;
            names_in += u64::from(report.names > 0);
            snapshots += report.snapshots;
            if report.violations.is_empty() {
                passed += 1;
                return Next::GoOn;
            }
            bar.suspend(|| print(context, &report, work, bug));
            failed.push(report.seed);
            // For a seeded bug one finding is enough.
            if bug.is_some() { Next::Stop } else { Next::GoOn }
        },
    );
    bar.finish_and_clear();
    if context.output.json() {
        failed.sort_unstable();
        context.output.print_json(&json!({
            "passed": passed,
            "failed": failed.len(),
            "failed_seeds": failed,
            "injected": injected,
            "proxy": proxy,
            "seeds_with_lost_stays": lost_in,
            "names": names,
            "seeds_with_names": names_in,
            "snapshots": snapshots,
        }));
    }
    let counts: Vec<String> = injected.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    context.output.say(&format!("faults: {}", counts.join(", ")));
    context.output.say(&format!(
        "proxy: {} operations, {} sent again, {} found their file elsewhere, {} failed without a known result; {} stays \
         lost, in {lost_in} seeds",
        proxy.done, proxy.repeated, proxy.moved, proxy.unknown, proxy.lost,
    ));
    context.output.say(&format!("names: {names} operations, in {names_in} seeds; {snapshots} snapshots"));
    context.output.say(&format!("{passed} passed, {} failed", failed.len()));
    failed.is_empty()
}

pub(super) fn print(context: &Context, report: &Report, work: &Work, bug: Option<SeededBug>) {
    if context.output.json() {
        context.output.print_json(&json!(report));
        return;
    }
    context.output.say(&format!(
        "seed {}: trace {}, {:.0} virtual seconds, {} writes ({} acknowledged, {} by fsync), {} reads, {} violations",
        report.seed,
        report.trace_hash,
        report.virtual_seconds,
        report.writes,
        report.acked,
        report.firm,
        report.reads,
        report.violations.len(),
    ));
    if !report.slowest.is_empty() {
        let slowest: Vec<String> = report.slowest.iter().map(|(work, ms)| format!("{work} {ms} ms")).collect();
        context.output.say(&format!("  slowest: {}", slowest.join(", ")));
    }
    let faults: Vec<String> = report.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    context.output.say(&format!("  faults: {}", faults.join(", ")));
    for violation in report.violations.iter().take(SHOWN_MAX) {
        context.output.say(&format!("  VIOLATION of \"{}\": {}", violation.invariant, violation.detail));
    }
    if !report.violations.is_empty() {
        let bug = bug.map_or_else(String::new, |bug| format!(" --bug {bug}"));
        let arguments = work.arguments();
        context.output.say(&format!("  replay: ebb lab virtual --seed {}{arguments}{bug}", report.seed));
    }
}

fn parse_bug(name: &str) -> Result<SeededBug> {
    SeededBug::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = SeededBug::ALL.iter().map(|bug| bug.name()).collect();
        err!(Invalid, "--bug {name:?}: there are {}", names.join(", "))
    })
}

fn parse_signal(name: &str) -> Result<SignalKind> {
    SignalKind::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = SignalKind::ALL.iter().map(|signal| signal.name()).collect();
        err!(Invalid, "--signal {name:?}: there are {}", names.join(", "))
    })
}

/// A kind of fault as one word.
fn name_of(kind: &Kind) -> String {
    kind.to_string().replace(' ', "-")
}

fn parse_kind(name: &str) -> Result<Kind> {
    Kind::ALL.iter().copied().find(|kind| name_of(kind) == name).ok_or_else(|| {
        let names: Vec<String> = Kind::ALL.iter().map(name_of).collect();
        err!(Invalid, "--faults {name:?}: there are {}", names.join(", "))
    })
}

fn parse_range(text: &str) -> Result<Range<u64>> {
    let parsed = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    parsed
        .filter(|range: &Range<u64>| !range.is_empty())
        .ok_or_else(|| err!(Invalid, "--seeds {text:?}: write it as 0..500"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_seeds() {
        assert_eq!(parse_range("0..500").unwrap(), 0..500);
        assert!(parse_range("5..5").is_err());
        assert!(parse_range("5").is_err());
    }

    #[test]
    fn seeded_bugs_have_names() {
        assert_eq!(parse_bug("stale-read").unwrap(), SeededBug::StaleRead);
        assert_eq!(parse_signal("renewable").unwrap(), SignalKind::Renewable);
        assert!(parse_signal("tides").unwrap_err().to_string().contains("falling-to-zero"));
        assert!(parse_bug("weed").unwrap_err().to_string().contains("skip-fsync"));
    }
}
