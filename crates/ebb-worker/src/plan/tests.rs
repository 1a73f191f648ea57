use proptest::prelude::*;

use super::*;

fn workers(count: usize) -> Vec<HostName> {
    (1..=count).map(|host| HostName::new(format!("h{host}"))).collect()
}

fn nodes(count: usize) -> Vec<pb::Node> {
    (1..=count as u64).map(|id| pb::Node { id, host: format!("h{id}"), ..Default::default() }).collect()
}

/// A file with `members` of each metablock.
fn file(inode: u64, size: u64, metablock_size: u64, members: &[u64]) -> FoundFile {
    let member = |node: &u64| pb::Member { node: *node, volume: *node, incarnation: 3, home: 0 };
    let metablocks = (0..size.div_ceil(metablock_size))
        .map(|index| pb::Metablock {
            id: inode * 1000 + index,
            index,
            version: Some(pb::Version { epoch: 1, seq: 1 }),
            members: members.iter().map(member).collect(),
            ..Default::default()
        })
        .collect();
    FoundFile { inode, size, block_size: 1 << 20, metablock_size, dataset: 1, metablocks }
}

fn place_all(planner: &mut Planner, files: &[FoundFile]) -> Vec<Batch> {
    let mut batches = Vec::new();
    for file in files {
        for work in planner.splits(file) {
            batches.extend(planner.place(work).unwrap());
        }
    }
    batches.extend(planner.finish());
    batches
}

#[test]
fn splits_follow_metablocks_and_carry_their_neighbours() {
    let planner = Planner::new(Locality::Located, BatchLimits::default(), &workers(3), &nodes(3));
    let work = planner.splits(&file(9, (5 << 20) + 3, 1 << 20, &[2]));
    let ranges: Vec<_> = work.iter().map(|work| (work.split.offset, work.split.length)).collect();
    let mib = 1 << 20;
    assert_eq!(ranges, [(0, mib), (mib, mib), (2 * mib, mib), (3 * mib, mib), (4 * mib, mib), (5 * mib, 3)]);
    let indexes = |work: &Work| work.split.metablocks.iter().map(|metablock| metablock.index).collect::<Vec<_>>();
    assert_eq!(indexes(&work[0]), [0, 1]);
    assert_eq!(indexes(&work[3]), [2, 3, 4]);
    assert_eq!(indexes(&work[5]), [4, 5]);
    assert!(work.iter().all(|work| work.holders == [1]));
    assert!(planner.splits(&file(9, 0, 1 << 20, &[2])).is_empty(), "an empty file has no words");
}

#[test]
fn an_unused_grant_is_a_hole_and_draws_no_work() {
    let planner = Planner::new(Locality::Located, BatchLimits::default(), &workers(3), &nodes(3));
    let mut sparse = file(9, 3 << 20, 1 << 20, &[2]);
    sparse.metablocks[1].version = None;
    let work = planner.splits(&sparse);
    let holders: Vec<_> = work.iter().map(|work| work.holders.clone()).collect();
    assert_eq!(holders, [vec![1], vec![], vec![1]]);
    let maps: Vec<Vec<u64>> =
        work.iter().map(|work| work.split.metablocks.iter().map(|metablock| metablock.index).collect()).collect();
    assert_eq!(maps, [vec![0], vec![0, 2], vec![2]]);
}

/// The network cost of a small file, with three replicas, and ids and times as years of use make them: its directory
/// entry from the master, its split to the worker. 5 % of a mean file of 17 KB, as in a source tree, is 850.
#[test]
fn small_files_are_small_on_the_wire() {
    let planner = Planner::new(Locality::Located, BatchLimits::default(), &workers(3), &nodes(3));
    let mut small = file(4_000_000, 4000, METABLOCK_SIZE_DEFAULT, &[1, 2, 3]);
    small.metablocks[0] = pb::Metablock {
        id: 9_000_000,
        version: Some(pb::Version { epoch: 12, seq: 4 }),
        length: 4000,
        generation: 1,
        ..small.metablocks[0].clone()
    };
    let split = planner.splits(&small).remove(0).split.encoded_len();
    let time_ns = 1_900_000_000_000_000_000;
    let attr = pb::Attr {
        inode: small.inode,
        kind: 1,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 1000,
        size: small.size,
        atime_ns: time_ns,
        mtime_ns: time_ns,
        ctime_ns: time_ns,
        btime_ns: time_ns,
        epoch: 12,
        block_size: small.block_size,
        metablock_size: small.metablock_size,
        allocated_bytes: small.size,
        replicas: 3,
        ..Default::default()
    };
    let entry = pb::DirEntry {
        name: b"a-name-of-20-letters".to_vec(),
        inode: small.inode,
        kind: 1,
        cookie: u64::MAX >> 8,
        attr: Some(attr),
        metablocks: small.metablocks,
        unsettled: true,
    };
    let entry = entry.encoded_len();
    assert!(split <= 70 && entry <= 200, "split {split}, entry {entry} bytes");
}

#[test]
fn work_goes_to_a_holder_and_is_balanced() {
    let mut planner = Planner::new(Locality::Located, BatchLimits::default(), &workers(4), &nodes(4));
    let pairs = [[1, 2], [2, 3], [3, 4], [4, 1]];
    let files: Vec<_> = (0..400).map(|index| file(index + 2, 4000, 1 << 20, &pairs[index as usize % 4])).collect();
    let batches = place_all(&mut planner, &files);
    let mut counts = [0; 4];
    for batch in &batches {
        assert!(batch.work.iter().all(|work| work.holders.contains(&batch.worker)));
        counts[batch.worker] += batch.work.len();
    }
    assert!(counts.iter().all(|count| (90..=110).contains(count)), "{counts:?}");
}

#[test]
fn blind_work_avoids_its_holders_where_it_can() {
    let mut planner = Planner::new(Locality::Blind, BatchLimits::default(), &workers(3), &nodes(3));
    let files: Vec<_> = (0..90).map(|index| file(index + 2, 4000, 1 << 20, &[1 + index % 3])).collect();
    for batch in place_all(&mut planner, &files) {
        for work in &batch.work {
            assert!(!work.holders.contains(&batch.worker));
            assert!(work.split.metablocks.is_empty(), "a blind worker gets no map");
        }
    }
    // Where every host holds it, one of them must count it.
    let mut planner = Planner::new(Locality::Blind, BatchLimits::default(), &workers(2), &nodes(2));
    assert_eq!(place_all(&mut planner, &[file(2, 100, 1 << 20, &[1, 2])]).len(), 1);
}

#[test]
fn the_dead_and_the_tried_get_nothing() {
    let mut planner = Planner::new(Locality::Located, BatchLimits::default(), &workers(3), &nodes(3));
    let mut work = planner.splits(&file(2, 100, 1 << 20, &[1])).remove(0);
    assert!(planner.place(work.clone()).unwrap().is_empty());
    let orphans = planner.bury(0).unwrap();
    assert_eq!(orphans.work, [work.clone()]);
    work.tried.insert(1);
    assert!(planner.place(work.clone()).unwrap().is_empty());
    assert_eq!(planner.finish()[0].worker, 2, "neither the dead holder nor the one that failed");
    work.tried.insert(2);
    assert_eq!(*planner.place(work.clone()).unwrap_err(), work);
}

proptest! {
    /// For any files, each byte is in exactly one split, and batches keep their bounds.
    #[test]
    fn batches_hold_everything_once(
        sizes in proptest::collection::vec(0_u64..5_000_000, 1..80),
        hosts in 1_usize..5,
        blind in any::<bool>(),
        splits_max in 1_usize..20,
    ) {
        let locality = if blind { Locality::Blind } else { Locality::Located };
        let limits = BatchLimits { splits_max, bytes_max: 2 << 20, message_bytes_max: 2000 };
        let mut planner = Planner::new(locality, limits, &workers(hosts), &nodes(hosts));
        let files: Vec<_> =
            (2..).zip(&sizes).map(|(inode, size)| file(inode, *size, 1 << 20, &[1 + inode % hosts as u64])).collect();
        let batches = place_all(&mut planner, &files);
        for batch in &batches {
            prop_assert!(batch.work.len() <= splits_max);
            prop_assert!(batch.bytes <= 2 << 20 || batch.work.len() == 1);
        }
        for file in &files {
            let mut ranges: Vec<_> = batches
                .iter()
                .flat_map(|batch| &batch.work)
                .filter(|work| work.split.inode == file.inode)
                .map(|work| (work.split.offset, work.split.length))
                .collect();
            ranges.sort_unstable();
            let mut at = 0;
            for (offset, length) in ranges {
                prop_assert_eq!(offset, at);
                at += length;
            }
            prop_assert_eq!(at, file.size);
        }
    }
}

/// Goal: work goes to the nodes of its dataset. Method: of two datasets on the same members, each has a node of its own.
#[test]
fn work_goes_to_nodes_that_serve_its_dataset() {
    let serving = |one, other| {
        let mut nodes = nodes(3);
        (nodes[0].serves, nodes[1].serves) = (one, other);
        nodes
    };
    let of = |dataset, members: &[u64]| FoundFile { dataset, ..file(9, 1 << 20, 1 << 20, members) };
    let mut planner = Planner::new(Locality::Located, BatchLimits::default(), &workers(3), &serving(Some(1), Some(2)));
    let holders = |planner: &Planner, file: &FoundFile| planner.splits(file)[0].holders.clone();
    assert_eq!(holders(&planner, &of(1, &[1, 2])), [0]);
    assert_eq!(holders(&planner, &of(2, &[1, 2])), [1]);
    assert_eq!(holders(&planner, &of(3, &[1, 2])), [0, 1], "a dataset without nodes of its own shares all of them");
    assert_eq!(holders(&planner, &of(1, &[1, 2, 3])), [0, 2], "one that serves all datasets serves it as well");
    assert_eq!(holders(&planner, &of(1, &[2])), [1], "there is no other one");
    let mut waiting = planner.splits(&of(1, &[1, 2])).remove(0);
    assert!(!planner.set_serving(&serving(Some(1), Some(2))));
    assert!(planner.set_serving(&serving(Some(2), Some(1))));
    assert!(!planner.renew_holders(&mut waiting, 0));
    assert_eq!(waiting.holders, [1]);
    assert!(planner.renew_holders(&mut waiting, 1));
    let blind = Planner { locality: Locality::Blind, ..planner.clone() };
    let mut without_map = blind.splits(&of(1, &[1, 2])).remove(0);
    assert!(blind.renew_holders(&mut without_map, 0), "it looks the file up by itself");
}

/// Goal: work on data of a localized storage node goes to the hosts that it serves. Method: two sub-racks in one rack and a host
/// in another, with a worker on each host that runs tasks.
#[test]
fn work_goes_to_the_sub_rack_then_to_the_rack() {
    let node = |id: u64, host: &str, rack: &str, serves: &[&str]| pb::Node {
        id,
        host: host.to_owned(),
        rack: rack.to_owned(),
        serves_hosts: serves.iter().map(|host| (*host).to_owned()).collect(),
        ..Default::default()
    };
    let nodes = [node(1, "lsn1", "r1", &["h1", "h2"]), node(2, "lsn2", "r1", &["h3"]), node(3, "h4", "r2", &[])];
    let all = Planner::new(Locality::Located, BatchLimits::default(), &workers(4), &nodes);
    let found = |planner: &Planner, members: &[u64]| {
        let work = planner.splits(&file(9, 1 << 20, 1 << 20, members)).remove(0);
        (work.holders.clone(), work.nearness, work.in_racks.clone())
    };
    assert_eq!(found(&all, &[1]), (vec![0, 1], Distance::SubRack, vec![]));
    assert_eq!(found(&all, &[1, 2]), (vec![0, 1, 2], Distance::SubRack, vec![]));
    assert_eq!(found(&all, &[1, 3]), (vec![3], Distance::Host, vec![]), "an own disk is nearer");
    let two = Planner::new(Locality::Located, BatchLimits::default(), &workers(4)[2..], &nodes);
    assert_eq!(found(&two, &[1]), (vec![], Distance::Far, vec![0]), "h3 is in its rack");
    let files: Vec<FoundFile> = (0..20).map(|inode| file(inode, 1 << 20, 1 << 20, &[1])).collect();
    let count = |planner: &mut Planner| {
        let batches = place_all(planner, &files);
        let mut counts = [0; 4];
        batches.iter().for_each(|batch| counts[batch.worker] += batch.work.len());
        counts
    };
    assert_eq!(count(&mut all.clone()), [10, 10, 0, 0]);
    assert_eq!(count(&mut two.clone()), [20, 0, 0, 0]);
    let blind = Planner::new(Locality::Blind, BatchLimits::default(), &workers(4), &nodes);
    assert_eq!(count(&mut blind.clone()), [0, 0, 10, 10], "blind work goes out of the sub-rack");
    let work = all.splits(&files[0]).remove(0);
    assert_eq!([0, 2].map(|worker| work.nearness_of(worker)), [Distance::SubRack, Distance::Far]);
}
