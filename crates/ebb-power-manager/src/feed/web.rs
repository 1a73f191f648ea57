//! Sources that are polled over HTTP, as settings keep them.

use std::path::PathBuf;
use std::time::Duration;

use ebb_power::signal::Budget;
use ebb_power::signal::carbon::Pointers;
use ebb_power::signal::openadr::{LEVELS, Rule};
use ebb_power_drivers::carbon::{CarbonAccess, CarbonService};
use ebb_power_drivers::openadr::{Client, Vtn, VtnAccess};
use ebb_runtime::Runtime;
use ebb_types::{Result, bail, err};
use ebb_wire::pb;
use serde::{Deserialize, Serialize};

use super::poller::Poller;
use super::reader::{CarbonReader, OpenAdrReader, Reader};

/// Longest time for an answer.
const CALL: Duration = Duration::from_secs(10);
/// Longest time for all answers of one poll. The command line waits longer.
const POLL: Duration = Duration::from_secs(20);
/// Times between two polls, in milliseconds.
const EVERY_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;
/// Longest time for which an answer may count, in milliseconds: a week.
const KEEP_MS_MAX: u64 = 7 * 86_400_000;
/// Most targets, and the longest text of an operator.
const TARGETS_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 4_096;

/// A service that is polled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Polled {
    /// Its address.
    pub url: String,
    /// Roots of trust in PEM; none: the machine's.
    pub ca_file: Option<PathBuf>,
    /// Time between two polls.
    pub every_ms: u64,
    /// How long an answer counts.
    pub keep_ms: u64,
}

/// A text of a message; none if it is empty.
fn given(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl Polled {
    fn from_call(call: Option<pb::Polled>) -> Result<Self> {
        let call = call.ok_or_else(|| err!(Invalid, "no service is named"))?;
        let ca_file = given(call.ca_file).map(PathBuf::from);
        Ok(Self { url: call.url, ca_file, every_ms: call.every_ms, keep_ms: call.keep_ms })
    }

    fn check(&self) -> Result<()> {
        if !EVERY_MS.contains(&self.every_ms) {
            bail!(Invalid, "a poll every {} ms: between {} ms and a day", self.every_ms, EVERY_MS.start());
        }
        if !(self.every_ms..=KEEP_MS_MAX).contains(&self.keep_ms) {
            bail!(
                Invalid,
                "answers that count for {} ms: at least the time between polls, at most a week",
                self.keep_ms
            );
        }
        Ok(())
    }

    /// Without the query, which may contain a key.
    fn name(&self) -> &str {
        self.url.split_once('?').map_or(&self.url, |(url, _)| url)
    }

    const fn every(&self) -> Duration {
        Duration::from_millis(self.every_ms)
    }

    const fn keep(&self) -> Duration {
        Duration::from_millis(self.keep_ms)
    }
}

/// A carbon service and a budget.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarbonWeb {
    service: Polled,
    grams_per_hour: f64,
    values: Vec<String>,
    stamps: Vec<String>,
    token_file: Option<PathBuf>,
    token_header: Option<String>,
}

impl CarbonWeb {
    pub(super) fn from_call(call: pb::CarbonSource) -> Result<Self> {
        let known = Pointers::default();
        let or = |given: Vec<String>, known| if given.is_empty() { known } else { given };
        Ok(Self {
            service: Polled::from_call(call.service)?,
            grams_per_hour: call.grams_per_hour,
            values: or(call.values, known.values),
            stamps: if call.unstamped { Vec::new() } else { or(call.stamps, known.stamps) },
            token_file: given(call.token_file).map(PathBuf::from),
            token_header: given(call.token_header),
        })
    }

    pub(super) fn name(&self) -> String {
        format!("{}, {} g CO2 an hour", self.service.name(), self.grams_per_hour)
    }

    pub(super) fn open(&self, runtime: &Runtime) -> Result<Reader> {
        self.service.check()?;
        let access = CarbonAccess {
            url: self.service.url.clone(),
            ca_file: self.service.ca_file.clone(),
            token_file: self.token_file.clone(),
            token_header: self.token_header.clone(),
            pointers: Pointers { values: self.values.clone(), stamps: self.stamps.clone() },
            age_max: self.service.keep(),
            deadline: CALL,
        };
        let service = CarbonService::new(runtime.clone(), access)?;
        let poller = Poller::new(service, self.service.every(), self.service.keep());
        // The cluster's greatest power is not known here. It is applied to each reading.
        let budget = Budget::new(self.grams_per_hour, f64::MAX)?;
        Ok(Reader::Carbon(Box::new(CarbonReader { poller, budget })))
    }
}

/// A server of events, and what they mean.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenAdrWeb {
    service: Polled,
    program: Option<String>,
    targets: Vec<String>,
    client: Option<OAuthClient>,
    normal_watts: Option<f64>,
    level_shares: Vec<f64>,
    money_per_hour: Option<f64>,
    grams_per_hour: Option<f64>,
}

/// Who asks for events. Its secret is in a file of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OAuthClient {
    id: String,
    secret_file: PathBuf,
    token_url: Option<String>,
    scope: Option<String>,
}

impl OpenAdrWeb {
    pub(super) fn from_call(call: pb::OpenAdrSource) -> Result<Self> {
        let client = match (given(call.client_id), given(call.client_secret_file)) {
            (Some(id), Some(file)) => Some(OAuthClient {
                id,
                secret_file: file.into(),
                token_url: given(call.token_url),
                scope: given(call.scope),
            }),
            (None, None) => None,
            _ => bail!(Invalid, "the id of a client and the file of its secret go together"),
        };
        Ok(Self {
            service: Polled::from_call(call.service)?,
            program: given(call.program),
            targets: call.targets,
            client,
            normal_watts: call.normal_watts,
            level_shares: call.level_shares,
            money_per_hour: call.money_per_hour,
            grams_per_hour: call.grams_per_hour,
        })
    }

    pub(super) fn name(&self) -> String {
        match &self.program {
            Some(program) => format!("OpenADR program {program} of {}", self.service.name()),
            None => format!("OpenADR events of {}", self.service.name()),
        }
    }

    fn rule(&self) -> Result<Rule> {
        let Ok(level_shares) = <[f64; LEVELS]>::try_from(self.level_shares.as_slice()) else {
            bail!(Invalid, "{} shares of levels: {LEVELS} are needed, for the levels 0 to 3", self.level_shares.len());
        };
        let rule = Rule {
            normal_watts: self.normal_watts,
            level_shares,
            money_per_hour: self.money_per_hour,
            grams_per_hour: self.grams_per_hour,
        };
        rule.check()?;
        Ok(rule)
    }

    pub(super) fn open(&self, runtime: &Runtime) -> Result<Reader> {
        self.service.check()?;
        let rule = self.rule()?;
        let is_long = |text: &String| text.len() > TEXT_BYTES_MAX;
        if self.targets.len() > TARGETS_MAX || self.targets.iter().chain(&self.program).any(is_long) {
            bail!(Invalid, "at most {TARGETS_MAX} targets, and no name of more than {TEXT_BYTES_MAX} bytes");
        }
        let client = self.client.as_ref().map(|client| Client {
            id: client.id.clone(),
            secret_file: client.secret_file.clone(),
            token_url: client.token_url.clone(),
            scope: client.scope.clone(),
        });
        let access = VtnAccess {
            url: self.service.url.clone(),
            ca_file: self.service.ca_file.clone(),
            program: self.program.clone(),
            targets: self.targets.clone(),
            client,
            deadline: CALL,
            poll_deadline: POLL,
        };
        let vtn = Vtn::new(runtime.clone(), access)?;
        let poller = Poller::new(vtn, self.service.every(), self.service.keep());
        Ok(Reader::OpenAdr(Box::new(OpenAdrReader { poller, rule })))
    }
}
