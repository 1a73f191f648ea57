//! `ebb-lab plan lsn` as a user runs it.

use serde_json::Value;

use crate::lab::Lab;

fn ask(arguments: &[&str]) -> Value {
    let mut all = vec!["plan", "lsn"];
    all.extend(arguments);
    Lab::new().json(&all)
}

#[test]
fn the_paper_s_twenty_nodes_with_sixteen_disks() {
    let rows = ask(&["--study", "20-node", "--lsn-disks", "16", "--lsn-gbps", "40"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        let (app, time) = (row["app"].as_str().unwrap(), row["normalized_time"].as_f64().unwrap());
        let paper = match app {
            "TeraGen" => 1.55,
            "TeraSort" => 1.23,
            _ => 1.0,
        };
        assert!((time - paper).abs() <= 0.15, "{app}: {time}");
        assert_eq!((row["disks"].as_u64(), row["baseline_disks"].as_u64()), (Some(36), Some(80)));
    }
}

#[test]
fn a_sweep_has_a_row_for_each_setting_and_more_never_hurts() {
    let rows = ask(&["--study", "5-node", "--apps", "grep", "--lsn-disks", "2,4", "--lsn-gbps", "1,4", "--runs", "1"]);
    let times: Vec<f64> = rows.as_array().unwrap().iter().map(|row| row["normalized_time"].as_f64().unwrap()).collect();
    let [slow_two, two, slow_four, four] = times[..] else { panic!("{rows}") };
    assert!(slow_two > two && slow_four > four && two >= four * 0.97, "{times:?}");
}

#[test]
fn answers_are_the_same_again() {
    let arguments = ["--study", "5-node", "--apps", "terasort,join", "--lsn-disks", "3", "--runs", "2", "--seed", "9"];
    assert_eq!(ask(&arguments), ask(&arguments));
}

#[test]
fn the_cheapest_node_fits_and_a_smaller_one_does_not() {
    let advice = ask(&["--study", "5-node", "--apps", "grep,teragen", "--within", "15", "--runs", "1"]);
    let best = &advice["best"];
    assert_eq!(best["fits"], true);
    let (disks, gbps) = (best["lsn_disks"].to_string(), best["lsn_gbps"].to_string());
    let again = ask(&[
        "--study",
        "5-node",
        "--apps",
        "grep,teragen",
        "--runs",
        "1",
        "--lsn-disks",
        &disks,
        "--lsn-gbps",
        &gbps,
    ]);
    assert!(again.as_array().unwrap().iter().all(|row| row["normalized_time"].as_f64().unwrap() <= 1.15), "{again}");
    assert_eq!(advice["fewer_disks"]["fits"], false, "{advice}");
}

#[test]
fn applications_come_from_a_file() {
    let lab = Lab::new();
    let file = lab.path("apps.toml");
    let text = "[[app]]\nname = \"Log scan\"\nmap_input = \"2GiB\"\nmap_output = 1000000\nmappers = 32\nreducers = 2\n";
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let rows = lab.json(&["plan", "lsn", "--study", "5-node", "--app-file", path, "--runs", "1"]);
    assert_eq!(rows[0]["app"], "Log scan");
    assert_eq!(rows.as_array().unwrap().len(), 1);
    for (bad, wanted) in [
        ("[[app]]\nname = \"x\"\nmappers = 0\n", "nearest possible value is 1"),
        ("[[app]]\nname = \"x\"\nmappers = 1\ncolour = \"red\"\n", "colour"),
        ("[[app]]\nname = \"x\"\nmappers = 1\nmap_input = \"2 parsecs\"\n", "parsecs"),
        ("", "no [[app]]"),
    ] {
        std::fs::write(&file, bad).unwrap();
        let run = lab.run(&["plan", "lsn", "--app-file", path]);
        assert!(run.code == 2 && run.err.contains(wanted), "{bad}: {} {}", run.code, run.err);
    }
}

#[test]
fn people_see_the_assumptions_and_csv_and_a_figure_are_written() {
    let lab = Lab::new();
    let base = ["plan", "lsn", "--study", "5-node", "--apps", "grep,small", "--lsn-disks", "2,4", "--runs", "1"];
    let text = lab.ok(&base);
    assert!(text.contains("1 copy of each block") && text.contains("2 disks") && text.contains("mean"), "{text}");
    let csv = lab.ok(&[&base[..], &["--csv"]].concat());
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("app,placement,lsn_disks,lsn_gbps,"), "{csv}");
    assert_eq!(lines.count(), 4, "{csv}");
    let svg = lab.path("lsn.svg");
    lab.ok(&[&base[..], &["--svg", svg.to_str().unwrap()]].concat());
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("<svg") && svg.contains("Grep") && svg.contains("4 disks") && !svg.contains("NaN"));
}

#[test]
fn reading_back_is_reported() {
    let rows = ask(&["--readback", "--runs", "1"]);
    assert_eq!(rows.as_array().unwrap().len(), 12);
    assert!(rows.as_array().unwrap().iter().all(|row| row["normalized_time"].as_f64().unwrap() < 1.5), "{rows}");
}

#[test]
fn the_impossible_is_refused_with_the_nearest_possible() {
    let lab = Lab::new();
    for (arguments, wanted) in [
        (vec!["--lsn-disks", "0"], "nearest possible value is 1"),
        (vec!["--lsn-disks", "16,0"], "nearest possible value is 1"),
        (vec!["--lsn-gbps", "0"], "nearest possible value is 0.001"),
        (vec!["--lsn-gbps=-3"], "nearest possible value is 0.001"),
        (vec!["--lsn-gbps", "NaN"], "nearest possible value is 0.001"),
        (vec!["--replicas", "21"], "nearest possible value is 20"),
        (vec!["--nodes", "2"], "nearest possible value is 2"),
        (vec!["--sub-racks", "30"], "nearest possible value is 20"),
        (vec!["--lsn-disks", "4", "--lsn-parity-disks", "4"], "nearest possible value is 3"),
        (vec!["--disk-read-mb", "0"], "nearest possible value is 0.1"),
        (vec!["--scale", "0"], "nearest possible value is 0.000001"),
        (vec!["--scale", "1000000", "--apps", "terasort"], "nearest possible value is "),
        (vec!["--scale", "NaN"], "nearest possible value is 0.000001"),
        (vec!["--scale", "-1"], "nearest possible value is 0.000001"),
        (vec!["--nodes", "1000000000"], "nearest possible value is 20000"),
        (vec!["--node-disks", "99999999999999"], "nearest possible value is 1000"),
        (vec!["--cores", "1e12"], "nearest possible value is 1024"),
        (vec!["--lsn-stripe-mib", "0"], "nearest possible value is 0.1"),
        (vec!["--within", "5", "--disk-price", "NaN"], "nearest possible value is 0"),
        (vec!["--runs", "0"], "nearest possible value is 1"),
        (vec!["--study", "40-node"], "20-node"),
        (vec!["--apps", "sort"], "TeraSort"),
        (vec!["--placement", "remote"], "hybrid"),
        (vec!["--within", "-5"], "nearest possible value is 0"),
        (vec!["--within", "5", "--placement", "baseline"], "hybrid"),
        (vec!["--within", "5", "--lsn-disks", "4"], "--max-disks"),
        (
            vec!["--study", "5-node", "--apps", "grep", "--within", "1", "--links", "0.1", "--runs", "1"],
            "of --within is",
        ),
    ] {
        let mut all = vec!["plan", "lsn"];
        all.extend(&arguments);
        let run = lab.run(&all);
        assert!(run.code == 2 && run.err.contains(wanted), "{arguments:?}: {} {}", run.code, run.err);
    }
}

/// Goal: a plan's answer is run on the real services, and one that they cannot be put to is refused with the option that mends it.
#[test]
fn a_plan_is_run_on_the_real_services_or_refused_by_name() {
    let lab = Lab::new();
    let plan = |more: &[&str]| {
        let usual =
            ["plan", "lsn", "--study", "5-node", "--apps", "grep", "--scale", "0.1", "--within", "30", "--runs", "1"];
        std::fs::write(lab.path("plan.json"), lab.json(&[&usual[..], more].concat()).to_string()).unwrap();
    };
    let run = || lab.run(&["lsn", "--against-plan", "plan.json", "--jobs", "1", "--json"]);
    let disks = ["--disk-read-mb", "75", "--disk-write-mb", "75"];
    plan(&[&disks[..], &["--lsn-stripe-mib", "1000000"]].concat());
    let run_plan = run();
    let found: Value = serde_json::from_str(&run_plan.out).unwrap_or_else(|error| panic!("{error}: {}", run_plan.err));
    let (planned, ours) = (found["rows"][0]["paper"].as_f64().unwrap(), found["rows"][0]["ours"].as_f64().unwrap());
    assert_eq!(run_plan.code, i32::from((planned - ours).abs() > 0.15), "{found}");
    assert!((planned - ours).abs() < 0.3, "{found}");
    for (more, words) in [(&[][..], "--disk-read-mb 79"), (&disks[..], "--lsn-stripe-mib 1000000")] {
        plan(more);
        let refused = run();
        assert!(refused.code != 0 && refused.err.contains(words), "{}", refused.err);
    }
    std::fs::write(lab.path("plan.json"), "{}").unwrap();
    assert!(run().err.contains("ebb plan lsn --within 10 --json"), "{}", run().err);
}
