//! Figures 7 and 8: five nodes and one LSN.

use super::{Cluster, Result, Runner, study};
use crate::app::App;
use crate::claims::{Claim, Relation, times};

/// Read much, write little.
const SCANS: [&str; 3] = ["Grep", "Aggregate", "Summary"];
/// Neither read nor write much.
const CAREFREE: [&str; 4] = ["Inverted Index", "PageRank", "Small", "Compute"];

pub(super) fn claims(runner: &dyn Runner, seeds: &[u64]) -> Result<Vec<Claim>> {
    let base = study("5-node");
    let clusters = [
        Cluster { lsn_disks: 4, ..base.clone() },
        base.clone(),
        Cluster { lsn_gbps: 1.0, ..base.clone() },
        Cluster { lsn_gbps: 3.0, ..base.clone() },
        Cluster { lsn_disks: 4, lsn_replicas: 2, ..base.clone() },
    ];
    let found = times(runner, &clusters, &App::table_ii(), seeds)?;
    let [four, six, slow, third, two] = &found[..] else { unreachable!("one for each cluster") };
    let carefree = CAREFREE.iter().map(|app| slow.of(app) / six.of(app)).fold(0.0, f64::max);
    let busy = slow.all_but(&CAREFREE);
    let hurt = busy.iter().map(|app| slow.of(app)).fold(f64::INFINITY, f64::min);
    let rest = four.farthest_but(&["TeraGen", "TeraSort", "Grep", "Aggregate", "Summary"]);
    Ok(vec![
        Claim::new("Fig. 7", "4 disks: mean of all", Relation::Within, 0.037, four.mean_of_all()),
        Claim::new("Fig. 7", "4 disks: TeraGen", Relation::Is, 0.67, four.of("TeraGen"))
            .remark("33 % faster is read as 0.67; as 1 / 1.33 it is 0.75"),
        Claim::new("Fig. 7", "4 disks: Grep, Aggregate, Summary, mean", Relation::Is, 1.187, four.mean(&SCANS)),
        Claim::new("Fig. 7", "4 disks: the rest but TeraSort, the farthest", Relation::Within, 0.046, rest),
        Claim::new("Fig. 7", "4 disks: TeraSort", Relation::Within, 0.046, four.of("TeraSort"))
            .remark("its 15 GB of output gain from one copy in place of three"),
        Claim::new("Fig. 7", "6 disks over 4: mean", Relation::Within, 0.0, six.mean_of_all() / four.mean_of_all())
            .remark("almost no benefit of more disks"),
        Claim::new("Fig. 7", "disks of 5 + 4 over 10", Relation::Is, 0.9, clusters[0].total_disks() as f64 / 10.0)
            .remark("the conclusion's 28 % fewer does not follow from any setting in the text"),
        Claim::new("Fig. 7", "4 disks, two copies at the LSN: TeraGen", Relation::Is, 0.67, two.of("TeraGen"))
            .free("an experiment (--lsn-replicas 2): figure 7 needs one copy"),
        Claim::new("Fig. 8", "1 Gbps: the least hurt that reads or writes", Relation::MoreThan, 1.0, hurt),
        Claim::new("Fig. 8", "1 over 4 Gbps: the most hurt of the other four", Relation::AtMost, 1.0, carefree),
        Claim::new("Fig. 8", "3 Gbps: mean of all", Relation::Within, 0.057, third.mean_of_all()),
    ])
}
