//! The planners on the command line: no cluster, plain answers, and refusals with the nearest possible value.

use serde_json::Value;

use crate::lab::Lab;

fn close(value: &Value, wanted: f64) -> bool {
    value.as_f64().is_some_and(|value| (value / wanted - 1.0).abs() < 0.02)
}

#[test]
fn gears_have_the_recovery_groups_of_table_1() {
    let sizes = "1,5,10,20,50,100";
    let rows = Lab::new().json(&["plan", "gears", "--primaries", "100", "--gear-size", sizes]);
    for (row, (group, gears)) in
        rows.as_array().unwrap().iter().zip([(174, 173), (37, 36), (20, 19), (11, 10), (6, 5), (4, 3)])
    {
        assert!(row["recovery_group_size"].as_i64().unwrap().abs_diff(group) <= 1, "{row}");
        assert_eq!(row["gear_groups"], gears, "{row}");
    }
    assert_eq!(rows.as_array().unwrap().len(), 6);
}

#[test]
fn equal_work_spreads_over_111_nodes() {
    let shape = ["--nodes", "111", "--primaries", "5", "--replicas", "4", "--blocks", "10000"];
    let found = Lab::new().json(&[&["plan", "layout", "--layout", "equal-work"], &shape[..]].concat());
    assert_eq!((&found["spread"], &found["min_active"]), (&111.into(), &5.into()));
    let stored: Vec<u64> =
        found["blocks_per_node"].as_array().unwrap().iter().map(|held| held.as_u64().unwrap()).collect();
    assert_eq!((stored.len(), stored.iter().sum::<u64>(), stored[0]), (111, 40_000, 2_000));
    assert!(stored.is_sorted_by(|one, next| one >= next));
}

#[test]
fn random_placement_loses_an_eighth_with_half_the_nodes() {
    let found = Lab::new().json(&["plan", "power", "--nodes", "1000", "--replicas", "3", "--inactive", "500"]);
    assert!(close(&found["inaccessible_fraction"], 0.1246), "{}", found["inaccessible_fraction"]);
}

#[test]
fn ten_petabytes_lose_87_bytes_or_3300() {
    let rows = Lab::new().json(&["plan", "raid", "--user-bytes", "10PB", "--detection", "10min"]);
    let schemes: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["scheme"].as_str().unwrap()).collect();
    assert_eq!(schemes, ["3 copies", "8+2"]);
    assert!(close(&rows[0]["bytes_lost_per_year"], 87.3) && close(&rows[1]["bytes_lost_per_year"], 3_318.0), "{rows}");
}

#[test]
fn answers_go_out_as_table_csv_and_figure() {
    let lab = Lab::new();
    let svg = lab.path("loss.svg");
    let table = lab.ok(&["plan", "raid", "--svg", svg.to_str().unwrap()]);
    assert!(table.contains("lost a year") && table.contains("3.32 kB"), "{table}");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("8+2") && drawn.trim_end().ends_with("</svg>"));
    let csv = lab.ok(&["plan", "gears", "--csv"]);
    assert!(csv.starts_with("gear_size,recovery_group_size,"), "{csv}");
    assert_eq!(csv.lines().count(), 7);
}

#[test]
fn months_sharing_failures_and_overheads_are_reported() {
    let lab = Lab::new();
    let power = ["plan", "power", "--nodes", "9", "--signal", "oscillation:40", "--price", "0.12"];
    let month = lab.json(&power);
    let work = |policy: &str| {
        let rows = month["month"].as_array().unwrap();
        rows.iter().find(|row| row["policy"] == policy).unwrap()["work_share"].as_f64().unwrap()
    };
    assert!(work("always-on") == 1.0 && work("blink-staggered") > 0.0);

    let sharing = ["plan", "layout", "--nodes", "100", "--primaries", "5", "--replicas", "4"];
    let given = lab.json(&[&sharing[..], &["--datasets", "3", "--live-set", "1,3"]].concat());
    assert_eq!((&given[0]["active"], &given[1]["active"]), (&50.into(), &50.into()));
    let study = lab.json(&["plan", "layout", "--nodes", "14", "--primaries", "3", "--datasets", "1,2,3,4"]);
    assert!(study.as_array().unwrap().iter().all(|row| row["average"].as_f64().unwrap() > 0.9), "{study}");

    let geared = ["plan", "layout", "--nodes", "35", "--primaries", "10", "--replicas", "2", "--layout", "geared"];
    let failed = lab.json(&[&geared[..], &["--gear-size", "5", "--blocks", "2000", "--failed", "1"]].concat());
    assert_eq!(failed["min_active_after_failure"], 14);
    assert_eq!(failed["active"][12]["throughput"], Value::Null);
    assert!(failed["active"][13]["throughput"].is_number());

    let tree = lab.path("tree");
    std::fs::create_dir_all(tree.join("a")).unwrap();
    std::fs::write(tree.join("a/x"), vec![0; 1000]).unwrap();
    std::fs::write(tree.join("a/y"), vec![0; 1000]).unwrap();
    let space = lab.json(&["plan", "raid", "--scan", tree.to_str().unwrap()]);
    let overheads: Vec<f64> =
        space["overhead"].as_array().unwrap().iter().map(|row| row["overhead"].as_f64().unwrap()).collect();
    assert_eq!(overheads, [2.0, 1.0, 1.0]);
}

#[test]
fn an_impossible_value_is_refused_with_the_nearest_possible_one() {
    let lab = Lab::new();
    for (arguments, nearest) in [
        (vec!["layout", "--nodes", "10", "--primaries", "5", "--replicas", "3"], "is 3"),
        (vec!["layout", "--nodes", "2", "--replicas", "3"], "is 2"),
        (vec!["layout", "--nodes", "20", "--blocks", "0"], "is 1"),
        (vec!["layout", "--nodes", "40", "--primaries", "10", "--layout", "geared", "--gear-size", "3"], "is 2"),
        (vec!["gears", "--primaries", "10", "--gear-size", "11"], "is 10"),
        (vec!["power", "--nodes", "10", "--inactive", "11"], "is 10"),
        (vec!["power", "--nodes", "10", "--percent", "130"], "is 100"),
        (vec!["power", "--nodes", "10", "--node-watts", "5", "--sleep-watts", "6"], "below 5 W"),
        (vec!["raid", "--user-bytes", "1GB"], "nearest possible user data"),
        (vec!["raid", "--disk-use", "140"], "is 100"),
        (vec!["raid", "--scheme", "300+2"], "is 256"),
        (vec!["layout", "--nodes", "14", "--primaries", "3", "--datasets", "6", "--live", "5"], "is 4"),
        (vec!["layout", "--nodes", "1000000000"], "is 100000"),
        (vec!["layout", "--nodes", "-3"], "is 1"),
        (vec!["layout", "--nodes", "20", "--blocks", "1e18"], "is 1000000000000000"),
        (vec!["layout", "--nodes", "20", "--placed", "--blocks", "1000000000000"], "nearest possible number of blocks"),
        (vec!["layout", "--nodes", "14", "--primaries", "3", "--datasets", "3", "--sample", "0"], "is 1"),
        (vec!["layout", "--nodes", "14", "--datasets", "3", "--live", "2", "--weights", "1,NaN"], "is 0.000001"),
        (vec!["gears", "--primaries", "4294967295"], "is 1000000"),
        (vec!["power", "--nodes", "1e9"], "is 100000"),
        (vec!["power", "--nodes", "10", "--percent", "NaN"], "is 0"),
        (vec!["power", "--nodes", "10", "--signal", "constant:50", "--days", "1e9"], "is 3660"),
        (vec!["power", "--nodes", "10", "--signal", "constant:50", "--transition", "NaN"], "is 0"),
        (vec!["power", "--nodes", "10", "--signal", "constant:50", "--transition", "30"], "below 30"),
        (vec!["raid", "--failures-per-year", "-2"], "is 0.000001"),
    ] {
        let run = lab.run(&[&["plan"], &arguments[..]].concat());
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.err);
        assert!(run.err.contains(nearest), "{arguments:?}: {}", run.err);
        assert!(run.out.is_empty(), "{arguments:?}: {}", run.out);
    }
}

#[test]
fn the_report_is_one_page_with_every_paper() {
    let lab = Lab::new();
    let page = lab.path("report.html");
    lab.ok(&["plan", "report", "--out", page.to_str().unwrap()]);
    let html = std::fs::read_to_string(&page).unwrap();
    for word in ["Rabbit", "DiskReduce", "BlinkFS", "Metablocks", "Table 1", "Fig. 3a", "<svg"] {
        assert!(html.contains(word), "{word}");
    }
    assert!(html.trim_end().ends_with("</html>") && !html.contains("<script"));
}
