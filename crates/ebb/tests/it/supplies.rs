//! Sources of power beside an operator and a trace: prices, other loads, carbon intensities, grid operators, a UPS. Real
//! processes follow them, and the status names them.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, wait_for};

/// What four nodes and the rest of the cluster draw at most.
const FULL_WATTS: f64 = 140.0;

fn up() -> Cluster {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "4", "--policy", "blink-circular", "--interval", "1s"]);
    wait_status(&cluster, "the first status", |_| true);
    cluster
}

fn wait_status(cluster: &Cluster, event: &str, is: impl Fn(&Value) -> bool) {
    wait_for(event, Duration::from_secs(30), || {
        let shown = cluster.ebb(&["power", "status", "--json"]);
        serde_json::from_str::<Value>(&shown.out).is_ok_and(|status| is(&status))
    });
}

/// The budget is so many watts, and nodes sleep so that no more is drawn.
fn wait_budget(cluster: &Cluster, from: f64, to: f64, source: &str) {
    wait_status(cluster, &format!("a budget of {from} to {to} W by {source}"), |status| {
        let number = |key: &str| status[key].as_f64().unwrap();
        let is_named = status["source"].as_str().unwrap().contains(source);
        let is_kept = number("drawn_watts") <= number("budget_watts");
        is_named && is_kept && (from..=to).contains(&number("budget_watts"))
    });
}

/// A file beside the cluster; its path.
fn file(cluster: &Cluster, name: &str, text: &str) -> String {
    let path = cluster.path(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Goal: money buys watts, the price of the next half hour is in the forecast, and a new manager goes on with both.
#[test]
fn prices_are_followed_and_looked_up_ahead() {
    let cluster = up();
    let prices = file(&cluster, "prices.csv", "seconds,price\n0,5\n1800,1\n");
    cluster.ok(&["power", "follow", &prices, "--per-hour", "0.5", "--forecast", "signal"]);
    wait_budget(&cluster, 100.0, 100.0, "prices.csv, 0.5 an hour");
    let is_ahead = |status: &Value| {
        let watts = status["forecast_watts"].as_array().unwrap();
        status["forecast"] == "signal" && watts.len() == 60 && watts[0] == 100.0 && watts[45] == FULL_WATTS
    };
    wait_status(&cluster, "the forecast", is_ahead);
    cluster.kill(cluster.pid("power-manager", ""));
    cluster.ok(&["cluster", "up", "--nodes", "4"]);
    wait_budget(&cluster, 100.0, 100.0, "prices.csv");
    wait_status(&cluster, "the forecast of the new manager", is_ahead);
    // An operator's word is the forecast too.
    cluster.ok(&["power", "set", "--watts", "90"]);
    wait_status(&cluster, "the operator's forecast", |status| {
        status["forecast"].as_str().unwrap().contains("operator") && status["forecast_watts"][45] == 90.0
    });
    let watts = file(&cluster, "watts.csv", "seconds,watts\n0,100\n");
    let refused = cluster.ebb(&["power", "follow", &watts, "--per-hour", "0.5"]);
    assert!(refused.code == 2 && refused.err.contains("seconds,price"), "{}", refused.err);
}

#[test]
fn other_loads_leave_the_rest_of_a_capacity() {
    let cluster = up();
    let others = file(&cluster, "others.csv", "seconds,watts\n0,380\n");
    cluster.ok(&["power", "follow", &others, "--capacity", "470"]);
    wait_budget(&cluster, 90.0, 90.0, "470 W less");
    // More than the cluster can draw is left: it draws what it can.
    cluster.ok(&["power", "follow", &others, "--capacity", "5000"]);
    wait_budget(&cluster, FULL_WATTS, FULL_WATTS, "5000 W less");
    let tomorrow = file(&cluster, "tomorrow.csv", "unix_seconds,watts\n0,70\n4000000000,70\n");
    cluster.ok(&["power", "follow", &others, "--capacity", "470", "--forecast", &tomorrow]);
    wait_status(&cluster, "the predicted watts", |status| {
        status["forecast"] == tomorrow.as_str() && status["forecast_watts"][0] == 70.0
    });
    std::fs::write(&tomorrow, "unix_seconds,watts\n0,60\n4000000000,60\n").unwrap();
    wait_status(&cluster, "the new prediction", |status| status["forecast_watts"][0] == 60.0);
    let refused = cluster.ebb(&["power", "follow", &others, "--capacity", "470", "--forecast", "/nowhere.csv"]);
    assert!(refused.code != 0 && refused.err.contains("/nowhere.csv"), "{}", refused.err);
}

#[test]
fn a_carbon_budget_follows_the_grid() {
    let cluster = up();
    let dirty = file(&cluster, "grid.csv", "seconds,carbon\n0,400\n");
    cluster.ok(&["power", "follow", &dirty, "--grams-per-hour", "40"]);
    wait_budget(&cluster, 100.0, 100.0, "grid.csv, 40 g CO2 an hour");
    let clean = file(&cluster, "clean.csv", "seconds,carbon\n0,0\n");
    cluster.ok(&["power", "follow", &clean, "--grams-per-hour", "40"]);
    wait_budget(&cluster, FULL_WATTS, FULL_WATTS, "clean.csv");
    let prices = file(&cluster, "prices.csv", "seconds,price\n0,5\n");
    let refused = cluster.ebb(&["power", "follow", &prices, "--grams-per-hour", "40"]);
    assert!(refused.code == 2 && refused.err.contains("seconds,carbon"), "{}", refused.err);
    let nobody = ["power", "follow", "--carbon", "http://127.0.0.1:1/", "--grams-per-hour", "40"];
    let refused = cluster.ebb(&nobody);
    assert!(refused.code == 1 && refused.err.contains("127.0.0.1:1"), "{}", refused.err);
}

/// A server on loopback until the tests end: it answers a request by its first line, once all of
/// its lines are there.
fn serve(head_ends: HeadEnds, answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            if reader.read_line(&mut line).is_err() {
                continue;
            }
            let mut more = line.clone();
            // What is not read when the connection is closed resets it.
            while matches!(head_ends, HeadEnds::Empty) && !more.trim_end().is_empty() {
                more.clear();
                if reader.read_line(&mut more).is_err() {
                    break;
                }
            }
            answer(line.trim_end(), &mut stream);
        }
    });
    address
}

/// The line that ends a request.
#[derive(Clone, Copy)]
enum HeadEnds {
    /// The first one.
    First,
    /// The empty one.
    Empty,
}

/// Goal: an operator's limit is followed, a later one too, and a server that is away leaves the last word for a while.
#[test]
fn a_grid_operators_events_are_followed() {
    let cluster = up();
    let kilowatts: Arc<Mutex<Option<f64>>> = Arc::new(Mutex::new(Some(0.1)));
    let said = Arc::clone(&kilowatts);
    let address = serve(HeadEnds::Empty, move |line, stream| {
        let events = said.lock().unwrap().map(|kilowatts| {
            format!(
                r#"[{{"programID": "44", "createdDateTime": "2020-01-01T00:00:00Z",
                "intervalPeriod": {{"start": "0001-01-01", "duration": "P9999Y"}},
                "intervals": [{{"id": 0, "payloads": [{{"type": "IMPORT_CAPACITY_LIMIT", "values": [{kilowatts}]}}]}}]}}]"#
            )
        });
        let (status, body) = match (line.starts_with("GET /v/events?"), events) {
            (true, Some(events)) => ("200 OK", events),
            _ => ("500 Internal Server Error", String::new()),
        };
        let _ =
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    });
    let url = format!("http://{address}/v");
    cluster.ok(&["power", "follow", "--openadr", &url, "--program", "44", "--poll", "200ms", "--forecast", "signal"]);
    wait_budget(&cluster, 100.0, 100.0, "OpenADR program 44");
    wait_status(&cluster, "the forecast", |status| status["forecast_watts"][59] == 100.0);
    *kilowatts.lock().unwrap() = Some(0.08);
    wait_budget(&cluster, 80.0, 80.0, "OpenADR program 44");
    *kilowatts.lock().unwrap() = None;
    let refused = cluster.ebb(&["power", "follow", "--openadr", &url]);
    assert!(refused.code != 0 && refused.err.contains("500"), "{}", refused.err);
    wait_budget(&cluster, 80.0, 80.0, "OpenADR program 44");
}

/// Goal: on battery the charge is spread over the blackout, and nothing is left when it is low. Method: an upsd that
/// says what the test wants.
#[test]
fn a_ups_is_stretched_through_a_blackout() {
    let cluster = up();
    let variables = Arc::new(Mutex::new("VAR ups ups.status \"OL\"\n".to_owned()));
    let said = Arc::clone(&variables);
    let address = serve(HeadEnds::First, move |line, stream| {
        assert_eq!(line, "LIST VAR ups");
        let variables = said.lock().unwrap().clone();
        let _ = write!(stream, "BEGIN LIST VAR ups\n{variables}END LIST VAR ups\n");
    });
    let ups = format!("ups@{address}");
    let source = format!("UPS ups at {address}");
    cluster.ok(&["power", "follow", "--ups", &ups, "--bridge", "1h", "--ups-joules", "360000", "--reserve", "0.1"]);
    wait_budget(&cluster, FULL_WATTS, FULL_WATTS, &source);
    let say = |status: &str| {
        *variables.lock().unwrap() = format!("VAR ups ups.status \"{status}\"\nVAR ups battery.charge \"100\"\n");
    };
    say("OB DISCHRG");
    // 324 kJ for an hour, of which some seconds may be over.
    wait_budget(&cluster, 90.0, 92.0, &source);
    say("OB LB");
    // Everything that may sleep does. What is always drawn is more than nothing.
    wait_status(&cluster, "no power at all", |status| status["budget_watts"] == 0.0);
    say("OL CHRG");
    wait_budget(&cluster, FULL_WATTS, FULL_WATTS, &source);
}
