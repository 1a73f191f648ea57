use super::*;
use crate::app::App;
use crate::study::Study;

#[test]
fn an_impossible_value_is_refused_with_the_nearest_possible_one() {
    let base = Study::by_name("20-node").unwrap().cluster;
    base.check().unwrap();
    let cases: [(Cluster, &str, &str); 9] = [
        (Cluster { nodes: 0, ..base.clone() }, "--nodes 0", "is 1"),
        (Cluster { sub_racks: 21, ..base.clone() }, "--sub-racks 21", "is 20"),
        (Cluster { replicas: 30, ..base.clone() }, "different nodes", "is 20"),
        (Cluster { lsn_disks: 0, ..base.clone() }, "--lsn-disks 0", "is 1"),
        (Cluster { lsn_disks: 4, lsn_parity_disks: 4, ..base.clone() }, "one disk must hold data", "is 3"),
        (Cluster { lsn_gbps: -1.0, ..base.clone() }, "--lsn-gbps -1", "is 0.001"),
        (Cluster { node_gbps: f64::NAN, ..base.clone() }, "--node-gbps NaN", "is 0.001"),
        (Cluster { shuffle_disks: 9, ..base.clone() }, "--shuffle-disks 9", "is 4"),
        (Cluster { uplink_gbps: Some(1e9), ..base.clone() }, "--uplink-gbps", "is 100000"),
    ];
    for (cluster, part, nearest) in cases {
        let error = cluster.check().unwrap_err().to_string();
        assert!(error.contains(part) && error.ends_with(nearest), "{error}");
    }
}

#[test]
fn the_nearest_possible_value_is_possible() {
    let base = Study::by_name("5-node").unwrap().cluster;
    for replicas in [0, 1, 5, 6] {
        let mut cluster = Cluster { replicas, ..base.clone() };
        if let Err(error) = cluster.check() {
            cluster.replicas = error.to_string().rsplit(' ').next().unwrap().parse().unwrap();
        }
        cluster.check().unwrap();
    }
}

#[test]
fn disks_are_counted_as_the_paper_counts_them() {
    let base = Study::by_name("20-node").unwrap().cluster;
    assert_eq!(Cluster { lsn_disks: 16, ..base.clone() }.total_disks(), 36);
    assert_eq!(base.with_placement(Placement::Baseline).total_disks(), 80);
}

#[test]
fn applications_have_names_in_any_spelling() {
    for name in ["Inverted Index", "invertedindex", "INVERTED-INDEX"] {
        assert_eq!(App::by_name(name).unwrap().mappers, 40);
    }
    let error = App::by_name("sort").unwrap_err().to_string();
    assert!(error.contains("TeraSort"), "{error}");
    let bad = App { mappers: 0, ..App::by_name("grep").unwrap() };
    assert!(bad.check().unwrap_err().to_string().ends_with("is 1"));
    let bad = App { map_input_bytes: f64::NAN, ..App::by_name("grep").unwrap() };
    assert!(bad.check().is_err());
}
