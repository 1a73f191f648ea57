use super::*;

fn cost(seconds: f64, network: f64) -> Cost {
    Cost { seconds, network_bytes: network, asked_bytes: 1000.0, unused_bytes: None }
}

/// As the paper has it.
fn papers() -> Seen {
    let mut seen = Seen::new(16, 1000);
    for (case, repeats) in CASES.iter().zip(&mut seen.searches) {
        *repeats = match *case {
            (HDFS, _) => vec![cost(10.0, 18.0), cost(99.0, 999.0), cost(9.9, 17.0)],
            (_, Placing::Blind) => vec![cost(220.0, 4088.0)],
            (LARGE, _) => vec![cost(10.1, 25.0)],
            _ => vec![cost(10.5, 34.0)],
        };
    }
    for (step, of) in seen.readers.iter_mut().enumerate() {
        let more = [0.0, 25.0, 50.0, 100.0, 20.0][step];
        *of = [vec![cost(5.0, 1000.0 + more)], vec![cost(5.0, 1001.0)], vec![cost(5.0, 2000.0)]];
    }
    let speeds = |random, sequential| vec![Speeds { random, sequential }];
    seen.speeds = vec![
        [speeds(1000.0, 100.0), Vec::new(), speeds(500.0, 100.0)],
        [speeds(150.0, 229.0), Vec::new(), speeds(75.0, 229.0)],
        [speeds(990.0, 119.0), Vec::new(), speeds(495.0, 119.0)],
    ];
    seen
}

#[test]
fn the_papers_own_numbers_hold_and_every_row_has_its_reason() {
    let section = section(&papers());
    for row in &section.rows {
        assert!(row.agrees(), "{row:?}");
        assert!(!row.remark.is_empty(), "{row:?}");
        assert!(row.verdict.is_some(), "{row:?}");
    }
    // 3 of Table 1, 4 of Fig. 1, 3 and 3 of prefetch, 2 settings x 2 gauges x 2 kinds.
    assert_eq!(section.rows.len(), 3 + 4 + 3 + 3 + 8);
    assert!(section.figures.iter().all(|figure| !figure.svg().contains("NaN")));
}

#[test]
fn deviations_are_named() {
    let mut seen = papers();
    // Nothing is saved by locations, and prefetch makes no difference.
    seen.searches[0] = vec![cost(220.0, 4088.0)];
    seen.readers.iter_mut().for_each(|of| of[0] = vec![cost(5.0, 1000.0)]);
    let wrong: Vec<String> =
        section(&seen).rows.into_iter().filter(|row| !row.agrees()).map(|row| row.quantity).collect();
    let expected =
        ["network bytes of a search on HDFS's setting", "time of the latter", "search without locations for each byte"];
    assert_eq!(wrong.len(), expected.len(), "{wrong:?}");
    for part in expected {
        assert!(wrong.iter().any(|quantity| quantity.contains(part)), "{part}: {wrong:?}");
    }
}

#[test]
fn nothing_measured_is_no_number() {
    let empty = section(&Seen::new(4, 0));
    assert!(empty.rows.iter().all(|row| !row.agrees()), "{:?}", empty.rows);
    assert!(empty.tables.iter().all(|table| table.rows().is_empty()));
}

#[test]
fn ratios_are_of_the_same_round() {
    let mut seen = Seen::new(4, 0);
    let speeds = |of: [f64; 3]| of.map(|speed| Speeds { random: speed, sequential: 1.0 }).to_vec();
    // The machine was twice as fast in the second round: that is no difference between settings.
    seen.speeds[0][Gauge::Chunks as usize] = speeds([10.0, 20.0, 10.0]);
    seen.speeds[2][Gauge::Chunks as usize] = speeds([11.0, 22.0, 9.0]);
    assert!((seen.ratios(META, Gauge::Chunks).unwrap().random - 1.1).abs() < 1e-9);
    assert_eq!(seen.ratios(META, Gauge::Bonnie), None);
    assert_eq!(median([3.0, 1.0, f64::NAN, 2.0].into_iter()), Some(2.0));
}
