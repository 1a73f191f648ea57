use super::*;

const SETUP: &str = r#"{"hosts":6,"bytes":600,"split":100,"link_bytes_per_second":10,"rounds":2,"cores":2}"#;

fn line(job: &str, system: &str, (copies, racks): (u32, u32), round: u32, seconds: f64, network: f64) -> String {
    format!(
        r#"{{"job":"{job}","system":"{system}","copies":{copies},"racks":{racks},"round":{round},"seconds":{seconds},"cpu_seconds":{},"network_bytes":{network},"busiest_link_bytes":{},"trunk_bytes":0,"maps":6,"local_maps":6,"failed":0}}"#,
        seconds * 2.0,
        network / 6.0
    )
}

/// A cluster of which the paper is right: a job takes 10 s, and what its busiest link takes.
fn papers() -> Figure2 {
    let empty = Figure2::parse([SETUP].into_iter()).unwrap();
    let mut lines = vec![SETUP.to_owned()];
    for round in [1, 2] {
        for job in JOBS {
            for setting in SETTINGS {
                for (system, _) in SYSTEMS {
                    let model = expected(&empty.setup, job, system, setting);
                    let seconds = 10.0 + model.busiest() / empty.setup.link_bytes_per_second;
                    lines.push(line(job, system, setting, round, seconds, model.network));
                }
            }
        }
        for (job, single) in [("write-1", 40.0), ("write-6", 20.0)] {
            lines.push(line(job, "hdfs", (3, 1), round, 20.0, 1200.0));
            lines.push(line(job, "pipeline", (3, 1), round, 20.0, 1200.0));
            lines.push(line(job, "single-source", (3, 1), round, single, 1200.0));
        }
        for (job, _) in rows::USES {
            lines.push(line(job, "hdfs", (2, 1), round, 9.0, 700.0));
            lines.push(line(job, "mount", (2, 1), round, 1.0, 7.0));
        }
    }
    Figure2::parse(lines.iter().map(String::as_str)).unwrap()
}

#[test]
fn the_model_shows_what_the_paper_says_and_every_row_has_its_reason() {
    let section = section(&papers());
    for row in &section.rows {
        assert!(row.agrees(), "{row:?}");
        assert!(!row.remark.is_empty() && row.verdict.is_some(), "{row:?}");
    }
    // Jobs and settings; settings without affinity; its gain, the model, two routes, four uses.
    assert_eq!(section.rows.len(), 12 + 4 + 1 + 1 + 2 + 4);
    assert_eq!((section.tables.len(), section.figures.len()), (3, 2));
    assert!(section.figures.iter().all(|figure| !figure.svg().contains("NaN")));
}

#[test]
fn the_links_of_two_racks_are_busy_for_as_long_by_either_route_only_with_two_copies() {
    let setup = papers().setup;
    let busiest = |system, setting| expected(&setup, "teragen", system, setting).busiest();
    assert_eq!([(1, 1), (1, 2), (2, 1), (2, 2)].map(|setting| busiest("hdfs", setting)), [0.0, 0.0, 100.0, 300.0]);
    let striped = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|setting| busiest("striped", setting));
    assert!((striped[0] - 500.0 / 6.0).abs() < 1e-9 && (striped[2] - 1000.0 / 6.0).abs() < 1e-9, "{striped:?}");
    assert_eq!((striped[1], striped[3]), (150.0, 300.0));
}

#[test]
fn terasort_sends_a_sample_all_rows_but_a_sixth_and_what_it_writes() {
    let setup = Setup { bytes: 200_000_000, split: 20_000_000, ..papers().setup };
    // Ten samples of 1 MB; rows of 104 bytes.
    let sent = expected(&setup, "terasort", "hdfs", (1, 1)).network;
    assert!((sent - (10e6 + 208e6 * 5.0 / 6.0)).abs() < 1.0, "{sent}");
    let crossed = expected(&setup, "terasort", "hdfs", (2, 2)).trunk;
    assert!((crossed - (5e6 + 52e6 + 100e6)).abs() < 1.0, "{crossed}");
}

#[test]
fn a_ratio_is_of_the_same_round() {
    let lines = [
        SETUP.to_owned(),
        line("grep", "hdfs", (1, 1), 1, 10.0, 0.0),
        line("grep", "ebb", (1, 1), 1, 20.0, 0.0),
        line("grep", "hdfs", (1, 1), 2, 100.0, 0.0),
        line("grep", "ebb", (1, 1), 2, 200.0, 0.0),
        // A round that ended in between.
        line("grep", "hdfs", (1, 1), 3, 1.0, 0.0),
    ];
    let figure = Figure2::parse(lines.iter().map(String::as_str)).unwrap();
    assert_eq!(figure.ratio("grep", ("ebb", "hdfs"), (1, 1), |measured| measured.seconds), Some(2.0));
    let section = section(&figure);
    let shown: Vec<_> = section.rows.iter().map(|row| (row.ours.human(), row.agrees())).collect();
    assert_eq!(shown, [("2.00".to_owned(), false)], "twice HDFS's time is not about equal");
}

#[test]
fn what_is_no_line_of_the_script_is_refused() {
    for lines in [vec![], vec!["ready"], vec![SETUP, "{}"], vec![SETUP, r#"{"job":"grep"}"#]] {
        let error = Figure2::parse(lines.into_iter()).unwrap_err();
        assert!(error.to_string().contains("the script printed"), "{error}");
    }
}

#[test]
fn runs_of_one_site_are_one_and_others_are_refused() {
    let run = |bytes: u32, seconds: f64| {
        let setup = SETUP.replace("600", &bytes.to_string()).replace(r#""rounds":2"#, r#""rounds":1"#);
        let lines = [setup, line("grep", "ebb", (1, 1), 1, seconds, 0.0)];
        Figure2::parse(lines.iter().map(String::as_str)).unwrap()
    };
    let joined = Figure2::join([run(600, 3.0), run(600, 9.0), run(600, 4.0)]).unwrap();
    assert_eq!(joined.setup.rounds, 3);
    assert_eq!(joined.measured.iter().map(|measured| measured.round).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(joined.medians("grep", "ebb", (1, 1)).unwrap().seconds, 4.0);
    let error = Figure2::join([run(600, 3.0), run(700, 3.0)]).unwrap_err().to_string();
    assert!(error.contains("different sites"), "{error}");
    assert!(Figure2::join([]).is_err());
}
