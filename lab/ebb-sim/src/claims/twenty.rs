//! Figures 5, 6 and 9 to 11: twenty nodes and one LSN.

use super::{Cluster, DiskModel, Hardware, Result, Runner, UNLIMITED, study};
use crate::app::App;
use crate::claims::{Claim, Relation, Times, times};
use crate::cluster::GBPS;

const STRIPES: &str = "an experiment (--lsn-stripe-mib 1000000): were stripes to grow with the array, seeks would become fewer \
    with each disk, and the array would be faster than the baseline, because it writes a third of the bytes";

pub(super) fn claims(runner: &dyn Runner, seeds: &[u64]) -> Result<Vec<Claim>> {
    let base = study("20-node");
    let clusters = [
        Cluster { lsn_disks: 16, ..base.clone() },
        Cluster { lsn_gbps: 4.0, ..base.clone() },
        Cluster { lsn_gbps: 20.0, ..base.clone() },
        grown_stripes(&Cluster { lsn_gbps: 20.0, ..base.clone() }),
    ];
    let found = times(runner, &clusters, &App::table_ii(), seeds)?;
    let [sixteen, four, twenty, grown] = &found[..] else { unreachable!("one for each cluster") };
    let heavy = ["TeraGen", "TeraSort"];
    let fine = suffices(four);
    let grep = four.baseline_seconds("Grep");
    let link = App::by_name("Grep")?.map_input_bytes / (4.0 * GBPS);
    Ok(vec![
        Claim::new("Fig. 5", "16 disks, 40 Gbps: the worst of eight", Relation::AtMost, 1.055, sixteen.worst_but(&heavy)),
        Claim::new("Fig. 5", "16 disks, 40 Gbps: TeraGen", Relation::Is, 1.55, sixteen.of("TeraGen")),
        Claim::new("Fig. 5", "16 disks, 40 Gbps: TeraSort", Relation::Is, 1.23, sixteen.of("TeraSort")),
        Claim::new("Fig. 5", "disks of 20 + 16 over 80", Relation::Is, 0.45, clusters[0].total_disks() as f64 / 80.0)
            .remark("the paper's conclusion says 55 % used; 55 % are saved"),
        Claim::new("Fig. 6", "64 disks: applications that 4 Gbps suffices for", Relation::Count, 5.0, fine).free(
            "the four that read little or compute long, as in figure 8, which gives a node the same 0.2 Gbps of the LSN's \
             link; the paper's fifth is not named (next row: why it is no scan)",
        ),
        Claim::new("Fig. 6", "10 GB through 4 Gbps over all of Grep's baseline", Relation::MoreThan, 1.0, link / grep)
            .free("an experiment: the link alone takes longer than the baseline's whole job"),
        Claim::new(
            "Fig. 6",
            "64 disks, 20 Gbps: the worst but TeraGen",
            Relation::AtMost,
            1.186,
            twenty.worst_but(&["TeraGen"]),
        ),
        Claim::new("Fig. 6", "64 disks, 20 Gbps: TeraGen stays apart", Relation::MoreThan, 1.186, twenty.of("TeraGen")),
        Claim::new("Fig. 6", "the same with stripes that grow", Relation::MoreThan, 1.186, grown.of("TeraGen")).free(STRIPES),
    ])
}

fn grown_stripes(cluster: &Cluster) -> Cluster {
    let hardware = Hardware { array_stripe_bytes: UNLIMITED, ..cluster.hardware };
    Cluster { hardware, ..cluster.clone() }
}

/// Effect of 2 instead of 1 Gbps on TeraGen, at the cost `cost`, if neither the array nor its link is a limit.
fn faster_link(runner: &dyn Runner, base: &Cluster, seeds: &[u64], cost: f64) -> Result<f64> {
    let mut app = App::by_name("TeraGen")?;
    app.map_cycles_per_byte *= cost;
    let found = times(runner, &[unbound(base, 1.0), unbound(base, 2.0)], &[app], seeds)?;
    Ok(found[1].seconds("TeraGen") / found[0].seconds("TeraGen"))
}

fn unbound(cluster: &Cluster, node_gbps: f64) -> Cluster {
    let hardware = Hardware { disk: DiskModel::SSD, ..cluster.hardware };
    Cluster { hardware, lsn_gbps: 40.0, node_gbps, ..cluster.clone() }
}

/// Number of applications that are as good as the eight of figure 5.
fn suffices(times: &Times) -> f64 {
    times.all_but(&[]).into_iter().filter(|app| times.of(app) <= 1.055).count() as f64
}

pub(super) fn better_nodes(runner: &dyn Runner, seeds: &[u64]) -> Result<Vec<Claim>> {
    let base = study("better-nodes");
    let clusters = [
        base.clone(),
        Cluster { node_gbps: 2.0, ..base.clone() },
        Cluster { node_ssd: true, ..base.clone() },
        Cluster { node_gbps: 2.0, node_ssd: true, ..base.clone() },
        grown_stripes(&base),
    ];
    // The baseline stays unchanged: only the nodes of the LSN cluster are improved.
    let plain = base.with_placement(crate::cluster::Placement::Baseline);
    let rows = crate::measure::compare(runner, Some(&plain), &clusters, &App::table_ii(), seeds)?;
    let found: Vec<Times> = rows.into_iter().map(Times).collect();
    let [lsn, fast, ssd, both, grown] = &found[..] else { unreachable!("one for each cluster") };
    let (gain, light) = (faster_link(runner, &base, seeds, 1.0)?, faster_link(runner, &base, seeds, 0.25)?);
    let faster = |app: &str| fast.of(app) / lsn.of(app);
    let apps = lsn.all_but(&[]);
    let mean_faster = apps.iter().map(|app| faster(app)).sum::<f64>() / apps.len() as f64;
    let most = apps.iter().map(|app| faster(app)).fold(f64::INFINITY, f64::min);
    let shuffling = ["TeraSort", "Inverted Index", "PageRank", "Compute"];
    let with_ssd = shuffling.iter().map(|app| ssd.of(app) / lsn.of(app)).sum::<f64>() / 4.0;
    Ok(vec![
        Claim::new("Fig. 9", "node links of 2 over 1 Gbps: mean", Relation::Is, 0.96, mean_faster),
        Claim::new("Fig. 9", "node links of 2 over 1 Gbps: Join", Relation::Is, 0.901, faster("Join")),
        Claim::new(
            "Fig. 9",
            "Join gains most: its gain over the largest",
            Relation::Is,
            1.0,
            (1.0 - faster("Join")) / (1.0 - most),
        ),
        Claim::new("Fig. 10", "SSD over disk: the four that shuffle, mean", Relation::Is, 0.746, with_ssd),
        Claim::new("Fig. 11", "without: TeraGen", Relation::Is, 1.537, lsn.of("TeraGen")),
        Claim::new("Fig. 11", "without, with stripes that grow: TeraGen", Relation::Is, 1.537, grown.of("TeraGen")).free(STRIPES),
        Claim::new("Fig. 11", "both: TeraGen", Relation::Is, 1.393, both.of("TeraGen")),
        Claim::new("Fig. 11", "both over without: TeraGen", Relation::Is, 0.906, both.of("TeraGen") / lsn.of("TeraGen")).free(
            "the array is the limit here, and TeraGen keeps nothing on the node's disk; even where the array is none, two \
             maps at 40 cycles a byte make 1 Gbps of data and no more (next rows)",
        ),
        Claim::new("Fig. 11", "2 over 1 Gbps, array of SSDs at 40 Gbps: TeraGen", Relation::Is, 0.906, gain)
            .free("an experiment: neither the array nor its link is in the way, but the work on a byte is"),
        Claim::new("Fig. 11", "the same with data made at a quarter of the cost: TeraGen", Relation::Is, 0.906, light)
            .free("an experiment: only now the node's link is the limit"),
        Claim::new("Fig. 11", "both: the others, mean", Relation::Is, 0.893, both.mean(&both.all_but(&["TeraGen"]))),
    ])
}
