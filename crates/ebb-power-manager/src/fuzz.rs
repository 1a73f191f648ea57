//! The decoders of this crate as functions of bytes alone, with samples, for `ebb-fuzz`.

use std::time::Duration;

use ebb_power::PolicyKind;
use ebb_power::account::Account;
use ebb_runtime::Runtime;
use ebb_types::NodeId;
use ebb_wire::{Message, pb};
use pb::follow_source::Source;

use crate::books::{self, Kept};
use crate::feed::{Feed, Reader};
use crate::settings::{Override, Settings};

/// Times since a signal began that are looked at, in seconds.
const LOOKS_S: [u64; 5] = [0, 1, 299, 86_400, 1 << 40];

/// `settings.json`, read as at a start.
#[must_use]
pub fn settings(bytes: &[u8]) -> bool {
    let Ok(settings) = Settings::decode(bytes) else { return false };
    let (node, full_watts) = (settings.node(), settings.active_watts * 6.0);
    let _ = (settings.core(), settings.trust(full_watts).check(), settings.battery(full_watts), node);
    if let Some(feed) = &settings.feed {
        look_at(feed);
    }
    true
}

/// `FollowSource`.
#[must_use]
pub fn follow(bytes: &[u8]) -> bool {
    let feed = pb::FollowSource::decode(bytes).ok().and_then(|call| Feed::from_call(call, 7).ok());
    feed.is_some_and(|feed| look_at(&feed))
}

/// Whether it can be followed.
fn look_at(feed: &Feed) -> bool {
    let _ = feed.name();
    let Ok(reader) = feed.open(&Runtime::real()) else { return false };
    if let Reader::Signal { signal, .. } = reader {
        for seconds in LOOKS_S {
            let _ = (signal.at(Duration::from_secs(seconds)), signal.holds_for(Duration::from_secs(seconds)));
        }
    }
    true
}

fn sources() -> Vec<Source> {
    let trace = |csv: &str, per_hour, capacity_watts| {
        let (name, csv) = ("t.csv".to_owned(), csv.to_owned());
        Source::Trace(pb::TraceSource { name, csv, compress: 60.0, per_hour, capacity_watts, grams_per_hour: None })
    };
    let service = |url: &str| {
        Some(pb::Polled { url: url.to_owned(), ca_file: "/ca.pem".to_owned(), every_ms: 300_000, keep_ms: 3_600_000 })
    };
    vec![
        trace("seconds,watts\n0,100\n60,50\n120,80\n", None, None),
        trace("seconds,price\n0,0.4\n3600,0.2\n", Some(3.0), None),
        trace("seconds,watts\n0,100\n60,50\n", None, Some(300.0)),
        Source::Oscillating(pb::OscillatingSource { level: 0.5, period_ms: 60_000 }),
        Source::Trace(pb::TraceSource {
            name: "c.csv".to_owned(),
            csv: "seconds,carbon\n0,250\n1800,90\n".to_owned(),
            compress: 1.0,
            grams_per_hour: Some(40.0),
            ..Default::default()
        }),
        Source::Carbon(pb::CarbonSource {
            service: service("https://carbon.example.org/v3/latest?zone=DE"),
            grams_per_hour: 40.0,
            values: vec!["/carbonIntensity".to_owned()],
            token_file: "/token".to_owned(),
            token_header: "auth-token".to_owned(),
            ..Default::default()
        }),
        Source::Openadr(pb::OpenAdrSource {
            service: service("http://127.0.0.1:8081/openadr3/3.1.0"),
            program: "44".to_owned(),
            targets: vec!["group-1".to_owned()],
            client_id: "ven".to_owned(),
            client_secret_file: "/secret".to_owned(),
            level_shares: vec![1.0, 0.75, 0.5, 0.25],
            money_per_hour: Some(1.0),
            ..Default::default()
        }),
        Source::Ups(pb::UpsSource {
            ups: "ups".to_owned(),
            address: "127.0.0.1:3493".to_owned(),
            bridge_s: 600.0,
            reserve: 0.1,
            ..Default::default()
        }),
    ]
}

/// Calls.
#[must_use]
pub fn calls() -> Vec<Vec<u8>> {
    sources()
        .into_iter()
        .map(|source| pb::FollowSource { source: Some(source), forecast: "signal".to_owned() }.encode_to_vec())
        .collect()
}

/// Settings: fresh ones, and one for each kind of source.
#[must_use]
pub fn all_settings() -> Vec<Vec<u8>> {
    let mut settings = Settings::new(PolicyKind::Tide, Duration::from_secs(2));
    let mut all = vec![serde_json::to_vec_pretty(&settings)];
    settings.forced = Some(Override::Fraction(0.5));
    settings.fallback_watts = Some(100.0);
    settings.forecast = "/tomorrow.csv".to_owned();
    for source in sources() {
        settings.feed = Feed::from_call(pb::FollowSource { source: Some(source), ..Default::default() }, 7).ok();
        all.push(serde_json::to_vec_pretty(&settings));
    }
    all.into_iter().map(|json| json.expect("settings are JSON")).collect()
}

/// `account.json`.
#[must_use]
pub fn account(bytes: &[u8]) -> bool {
    let Ok(kept) = books::decode(bytes) else { return false };
    let again = books::encode(&kept).expect("an account is JSON");
    assert_eq!(books::decode(&again).expect("a written account is read"), kept);
    true
}

/// Accounts.
#[must_use]
pub fn accounts() -> Vec<Vec<u8>> {
    let mut account = Account { joules: 12.5, served_bytes: 1 << 30, elapsed_ms: 7, ..Account::default() };
    let node = account.nodes.entry(NodeId::new(3)).or_default();
    (node.joules, node.starts, node.asleep_ms) = (0.1, 4, 9);
    let all = [Kept::default(), Kept { account, charge_joules: Some(1e4) }];
    all.map(|kept| books::encode(&kept).expect("an account is JSON")).to_vec()
}
