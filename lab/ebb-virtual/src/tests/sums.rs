//! A file's checksum comes from the checksums of its chunks: the same as that of its bytes, which stay where they are.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, NewFile};
use ebb_power::PolicyKind;
use ebb_rpc::Counters;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, ErrorKind, InodeId};
use ebb_wire::frame::crc32c;

use crate::power::PowerCluster;

#[test]
fn a_checksum_is_that_of_the_bytes_and_carries_none() {
    for (seed, length) in [(0_u64, 0_usize), (1, 1), (2, 16 << 10), (3, 70_001), (4, 3_000_000), (5, 1 << 20)] {
        World::run(seed, WorldOptions::default(), move |world| async move {
            let cluster = PowerCluster::start(&world, 5, PolicyKind::AlwaysOn, Duration::from_secs(2)).await.unwrap();
            let root = Credentials::root();
            let writer = cluster.connect("writer").await.unwrap();
            let new = NewFile::exclusive(InodeId::ROOT, b"file", Access::ReadWrite);
            let made = writer.create(&root, new).await.unwrap();
            let bytes: Vec<u8> = (0..length as u64).map(|at| (at * 13 + seed) as u8).collect();
            writer.write(made.handle, 0, Bytes::from(bytes.clone())).await.unwrap();
            // The writer still has all of it, not committed.
            let traffic = Counters::default();
            let reader = cluster.session_with(&world.process("reader"), traffic.clone(), |_| {}).await.unwrap();
            let (handle, _) = reader.open(&root, made.attr.inode, Access::Read).await.unwrap();
            let before = traffic.read().network_bytes();
            assert_eq!(reader.checksum(handle, length as u64).await.unwrap(), crc32c(&bytes), "seed {seed}");
            let carried = traffic.read().network_bytes() - before;
            assert!(
                carried < 20_000 + length as u64 / 100,
                "seed {seed}: {carried} bytes went for the sum of {length}"
            );
            // The end of these lies within a chunk, which has to be read.
            for part in [length / 2, length.saturating_sub(1)] {
                let sum = reader.checksum(handle, part as u64).await.unwrap();
                assert_eq!(sum, crc32c(&bytes[..part]), "seed {seed}: {part} of {length} bytes");
            }
            let more = reader.checksum(handle, length as u64 + 1).await.unwrap_err();
            assert_eq!(more.kind(), ErrorKind::Invalid);
        });
    }
}
