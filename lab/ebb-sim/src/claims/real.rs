//! Figure 4: the real cluster. Direction and order are required; sizes are those of the testbed's own disks.

use super::{Cluster, MIB, Placement, Result, Runner, figure_4_apps, study, testbed_hardware};
use crate::app::App;
use crate::claims::{Claim, Relation, Times, times};

const APPS: [&str; 3] = ["TeraGen", "Grep", "TeraSort"];

/// Cycles for a byte of a scan that uses an ES.2 for 5 % of its time: 19 / (105 MB/s) at 2.5 GHz.
const TESTBED_SCAN: f64 = 450.0;

pub(super) fn claims(runner: &dyn Runner, seeds: &[u64]) -> Result<Vec<Claim>> {
    let base = Cluster { hardware: testbed_hardware(), ..study("real-cluster") };
    let mut apps = figure_4_apps();
    apps[1].map_cycles_per_byte = TESTBED_SCAN;
    let lsn = |gbps: f64, disks: usize| Cluster { node_gbps: gbps, lsn_gbps: gbps, lsn_disks: disks, ..base.clone() };
    let clusters = [lsn(1.0, 1), lsn(1.0, 3), lsn(1.0, 5), lsn(10.0, 1), lsn(10.0, 5)];
    let found = times(runner, &clusters, &apps, seeds)?;
    let mut claims = Vec::new();
    let mut row = |quantity: &str, papers: [f64; 3], ours: &dyn Fn(&str) -> f64, remark: &str| {
        for (app, paper) in APPS.iter().zip(papers) {
            let claim = Claim::new("Fig. 4", format!("{quantity}: {app}"), Relation::Is, paper, ours(app));
            claims.push(claim.free(remark));
        }
    };
    let disks = "a real cluster, simulated with its disks' data sheet (105 MB/s); the page cache is not simulated";
    row("LSN(N1,D1) over the baseline", [2.45, 2.55, 1.50], &|app| found[0].of(app), disks);
    row("LSN(N2,D1) over the baseline", [2.55, 2.37, 1.42], &|app| found[3].of(app), disks);
    row("LSN(N1,D1) over LSN(N1,D2)", [1.5, 1.6, 1.2], &|app| ratio(&found[0], &found[1], app), disks);
    row("LSN(N2,D3) over the baseline", [0.76, 0.80, 0.61], &|app| found[4].of(app), disks);
    for app in APPS {
        let ours = ratio(&found[1], &found[2], app);
        let claim =
            Claim::new("Fig. 4", format!("LSN(N1,D2) over LSN(N1,D3), little: {app}"), Relation::Within, 0.0, ours);
        claims.push(claim.free("the 1 Gbps link is the limit, so two more disks change little"));
    }
    let modelled = Cluster { hardware: crate::cluster::Hardware::default(), ..base };
    let lsn = |disks: usize| Cluster { lsn_disks: disks, ..modelled.clone() };
    let scan = App { map_output_bytes: 1.5 * MIB, ..figure_4_apps()[1].clone() };
    let found = times(runner, &[lsn(1), lsn(3)], &[scan], seeds)?;
    let ours = ratio(&found[0], &found[1], "Grep");
    let claim = Claim::new(
        "Fig. 4",
        "LSN(N1,D1) over LSN(N1,D2): Grep, disks as in the other studies",
        Relation::Is,
        1.6,
        ours,
    );
    claims.push(
        claim.free("an experiment: with MRPerf's disks (280 MiB/s) one disk fills the link, and more do nothing"),
    );
    debug_assert_eq!(modelled.placement, Placement::Hybrid);
    Ok(claims)
}

fn ratio(over: &Times, under: &Times, app: &str) -> f64 {
    over.seconds(app) / under.seconds(app)
}
