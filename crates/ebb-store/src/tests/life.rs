//! Opening, formatting, owning, stopping.

use ebb_types::{ClusterId, Epoch, ErrorKind, NodeId, VolumeId};

use super::rig::{Writer, bytes, data, id, in_reality, in_world, version};
use crate::{Change, Deletion, Volume};

#[test]
fn a_volume_knows_its_owner() {
    in_world(1, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.id(), VolumeId::new(0));
        volume.assign(NodeId::new(3), VolumeId::new(12)).await.unwrap();
        let refused = volume.assign(NodeId::new(3), VolumeId::new(13)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unauthorized);
        let incarnation = volume.label().incarnation;
        drop(volume);
        rig.crash();

        let foreign = crate::VolumeOptions { cluster: ClusterId::new(8), ..rig.options.clone() };
        let error = Volume::open(&rig.runtime, &rig.root, foreign).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "/data/v1 is a volume of cluster c7, not of c8: give this node another directory, or that cluster this one"
        );
        let foreign = crate::VolumeOptions { node: Some(NodeId::new(4)), ..rig.options.clone() };
        let error = Volume::open(&rig.runtime, &rig.root, foreign).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "/data/v1 is a volume of node n3, not of n4: start the node with its own directories"
        );
        let volume = rig.open().await.unwrap();
        assert_eq!((volume.id(), volume.label().incarnation), (VolumeId::new(12), incarnation));
    });
}

#[test]
fn a_directory_with_other_things_is_not_formatted() {
    in_world(2, |rig| async move {
        let disk = rig.runtime.disk();
        disk.create_dir_all(&rig.root).await.unwrap();
        disk.replace(&rig.root.join("letters.txt"), bytes(5, 0)).await.unwrap();
        let error = rig.open().await.unwrap_err();
        assert!(error.to_string().contains("letters.txt"), "{error}");
    });
}

#[test]
fn a_format_that_was_interrupted_anywhere_is_done_again() {
    for at_us in (0..20_000).step_by(1500) {
        in_world(at_us, |mut rig| async move {
            let opening = {
                let (runtime, root, options) = (rig.runtime.clone(), rig.root.clone(), rig.options.clone());
                rig.runtime.spawn("open", async move { drop(Volume::open(&runtime, &root, options).await) })
            };
            rig.runtime.sleep(std::time::Duration::from_micros(at_us)).await;
            rig.crash();
            drop(opening);
            let volume = rig.open().await.unwrap();
            Writer::new(&volume, 1).send(data(0, &bytes(9, 1)), true).await.unwrap();
        });
    }
}

#[test]
fn one_process_at_a_time() {
    in_reality(|rig| async move {
        let volume = rig.open().await.unwrap();
        let error = Volume::open(&rig.runtime, &rig.root, rig.options.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop(volume);
        rig.open().await.unwrap();
    });
}

#[test]
fn a_clean_stop_leaves_nothing_to_replay_and_no_spare_space() {
    in_reality(|rig| async move {
        let volume = rig.open().await.unwrap();
        let mut writer = Writer::new(&volume, 0x1_0002);
        let block = bytes(1 << 20, 3);
        for index in 0..5 {
            writer.send(data(index << 20, &block), false).await.unwrap();
        }
        writer.send(data(7, &bytes(100, 9)), false).await.unwrap();
        let grown = volume.describe(id(0x1_0002)).await.unwrap().unwrap();
        assert!(grown.file.ends_with("replicas/02/0000000000010002"), "{}", grown.file);
        volume.stop().await.unwrap();
        assert_eq!(writer.send(data(0, &bytes(5, 1)), true).await.unwrap_err().kind(), ErrorKind::ShuttingDown);
        let rested = volume.describe(id(0x1_0002)).await.unwrap().unwrap();
        assert!(rested.allocated_bytes <= (5 << 20) + (64 << 10), "{} bytes", rested.allocated_bytes);
        // A file is the metablock's bytes and nothing else.
        let mut expected = block.repeat(5);
        expected[7..107].copy_from_slice(&bytes(100, 9));
        assert_eq!(rig.runtime.disk().read(rested.file.as_ref()).await.unwrap(), expected);
        drop(volume);

        let names = rig.runtime.disk().read_dir(&rig.root).await.unwrap();
        let index = names.iter().find_map(|name| name.strip_prefix("index-")).unwrap().parse::<u64>().unwrap();
        let volume = rig.open().await.unwrap();
        let after = rig.runtime.disk().read_dir(&rig.root).await.unwrap();
        assert!(after.contains(&format!("index-{index}")), "a clean start writes no index: {after:?}");
        assert_eq!(volume.read_all(id(0x1_0002), version(1, 6)).await.unwrap().1, expected);
    });
}

#[test]
fn deleted_replicas_stay_deleted_and_can_come_back() {
    in_world(6, |mut rig| async move {
        let volume = rig.open().await.unwrap();
        Writer::new(&volume, 1).send(data(0, &bytes(300_000, 1)), true).await.unwrap();
        Writer::new(&volume, 2).send(data(0, &bytes(3_000, 1)), true).await.unwrap();
        let file = volume.describe(id(1)).await.unwrap().unwrap().file;
        let life = volume.describe(id(1)).await.unwrap().unwrap().life;
        let excess = |raw| Deletion { metablock: id(raw), epoch: Some(Epoch::new(1)), life: Some(life) };
        volume.delete(&[excess(1), excess(9)]).await.unwrap();
        assert!(!rig.runtime.disk().exists(file.as_ref()).await.unwrap());
        assert_eq!((volume.replica_count(), volume.stored_bytes()), (1, 3_000));
        drop(volume);
        rig.crash();
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.report(None, 10).iter().map(|one| one.metablock).collect::<Vec<_>>(), [id(2)]);
        assert_eq!(volume.read(id(1), version(1, 1), 0, 16384).await.unwrap_err().kind(), ErrorKind::NoReplica);
        // A new replica starts empty, holes included.
        Writer::new(&volume, 1).send(Change::Truncate { length: 50_000 }, true).await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap().1, vec![0; 50_000]);
        drop(volume);
        rig.crash();
        let volume = rig.open().await.unwrap();
        assert_eq!(volume.read_all(id(1), version(1, 1)).await.unwrap().1, vec![0; 50_000]);
        assert_eq!(volume.read_all(id(2), version(1, 1)).await.unwrap().1, bytes(3_000, 1));
    });
}

#[test]
fn reports_come_in_parts() {
    in_world(7, |rig| async move {
        let volume = rig.open().await.unwrap();
        for raw in 1..=7 {
            Writer::new(&volume, raw).send(data(0, &bytes(10, 1)), true).await.unwrap();
        }
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let part = volume.report(after, 3);
            seen.extend(part.iter().map(|one| one.metablock.raw()));
            match part.last() {
                Some(last) => after = Some(last.metablock),
                None => break,
            }
        }
        assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7]);
    });
}
