//! How a dataset keeps its cold data: the options, what follows from them here, and the setting in words.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use ebb_cli::Context;
use ebb_cli::output::counted;
use ebb_cli::units::Span;
use ebb_cli::values::one_of;
use ebb_types::{Domain, Encode, RaidCode, Redundancy, Result, bail};
use ebb_wire::pb;

#[derive(Debug, Args)]
pub struct EncodingArgs {
    /// When cold data are encoded [default: background].
    #[arg(long, value_parser = encodes())]
    pub encode: Option<Encode>,
    /// Age at which data are encoded in the background, such as 24h [default: 24h]. Until then copies serve as a cache.
    #[arg(long, value_name = "TIME")]
    pub delay: Option<Span>,
    /// Refuse a redundancy that does not survive the loss of a rack of this cluster.
    #[arg(long, value_name = "DOMAIN")]
    pub survive: Option<SurviveArg>,
    /// What the members of a RAID set lie apart by [default: host]. With `volume` they lie on the volumes of one localized storage
    /// node. Then encoding and the repair of a disk need no network, and the data are lost with the node.
    #[arg(long, requires = "redundancy", value_parser = domains())]
    pub domain: Option<Domain>,
    /// Accept what `--domain volume` means: one node may take data with it.
    #[arg(long, value_name = "LOSS")]
    pub accept: Option<AcceptArg>,
}

impl EncodingArgs {
    /// A redundancy by its domain; `usual`: the one without the option.
    pub fn by_domain(&self, redundancy: Redundancy, usual: Domain) -> RaidCode {
        match redundancy {
            Redundancy::Copies => redundancy.to_raw(),
            Redundancy::Raid(code) => RaidCode { domain: self.domain.unwrap_or(usual), ..code },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SurviveArg {
    /// All nodes of one rack.
    Rack,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AcceptArg {
    /// Data of one localized storage node.
    NodeLoss,
}

fn domains() -> impl TypedValueParser<Value = Domain> {
    one_of(Domain::ALL.map(Domain::name))
}

fn encodes() -> impl TypedValueParser<Value = Encode> {
    one_of(Encode::ALL.map(Encode::name))
}

/// The delay in milliseconds.
pub fn delay_ms(delay: Span) -> Result<u64> {
    match u64::try_from(delay.0.as_millis()) {
        Ok(ms) if ms > 0 => Ok(ms),
        _ => bail!(Invalid, "--delay: at least 1ms; `--encode immediate` has none"),
    }
}

/// What follows from a redundancy here, and is better known before data are written.
pub fn warn_of_redundancy(context: &Context, client: &ebb_client::Client, dataset: &pb::Dataset) {
    let Some(code) = dataset.redundancy().code() else { return };
    if code.domain == Domain::Volume {
        context.output.say(&format!(
            "cold data are kept as {code} on the volumes of one node: {:.2} bytes for each byte, any {} of a node may be lost. The loss of \
             the node loses them; a first overwrite of encoded data copies a whole metablock",
            code.stored_per_user_byte(),
            counted(u64::from(code.tolerates()), "disk")
        ));
        return;
    }
    let hosts = client.nodes().into_iter().map(|node| node.host).collect::<BTreeSet<_>>().len();
    let least = code.least_nodes_to_heal() as usize;
    if hosts < least {
        context.output.warn(&format!(
            "warning: {code} needs {least} hosts to make again what a lost one had, and there are {hosts}: until one more is there, a \
             lost node's data are decoded at each read"
        ));
    }
    context.output.say(&format!(
        "cold data are kept as {code}: {:.2} bytes for each byte, any {} may be lost; a first overwrite of encoded data copies a whole \
         metablock",
        code.stored_per_user_byte(),
        counted(u64::from(code.tolerates()), "node")
    ));
}

/// How cold data are kept, in words.
pub fn cold(dataset: &pb::Dataset) -> String {
    let encode = Encode::from_raw(dataset.encode).unwrap_or_default();
    let Redundancy::Raid(code) = dataset.redundancy() else { return "cold data stay in copies".to_owned() };
    let raid = match code.domain {
        Domain::Host => code.to_string(),
        Domain::Volume => format!("{code} on the volumes of one node"),
    };
    match (raid, encode) {
        (raid, Encode::Background) if dataset.delay_ms > 0 => {
            let delay = humantime::format_duration(Duration::from_millis(dataset.delay_ms));
            format!("cold data as {raid} after {delay}")
        }
        (raid, Encode::Background) => format!("cold data as {raid} after a day"),
        (raid, Encode::Immediate) => format!("data as {raid} as soon as they are written"),
        (raid, Encode::Off) => format!("nothing more is encoded as {raid}"),
    }
}
