//! Sources from an operator's call to their readings.

use std::time::Duration;

use ebb_power::Supply;
use ebb_power::signal::ups::UpsReading;

use super::*;

fn played(csv: &str) -> pb::TraceSource {
    pb::TraceSource { name: "t.csv".into(), csv: csv.into(), compress: 60.0, ..Default::default() }
}

fn feed(source: SourceMessage) -> Feed {
    Feed::from_call(pb::FollowSource { source: Some(source), ..Default::default() }, 0).unwrap()
}

fn refused(source: SourceMessage) -> String {
    let runtime = Runtime::real();
    let opened = Feed::from_call(pb::FollowSource { source: Some(source), ..Default::default() }, 0)
        .and_then(|feed| feed.open(&runtime));
    opened.unwrap_err().to_string()
}

async fn read(source: SourceMessage, most_watts: f64) -> Supply {
    let runtime = Runtime::real();
    let mut reader = feed(source).open(&runtime).unwrap();
    reader.read(&runtime, most_watts).await.unwrap().unwrap().supply
}

#[tokio::test]
async fn sources_say_what_they_are_said_to_say() {
    assert_eq!(read(SourceMessage::Trace(played("seconds,watts\n0,1000\n")), 265.0).await, Supply::Watts(1000.0));
    let prices = pb::TraceSource { per_hour: Some(1.0), ..played("seconds,price\n0,4.5\n") };
    let Supply::Watts(bought) = read(SourceMessage::Trace(prices.clone()), 265.0).await else {
        panic!("money buys watts")
    };
    assert_eq!(bought.round(), 222.0);
    // More than can be drawn is not bought.
    assert_eq!(read(SourceMessage::Trace(prices), 100.0).await, Supply::Watts(100.0));
    let carbon = pb::TraceSource { grams_per_hour: Some(50.0), ..played("seconds,carbon\n0,250\n") };
    assert_eq!(read(SourceMessage::Trace(carbon.clone()), 265.0).await, Supply::Watts(200.0));
    assert_eq!(read(SourceMessage::Trace(carbon), 100.0).await, Supply::Watts(100.0));
    let others = pb::TraceSource { capacity_watts: Some(500.0), ..played("seconds,watts\n0,380\n") };
    assert_eq!(read(SourceMessage::Trace(others), 265.0).await, Supply::Watts(120.0));
    let steady = pb::OscillatingSource { level: 0.0, period_ms: 1_000 };
    assert_eq!(read(SourceMessage::Oscillating(steady), 265.0).await, Supply::Fraction(0.45));
}

#[test]
fn sources_that_cannot_be_are_refused() {
    assert!(refused(SourceMessage::Trace(played("seconds,price\n0,4\n"))).contains("t.csv"));
    assert!(refused(SourceMessage::Trace(played("seconds,watts\n0,-4\n"))).contains("line 2"));
    let both = pb::TraceSource { per_hour: Some(1.0), capacity_watts: Some(1.0), ..played("") };
    assert!(refused(SourceMessage::Trace(both)).contains("not both"));
    let both = pb::TraceSource { per_hour: Some(1.0), grams_per_hour: Some(1.0), ..played("") };
    assert!(refused(SourceMessage::Trace(both)).contains("not both"));
    let carbon = pb::TraceSource { grams_per_hour: Some(1.0), ..played("seconds,price\n0,4\n") };
    assert!(refused(SourceMessage::Trace(carbon)).contains("seconds,carbon"));
    assert!(refused(SourceMessage::Oscillating(pb::OscillatingSource { level: 2.0, period_ms: 5 })).contains("200 %"));
    let ups = pb::UpsSource { ups: "rack 1".into(), address: "h:1".into(), bridge_s: 60.0, ..Default::default() };
    assert!(refused(SourceMessage::Ups(ups.clone())).contains("rack 1"));
    let ups = pb::UpsSource { ups: "rack1".into(), bridge_s: f64::NAN, ..ups };
    assert!(refused(SourceMessage::Ups(ups)).contains("bridged"));
}

/// The time on battery goes on from one reading to the next, and begins anew after the mains were back.
#[tokio::test]
async fn a_blackout_is_as_long_as_it_is() {
    let runtime = Runtime::real();
    let source = pb::UpsSource {
        ups: "rack1".into(),
        address: "127.0.0.1:1".into(),
        bridge_s: 1_000.0,
        capacity_joules: Some(100_000.0),
        ..Default::default()
    };
    let Reader::Ups(mut reader) = feed(SourceMessage::Ups(source)).open(&runtime).unwrap() else { panic!("a UPS") };
    let reading = |on_battery| UpsReading { on_battery, charge: Some(0.9), ..UpsReading::default() };
    let (first, second) = (runtime.now(), Duration::from_secs(100));
    assert_eq!(reader.on_reading(&reading(true), first).unwrap(), Supply::Watts(90.0));
    assert_eq!(reader.on_reading(&reading(true), first.after(second)).unwrap(), Supply::Watts(100.0));
    assert_eq!(reader.on_reading(&reading(false), first.after(second)).unwrap(), Supply::Watts(f64::MAX));
    assert_eq!(reader.on_reading(&reading(true), first.after(second * 2)).unwrap(), Supply::Watts(90.0));
}

/// A server on loopback that gives these bodies one after the other, and the last one over and over.
async fn serve(bodies: Vec<String>) -> (Runtime, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = Runtime::real();
    let listener = runtime.listen("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api", listener.address());
    runtime.spawn("server", async move {
        let mut bodies = bodies.into_iter().peekable();
        loop {
            let mut stream = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read.read_u8().await else { break };
                request.push(byte);
            }
            let body = bodies.peek().cloned().unwrap();
            if bodies.len() > 1 {
                bodies.next();
            }
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            // The client may have hung up.
            let _ = stream.write.write_all(answer.as_bytes()).await;
            let _ = stream.write.flush().await;
        }
    });
    (runtime, url)
}

fn polled(url: &str, keep_ms: u64) -> Option<pb::Polled> {
    Some(pb::Polled { url: url.to_owned(), every_ms: 100, keep_ms, ..Default::default() })
}

fn carbon(url: &str, keep_ms: u64) -> SourceMessage {
    let service = polled(url, keep_ms);
    SourceMessage::Carbon(pb::CarbonSource { service, grams_per_hour: 50.0, unstamped: true, ..Default::default() })
}

fn openadr(url: &str, keep_ms: u64) -> pb::OpenAdrSource {
    pb::OpenAdrSource { service: polled(url, keep_ms), level_shares: vec![1.0, 0.75, 0.5, 0.25], ..Default::default() }
}

/// Reads until a reading is as wanted.
async fn read_until(runtime: &Runtime, reader: &mut Reader, is: impl Fn(Option<Supply>) -> bool) {
    let reading = async {
        while !is(reader.read(runtime, 265.0).await?.map(|reading| reading.supply)) {
            runtime.sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    runtime.timeout(Duration::from_secs(60), "the wanted reading", reading).await.unwrap();
}

/// Goal: an answer counts while it is kept, garbage and silence end it, and a good answer brings it back.
#[tokio::test]
async fn a_polled_source_speaks_falls_silent_and_comes_back() {
    let good = |grams: u32| format!(r#"{{"carbonIntensity": {grams}}}"#);
    let mut bodies = vec![good(250)];
    bodies.extend(vec!["garbage".to_owned(); 3]);
    bodies.push(r#"{"carbonIntensity": -3}"#.to_owned());
    bodies.push(good(1));
    let (runtime, url) = serve(bodies).await;
    let mut reader = feed(carbon(&url, 200)).open(&runtime).unwrap();
    reader.try_once(&runtime).await.unwrap();
    read_until(&runtime, &mut reader, |supply| supply == Some(Supply::Watts(200.0))).await;
    read_until(&runtime, &mut reader, |supply| supply.is_none()).await;
    // A cleaner grid gives no more than the cluster can draw.
    read_until(&runtime, &mut reader, |supply| supply == Some(Supply::Watts(265.0))).await;
}

#[tokio::test]
async fn a_server_that_gives_nothing_usable_is_an_error_for_the_operator() {
    let (runtime, url) = serve(vec!["garbage".to_owned()]).await;
    for source in [carbon(&url, 1_000), SourceMessage::Openadr(openadr(&url, 1_000))] {
        let mut reader = feed(source).open(&runtime).unwrap();
        let error = reader.try_once(&runtime).await.unwrap_err();
        assert!(error.to_string().contains("no JSON"), "{error}");
        assert!(reader.read(&runtime, 265.0).await.unwrap().is_none(), "nothing is made up");
    }
}

/// Goal: events give the supply and its forecast; an event about power that cannot be read leaves the earlier ones.
#[tokio::test]
async fn events_are_followed_and_looked_up_ahead() {
    let event = |values: &str| {
        format!(
            r#"[{{"createdDateTime": "2020-01-01T00:00:00Z", "intervalPeriod": {{"start": "0001-01-01", "duration": "P9999Y"}},
            "intervals": [{{"payloads": [{{"type": "SIMPLE", "values": {values}}}]}}]}}]"#
        )
    };
    let (runtime, url) = serve(vec![event("[2]"), event("[9]"), "[]".to_owned()]).await;
    let mut reader = feed(SourceMessage::Openadr(openadr(&url, 60_000))).open(&runtime).unwrap();
    reader.try_once(&runtime).await.unwrap();
    assert_eq!(reader.read(&runtime, 265.0).await.unwrap().unwrap().supply, Supply::Watts(132.5));
    let hardware = ebb_power::Hardware::uniform(40.0, 9, ebb_power::NodePower::REFERENCE).unwrap();
    let ahead = reader.look_ahead(0, Duration::from_secs(3_600), &hardware, 2_650.0).unwrap();
    assert_eq!(ahead.watts_per_step(Duration::from_secs(60), 2), [265.0, 265.0], "in 1970 nothing was said");
    let now_ms = ebb_power::wall_ms(runtime.wall());
    let ahead = reader.look_ahead(now_ms, Duration::from_secs(3_600), &hardware, 2_650.0).unwrap();
    assert_eq!(ahead.watts_per_step(Duration::from_secs(60), 2), [132.5, 132.5]);
    read_until(&runtime, &mut reader, |supply| supply == Some(Supply::Watts(265.0))).await;
}

#[test]
fn polled_sources_that_cannot_be_are_refused() {
    let url = "http://127.0.0.1:1/";
    assert!(refused(carbon("ftp://h/", 1_000)).contains("https://"));
    assert!(refused(carbon(url, 50)).contains("at least the time between polls"));
    let often =
        pb::OpenAdrSource { service: Some(pb::Polled { every_ms: 1, ..polled(url, 100).unwrap() }), ..openadr(url, 1) };
    assert!(refused(SourceMessage::Openadr(often)).contains("a poll every 1 ms"));
    let levels = pb::OpenAdrSource { level_shares: vec![1.0], ..openadr(url, 1_000) };
    assert!(refused(SourceMessage::Openadr(levels)).contains("levels 0 to 3"));
    let half = pb::OpenAdrSource { client_id: "ven".into(), ..openadr(url, 1_000) };
    assert!(refused(SourceMessage::Openadr(half)).contains("go together"));
    let nothing = pb::CarbonSource { service: polled(url, 1_000), ..Default::default() };
    assert!(refused(SourceMessage::Carbon(nothing)).contains("buys nothing"));
    assert_eq!(feed(carbon("https://h/a?key=secret", 1_000)).name(), "https://h/a, 50 g CO2 an hour");
}
