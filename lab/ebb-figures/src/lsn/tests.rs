//! Small runs: the directions of the paper, and what a death takes.

use std::num::NonZeroUsize;

use ebb_sim::claims::{figure_4_apps, testbed_hardware};
use ebb_sim::measure::{Case, Runner};
use ebb_sim::{App, Cluster, JobOptions, Study};

use super::deaths::{self, Death, Kept};
use super::job;
use super::runner::Worlds;
use super::tracker::Choice;
use super::{bed, show};
use crate::part::{Effort, Lab};

/// Bytes and tasks of the paper's.
const SIZE: f64 = 0.125;

fn lab() -> Lab<'static> {
    Lab { seed: 1, effort: Effort::Quick, jobs: NonZeroUsize::MIN, on_world: &|_| () }
}

fn lsn(disks: usize) -> Cluster {
    Cluster { hardware: testbed_hardware(), lsn_disks: disks, ..Study::by_name("real-cluster").unwrap().cluster }
}

/// Goal: disks of an LSN decide how fast its hosts write, until its link does. Method: TeraGen, an eighth of the paper's bytes for each
/// host, on the real services: one and five disks behind 10 Gb/s, three and five behind 1 Gb/s. And the same seed gives the same times.
#[test]
fn disks_of_an_lsn_decide_until_its_link_does() {
    let whole = figure_4_apps().swap_remove(0);
    let app = App { map_output_bytes: whole.map_output_bytes * SIZE, ..whole };
    let clusters = [(10.0, 1), (10.0, 5), (1.0, 3), (1.0, 5)].map(|(gbps, disks)| Cluster {
        lsn_gbps: gbps,
        node_gbps: gbps,
        ..lsn(disks)
    });
    let case = |cluster: &Cluster| Case { cluster: cluster.clone(), app: app.clone(), options: JobOptions::default() };
    let (lab, cases) = (lab(), clusters.iter().map(case).collect::<Vec<_>>());
    let run = |cases: &[Case]| {
        let worlds = Worlds::new(&lab, testbed_hardware(), 1.0);
        let times: Vec<f64> = worlds.run_all(cases).unwrap().iter().map(|report| report.seconds).collect();
        (times, worlds.seen.into_inner())
    };
    let (times, seen) = run(&cases);
    let [one, five, three_behind, five_behind] = times[..] else { panic!("{times:?}") };
    assert!(one > five * 1.3, "{times:?}");
    assert!((five_behind / three_behind - 1.0).abs() < 0.15 && five_behind > five * 1.1, "{times:?}");
    assert_eq!(run(&cases[..1]).0, times[..1], "the same seed, the same times");
    assert_eq!(show::table("Jobs", &seen, &[]).rows().len(), clusters.len());
}

/// Goal: located tasks keep a search within its sub-racks, blind ones do not, and both read everything. Method: the bytes of both.
#[test]
fn located_tasks_read_within_their_sub_rack() {
    let app = figure_4_apps().swap_remove(1).scaled(SIZE);
    let (located, blind, bytes) = bed::on(1, &lsn(3), |bed| async move {
        let input = job::write_input(&bed, &app).await?.unwrap();
        bed.world.sleep(bed::REST).await;
        let located = job::run(&bed, &app, Some(&input), Choice::Located, 1).await?;
        Ok((located, job::run(&bed, &app, Some(&input), Choice::Blind, 1).await?, input.bytes()))
    })
    .unwrap();
    let crossed = |times: &job::JobTimes| (times.network_bytes - times.sub_rack_bytes) as f64 / bytes as f64;
    assert!(located.network_bytes >= bytes && blind.network_bytes >= bytes, "{located:?}, {blind:?}");
    assert!(crossed(&located) < 0.1 && crossed(&blind) > 0.5, "{} and {}", crossed(&located), crossed(&blind));
    assert!(located.near_maps > blind.near_maps, "{located:?}, {blind:?}");
}

/// Goal: with one copy a disk's data are lost and an LSN's are away until it is back; with two nothing is.
#[test]
fn one_copy_is_lost_with_its_disk_and_two_are_not() {
    let lost = deaths::run(3, Kept::One, Death::Disk, 0.25).unwrap();
    assert!(lost.lost > 0 && lost.lost < lost.user_bytes / 4 && lost.job_s.is_none(), "{lost:?}");
    let away = deaths::run(3, Kept::One, Death::Node, 0.25).unwrap();
    assert!(away.out_of_reach > 0 && away.lost == 0 && away.job_s.is_none(), "{away:?}");
    let two = deaths::run(3, Kept::Two, Death::Node, 0.25).unwrap();
    assert!(two.out_of_reach == 0 && two.lost == 0 && two.job_s.is_some() && two.whole_s.is_some(), "{two:?}");
    assert!((two.stored - 2.0).abs() < 0.1, "{two:?}");
}
