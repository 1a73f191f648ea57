//! Block servers, a client, and shorthand for its calls.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::Identity;
use ebb_rpc::testing::{self, Everyone};
use ebb_runtime::Runtime;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{CHUNK_SIZE, Result, Role};
use ebb_wire::frame::crc32c;
use ebb_wire::{Call, convert, pb};

use super::master::FakeMaster;
use crate::{BlockOptions, BlockServer};

pub(super) const LONG: Duration = Duration::from_secs(20);

pub(super) fn options(host: &str, data_dir: PathBuf, masters: &[String]) -> BlockOptions {
    let mut options =
        BlockOptions::new(data_dir, Identity::by_word(testing::CLUSTER, host, Role::Block), masters.to_vec());
    options.volume.segment_bytes = 256 << 10;
    options.volume.gap_wait = Duration::from_millis(300);
    options
}

/// A world with a master.
pub(super) fn in_world<F: Future>(seed: u64, body: impl FnOnce(World, FakeMaster, String) -> F) -> F::Output {
    World::run(seed, WorldOptions::default(), |world| async move {
        let master = FakeMaster::default();
        let process = world.process("m1");
        let address = master.start(&process.runtime(), &format!("{}:7000", process.ip())).await;
        body(world, master, address).await
    })
}

/// A block server on the virtual host of this name, registered.
pub(super) async fn virt_server(world: &World, host: &str, master: &str) -> BlockServer {
    let process = world.process(host);
    let runtime = process.runtime();
    let mut options = options(host, Path::new("/data").join(host), &[master.to_owned()]);
    options.listen = format!("{}:7001", process.ip());
    let server = BlockServer::start(runtime.clone(), options).await.unwrap();
    registered(&runtime, &server).await;
    server
}

pub(super) async fn registered(runtime: &Runtime, server: &BlockServer) {
    let wait = async {
        while server.volumes().iter().any(|volume| volume.id().raw() == 0) {
            runtime.sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    runtime.timeout(LONG, "registration", wait).await.unwrap();
}

/// Where a server's first volume is reached.
pub(super) fn hop(server: &BlockServer) -> pb::Hop {
    let label = server.volumes()[0].label();
    let member = pb::Member {
        node: server.node().unwrap().raw(),
        volume: label.volume.raw(),
        incarnation: label.incarnation.raw(),
        home: 0,
    };
    pb::Hop { member: Some(member), address: server.address().to_owned(), host: String::new() }
}

pub(super) fn version(epoch: u64, seq: u64) -> Option<pb::Version> {
    Some(pb::Version { epoch, seq })
}

pub(super) fn bytes(len: usize, salt: u8) -> Bytes {
    (0..len).map(|at| (at / 7 + at * 13) as u8 ^ salt).collect::<Vec<_>>().into()
}

pub(super) struct Client {
    pub(super) connector: Everyone,
}

impl Client {
    pub(super) fn new(runtime: &Runtime) -> Self {
        Self { connector: Everyone::new(runtime, |role| testing::identity(runtime, "client", role)) }
    }

    pub(super) async fn call<C: Call>(&self, hop: &pb::Hop, message: &C) -> Result<C::Reply> {
        self.connector.channel(&hop.address).call(message, LONG).await
    }

    /// Bytes to the first member, and along the others.
    #[allow(clippy::too_many_arguments)]
    pub(super) async fn write(
        &self,
        hops: &[pb::Hop],
        metablock: u64,
        seq: u64,
        offset: u64,
        data: &Bytes,
        sync: bool,
        deadline: Duration,
    ) -> Vec<pb::MemberResult> {
        let member = hops[0].member.unwrap();
        let message = pb::WriteReplica {
            metablock,
            volume: member.volume,
            incarnation: member.incarnation,
            version: version(1, seq),
            predecessor: version(u64::from(seq > 1), seq - 1),
            kind: pb::WriteKind::WriteData.into(),
            offset,
            length: data.len() as u64,
            checksums: sums(offset, data),
            sync,
            pipeline: hops[1..].to_vec(),
            hears_held_up: true,
            ..pb::WriteReplica::default()
        };
        let channel = self.connector.channel(&hops[0].address);
        channel.call_with(&message, vec![data.clone()], deadline).await.unwrap().message.results
    }

    /// Verified bytes of a replica.
    pub(super) async fn read(
        &self,
        hop: &pb::Hop,
        metablock: u64,
        min_version: Option<pb::Version>,
        offset: u64,
        length: u64,
    ) -> Result<(pb::ReadReplicaReply, Bytes)> {
        let volume = hop.member.unwrap().volume;
        let read = pb::ReadReplica {
            metablock,
            volume,
            min_version,
            offset,
            length,
            queue_max: None,
            raid_set: 0,
            sums_only: false,
        };
        let reply = self.connector.channel(&hop.address).call_with(&read, Vec::new(), LONG).await?;
        assert_eq!(reply.message.checksums, sums(offset, &reply.payload));
        Ok((reply.message, reply.payload))
    }
}

pub(super) fn sums(offset: u64, data: &Bytes) -> Vec<u32> {
    let first = (CHUNK_SIZE - offset % CHUNK_SIZE).min(data.len() as u64) as usize;
    let rest = data[first..].chunks(CHUNK_SIZE as usize).map(crc32c);
    (first > 0).then(|| crc32c(&data[..first])).into_iter().chain(rest).collect()
}

/// The kinds of a write's failures; 0 for none.
pub(super) fn failures(results: &[pb::MemberResult]) -> Vec<u32> {
    results.iter().map(|result| result.failure.as_ref().map_or(0, |failure| failure.kind)).collect()
}

pub(super) fn synced(result: &pb::MemberResult) -> u64 {
    convert::version(result.synced).seq
}
