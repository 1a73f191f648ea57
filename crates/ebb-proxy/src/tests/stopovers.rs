//! Replicas that stop over on their way between nodes that never meet, asked for as the master and the target would.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, NewFile};
use ebb_rpc::testing::Everyone;
use ebb_types::{CHUNK_SIZE, Credentials, ErrorKind, InodeId, Result};
use ebb_wire::pb;

use super::harness::{Cluster, identity, run};

/// More than two pieces.
const LEN: usize = (2 << 20) + 5000;
/// More than half of what fits.
const LARGE: u64 = 70 << 20;

fn content() -> Bytes {
    (0..LEN).map(|at| (at / 253) as u8).collect::<Vec<u8>>().into()
}

/// A file on all three nodes; its inode, and the record of its one metablock.
async fn make(client: &Client) -> (InodeId, pb::Metablock) {
    let (root, access) = (Credentials::root(), Access::ReadWrite);
    let made = client.create(&root, NewFile::exclusive(InodeId::ROOT, b"f", access)).await.unwrap();
    client.write(made.handle, 0, content()).await.unwrap();
    client.fsync(made.handle).await.unwrap();
    client.close(made.handle).await;
    let inode = made.attr.inode;
    let record = client.locations(inode).await.unwrap().remove(0).metablock;
    assert_eq!(record.length, LEN as u64);
    (inode, record)
}

struct Asker<'a> {
    cluster: &'a Cluster,
    everyone: Everyone,
}

impl<'a> Asker<'a> {
    /// The master, and nodes, on a host of their own.
    fn new(cluster: &'a Cluster) -> Self {
        let runtime = cluster.world.process("asker").runtime();
        Self { cluster, everyone: Everyone::new(&runtime, |role| identity("asker", role)) }
    }

    async fn fetch(&self, fetch: pb::FetchReplica) -> Result<u64> {
        let channel = self.everyone.channel(&self.cluster.proxy_address());
        channel.call(&fetch, Duration::from_secs(3)).await.map(|reply| reply.length)
    }

    async fn read(&self, record: &pb::Metablock, offset: u64, length: u64) -> Result<(pb::ReadReplicaReply, Bytes)> {
        let channel = self.everyone.channel(&self.cluster.proxy_address());
        let (metablock, min_version) = (record.id, record.version);
        let read = pb::ReadReplica {
            metablock,
            volume: 1,
            min_version,
            offset,
            length,
            queue_max: None,
            raid_set: 0,
            sums_only: false,
        };
        let reply = channel.call_with(&read, Vec::new(), Duration::from_secs(3)).await?;
        Ok((reply.message, reply.payload))
    }
}

/// Goal: a replica comes from any member that has it, once; from one that does not answer it does not come, and another one
/// is taken instead; it is read as it was written, at its version and no other, until it is taken.
#[test]
fn a_replica_stops_over_whoever_has_it_and_is_read_at_its_version_until_it_is_taken() {
    run(30, |cluster: Cluster| async move {
        let client = cluster.client().await;
        let (inode, record) = make(&client).await;
        let asker = Asker::new(&cluster);
        let from = |place: usize| pb::FetchReplica {
            metablock: record.id,
            source: Some(record.members[place]),
            at: record.version,
            length: record.length,
            patience_ms: 60_000,
            taken: false,
        };
        // Nodes were started in the order of their ids.
        let frozen = record.members[0].node as usize - 1;
        cluster.freeze_node(frozen);
        assert_eq!(asker.fetch(from(0)).await.unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(asker.read(&record, 0, CHUNK_SIZE).await.unwrap_err().kind(), ErrorKind::NoReplica, "not here yet");
        assert_eq!(asker.fetch(from(1)).await.unwrap(), LEN as u64, "another member answers");
        assert_eq!(asker.fetch(from(0)).await.unwrap(), LEN as u64, "it is here, wherever it came from");
        let (mut at, mut sums) = (0, 0);
        while at < LEN {
            let (answer, bytes) = asker.read(&record, at as u64, 512 << 10).await.unwrap();
            assert!(bytes == content().slice(at..LEN.min(at + (512 << 10))), "at {at}");
            assert_eq!((answer.version, answer.length), (record.version, LEN as u64));
            (at, sums) = (at + bytes.len(), sums + answer.checksums.len() as u64);
        }
        assert_eq!(sums, (LEN as u64).div_ceil(CHUNK_SIZE));
        let other =
            pb::Metablock { version: record.version.map(|v| pb::Version { seq: v.seq + 1, ..v }), ..record.clone() };
        assert_eq!(asker.read(&other, 0, CHUNK_SIZE).await.unwrap_err().kind(), ErrorKind::NoReplica);
        asker.fetch(pb::FetchReplica { taken: true, ..from(1) }).await.unwrap();
        assert_eq!(asker.read(&record, 0, CHUNK_SIZE).await.unwrap_err().kind(), ErrorKind::NoReplica, "it was taken");

        // A source that has moved on has not got that version any more.
        cluster.thaw_node(frozen);
        let file = client.open(&Credentials::root(), inode, Access::ReadWrite).await.unwrap().0;
        client.write(file, 0, Bytes::from_static(b"later")).await.unwrap();
        client.fsync(file).await.unwrap();
        assert_eq!(asker.fetch(from(1)).await.unwrap_err().kind(), ErrorKind::StaleVersion);
    });
}

/// Goal: kept replicas are bounded, and unclaimed ones make room after their time.
#[test]
fn replicas_that_do_not_fit_are_refused_and_unclaimed_ones_are_forgotten() {
    run(31, |cluster: Cluster| async move {
        let client = cluster.client().await;
        let (_, record) = make(&client).await;
        let asker = Asker::new(&cluster);
        let fetch = |metablock: u64, length: u64, patience_ms: u32| pb::FetchReplica {
            metablock,
            source: Some(record.members[0]),
            at: record.version,
            length,
            patience_ms,
            taken: false,
        };
        assert_eq!(asker.fetch(fetch(1, 1 << 30, 60_000)).await.unwrap_err().kind(), ErrorKind::Invalid, "never");
        let sourceless = pb::FetchReplica { source: None, ..fetch(1, 10, 60_000) };
        assert_eq!(asker.fetch(sourceless).await.unwrap_err().kind(), ErrorKind::Invalid);
        cluster.freeze_node(record.members[0].node as usize - 1);
        assert_eq!(asker.fetch(fetch(record.id, LARGE, 8_000)).await.unwrap_err().kind(), ErrorKind::Timeout);
        let full = asker.fetch(fetch(record.id + 1, LARGE, 8_000)).await.unwrap_err();
        assert_eq!(full.kind(), ErrorKind::Overloaded, "{full}");
        cluster.world.sleep(Duration::from_secs(10)).await;
        let later = asker.fetch(fetch(record.id + 1, LARGE, 8_000)).await.unwrap_err();
        assert_eq!(later.kind(), ErrorKind::Timeout, "there is room again: {later}");
    });
}
