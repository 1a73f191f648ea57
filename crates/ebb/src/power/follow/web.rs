//! Options of sources that are polled over HTTP.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ebb_cli::units::Span;
use ebb_types::Result;
use ebb_wire::pb;

use super::absolute;

/// Time between two polls of a carbon service, which changes every half hour or less often.
const CARBON_EVERY: Duration = Duration::from_secs(300);
const CARBON_KEEP: Duration = Duration::from_secs(3_600);
/// Time between two polls of a grid operator, whose limit may come at once.
const OPENADR_EVERY: Duration = Duration::from_secs(30);
const OPENADR_KEEP: Duration = Duration::from_secs(600);

#[derive(Debug, Args)]
pub(super) struct PollArgs {
    /// Time between two polls of the service [default: 5min with --carbon, 30s with --openadr].
    #[arg(long, value_name = "TIME", requires = "polled")]
    poll: Option<Span>,
    /// Time for which an answer counts [default: 1h with --carbon, 10min with --openadr].
    #[arg(long, value_name = "TIME", requires = "polled")]
    keep: Option<Span>,
    /// File with the certificate authorities to trust, in PEM [default: those of the power manager's machine].
    #[arg(long, value_name = "FILE", requires = "polled")]
    ca_file: Option<PathBuf>,
}

impl PollArgs {
    fn service(&self, url: &str, every: Duration, keep: Duration) -> Result<pb::Polled> {
        let ms = |given: Option<Span>, usual: Duration| {
            u64::try_from(given.map_or(usual, |span| span.0).as_millis()).unwrap_or(u64::MAX)
        };
        let ca_file = path(self.ca_file.as_ref())?;
        Ok(pb::Polled { url: url.to_owned(), ca_file, every_ms: ms(self.poll, every), keep_ms: ms(self.keep, keep) })
    }
}

/// An absolute path; empty without one.
fn path(file: Option<&PathBuf>) -> Result<String> {
    file.map_or_else(|| Ok(String::new()), |file| absolute(file))
}

#[derive(Debug, Args)]
pub(super) struct CarbonArgs {
    /// Carbon service with the intensity of the grid in g/kWh, such as
    /// <https://api.carbonintensity.org.uk/intensity>. Needs --grams-per-hour.
    #[arg(long, value_name = "URL", groups = ["polled", "rated"], requires = "grams_per_hour", conflicts_with = "openadr")]
    carbon: Option<String>,
    /// JSON pointers to the intensity in the answer; the first one that is not null counts [default: those of the UK
    /// Carbon Intensity API and of Electricity Maps].
    #[arg(long, value_name = "POINTER", requires = "carbon", value_delimiter = ',')]
    value: Vec<String>,
    /// JSON pointers to the time stamp of the intensity [default: as with --value].
    #[arg(long, value_name = "POINTER", requires = "carbon", value_delimiter = ',')]
    stamp: Vec<String>,
    /// Accept answers without a time stamp.
    #[arg(long, requires = "carbon", conflicts_with = "stamp")]
    no_stamp: bool,
    /// File with the token of the service.
    #[arg(long, value_name = "FILE", requires = "carbon")]
    token_file: Option<PathBuf>,
    /// Header that has the token, such as `auth-token` [default: Authorization, as a bearer].
    #[arg(long, value_name = "NAME", requires = "token_file")]
    token_header: Option<String>,
}

impl CarbonArgs {
    /// The source; none if no service is named.
    pub fn source(&self, poll: &PollArgs, grams_per_hour: Option<f64>) -> Result<Option<pb::CarbonSource>> {
        let Some(url) = &self.carbon else { return Ok(None) };
        Ok(Some(pb::CarbonSource {
            service: Some(poll.service(url, CARBON_EVERY, CARBON_KEEP)?),
            grams_per_hour: grams_per_hour.unwrap_or_default(),
            values: self.value.clone(),
            stamps: self.stamp.clone(),
            unstamped: self.no_stamp,
            token_file: path(self.token_file.as_ref())?,
            token_header: self.token_header.clone().unwrap_or_default(),
        }))
    }
}

#[derive(Debug, Args)]
pub(super) struct OpenAdrArgs {
    /// Server of OpenADR 3 events (VTN), by the base address of its API, such as
    /// <https://vtn.example.org/openadr3/3.1.0>.
    #[arg(long, value_name = "URL", groups = ["polled", "priced", "rated"])]
    openadr: Option<String>,
    /// Program whose events count [default: all programs].
    #[arg(long, value_name = "ID", requires = "openadr")]
    program: Option<String>,
    /// Target that this cluster is one of; can be given several times [default: the server chooses by the client].
    #[arg(long, value_name = "TARGET", requires = "openadr")]
    target: Vec<String>,
    /// OAuth 2 client id; without it no token is asked for.
    #[arg(long, value_name = "ID", requires_all = ["openadr", "client_secret_file"])]
    client_id: Option<String>,
    /// File with the secret of the client.
    #[arg(long, value_name = "FILE", requires = "client_id")]
    client_secret_file: Option<PathBuf>,
    /// Address that gives tokens [default: /auth/token of the server].
    #[arg(long, value_name = "URL", requires = "client_id")]
    token_url: Option<String>,
    /// OAuth 2 scope.
    #[arg(long, requires = "client_id")]
    scope: Option<String>,
    /// Supply in watts without an event [default: all that the cluster can draw].
    #[arg(long, value_name = "WATTS", requires = "openadr")]
    normal_watts: Option<f64>,
    /// Fractions of the normal supply at the levels 0, 1, 2 and 3 of SIMPLE events.
    #[arg(
        long,
        value_name = "FRACTIONS",
        requires = "openadr",
        value_delimiter = ',',
        default_value = "1,0.75,0.5,0.25"
    )]
    levels: Vec<f64>,
}

impl OpenAdrArgs {
    /// The source; none if no server is named.
    pub fn source(
        &self,
        poll: &PollArgs,
        money_per_hour: Option<f64>,
        grams_per_hour: Option<f64>,
    ) -> Result<Option<pb::OpenAdrSource>> {
        let Some(url) = &self.openadr else { return Ok(None) };
        let text = |given: &Option<String>| given.clone().unwrap_or_default();
        Ok(Some(pb::OpenAdrSource {
            service: Some(poll.service(url, OPENADR_EVERY, OPENADR_KEEP)?),
            program: text(&self.program),
            targets: self.target.clone(),
            client_id: text(&self.client_id),
            client_secret_file: path(self.client_secret_file.as_ref())?,
            token_url: text(&self.token_url),
            scope: text(&self.scope),
            normal_watts: self.normal_watts,
            level_shares: self.levels.clone(),
            money_per_hour,
            grams_per_hour,
        }))
    }
}
