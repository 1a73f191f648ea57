//! Figures 5, 6 and 9 to 11: twenty nodes and one LSN.

use super::{Cluster, Result, Runner, study};
use crate::app::App;
use crate::claims::{Claim, Says, times};

/// Which no setting of the LSN's copies reproduces together with figures 5 and 7.
const COPIES: &str = "out of reach with one copy at the LSN, which figures 5 and 7 need: a third of the baseline's bytes is \
    written, and so many disks keep up; see the experiment with more copies";

pub(super) fn claims(runner: &dyn Runner, seeds: &[u64]) -> Result<Vec<Claim>> {
    let base = study("20-node");
    let clusters = [
        Cluster { lsn_disks: 16, ..base.clone() },
        Cluster { lsn_gbps: 4.0, ..base.clone() },
        Cluster { lsn_gbps: 20.0, ..base.clone() },
        Cluster { lsn_gbps: 20.0, lsn_replicas: 3, ..base.clone() },
    ];
    let found = times(runner, &clusters, &App::table_ii(), seeds)?;
    let [sixteen, four, twenty, three] = &found[..] else { unreachable!("one for each cluster") };
    let heavy = ["TeraGen", "TeraSort"];
    let fine = four.all_but(&[]).into_iter().filter(|app| four.of(app) <= 1.055).count() as f64;
    Ok(vec![
        Claim::new("Fig. 5", "16 disks, 40 Gbps: the worst of eight", Says::AtMost, 1.055, sixteen.worst_but(&heavy)),
        Claim::new("Fig. 5", "16 disks, 40 Gbps: TeraGen", Says::Is, 1.55, sixteen.of("TeraGen")),
        Claim::new("Fig. 5", "16 disks, 40 Gbps: TeraSort", Says::Is, 1.23, sixteen.of("TeraSort")),
        Claim::new("Fig. 5", "disks of 20 + 16 over 80", Says::Is, 0.45, clusters[0].total_disks() as f64 / 80.0)
            .remark("the paper's conclusion says 55 % used; 55 % are saved"),
        Claim::new("Fig. 6", "64 disks: applications that 4 Gbps suffices for", Says::Is, 5.0, fine).free(
            "ten gigabytes through 4 Gbps take 20 s, longer than any of the scans takes in the baseline: the four that \
             read little or compute long do not care, as in figure 8; the paper's fifth is not named",
        ),
        Claim::new(
            "Fig. 6",
            "64 disks, 20 Gbps: the worst but TeraGen",
            Says::AtMost,
            1.186,
            twenty.worst_but(&["TeraGen"]),
        ),
        Claim::new("Fig. 6", "64 disks, 20 Gbps: TeraGen stays apart", Says::MoreThan, 1.186, twenty.of("TeraGen"))
            .free(COPIES),
        Claim::new("Fig. 6", "the same with three copies at the LSN", Says::MoreThan, 1.186, three.of("TeraGen"))
            .free("an experiment (--lsn-replicas 3): as many copies as the baseline, and none of them local"),
    ])
}

pub(super) fn better_nodes(runner: &dyn Runner, seeds: &[u64]) -> Result<Vec<Claim>> {
    let base = study("better-nodes");
    let clusters = [
        base.clone(),
        Cluster { node_gbps: 2.0, ..base.clone() },
        Cluster { node_ssd: true, ..base.clone() },
        Cluster { node_gbps: 2.0, node_ssd: true, ..base.clone() },
        Cluster { lsn_replicas: 2, ..base.clone() },
    ];
    // The baseline stays what it was: only the nodes of the LSN cluster are improved.
    let plain = base.with_placement(crate::cluster::Placement::Baseline);
    let rows = crate::measure::compare(runner, Some(&plain), &clusters, &App::table_ii(), seeds)?;
    let found: Vec<super::Times> = rows.into_iter().map(super::Times).collect();
    let [lsn, fast, ssd, both, two] = &found[..] else { unreachable!("one for each cluster") };
    let faster = |app: &str| fast.of(app) / lsn.of(app);
    let apps = lsn.all_but(&[]);
    let mean_faster = apps.iter().map(|app| faster(app)).sum::<f64>() / apps.len() as f64;
    let most = apps.iter().map(|app| faster(app)).fold(f64::INFINITY, f64::min);
    let shuffling = ["TeraSort", "Inverted Index", "PageRank", "Compute"];
    let with_ssd = shuffling.iter().map(|app| ssd.of(app) / lsn.of(app)).sum::<f64>() / 4.0;
    Ok(vec![
        Claim::new("Fig. 9", "node links of 2 over 1 Gbps: mean", Says::Is, 0.96, mean_faster),
        Claim::new("Fig. 9", "node links of 2 over 1 Gbps: Join", Says::Is, 0.901, faster("Join")),
        Claim::new(
            "Fig. 9",
            "Join gains most: its gain over the largest",
            Says::Is,
            1.0,
            (1.0 - faster("Join")) / (1.0 - most),
        ),
        Claim::new("Fig. 10", "SSD over disk: the four that shuffle, mean", Says::Is, 0.746, with_ssd),
        Claim::new("Fig. 11", "without: TeraGen", Says::Is, 1.537, lsn.of("TeraGen")).free(COPIES),
        Claim::new("Fig. 11", "without, two copies at the LSN: TeraGen", Says::Is, 1.537, two.of("TeraGen")).free(
            "an experiment (--lsn-replicas 2); the same two copies make 5 nodes slower than the baseline, where the \
             paper has them faster",
        ),
        Claim::new("Fig. 11", "both: TeraGen", Says::Is, 1.393, both.of("TeraGen")).free(COPIES),
        Claim::new("Fig. 11", "both: the others, mean", Says::Is, 0.893, both.mean(&both.all_but(&["TeraGen"]))),
    ])
}
