//! Writes that are logged by the name of the bytes that were put here.

use bytes::Bytes;
use ebb_types::{ErrorKind, Result};
use ebb_wire::pb;

use super::rig::{Client, LONG, bytes, hop, in_world, sums, version, virt_server};

const METABLOCK: u64 = 5;
const EPOCH: u64 = 1;

fn ticket(request: u64) -> Option<pb::Ticket> {
    Some(pb::Ticket { session: 3, request })
}

async fn put(client: &Client, hop: &pb::Hop, request: u64, offset: u64, data: &Bytes) {
    let member = hop.member.unwrap();
    let message = pb::PutStaged {
        ticket: ticket(request),
        metablock: METABLOCK,
        volume: member.volume,
        incarnation: member.incarnation,
        epoch: EPOCH,
        offset,
        checksums: sums(offset, data),
        pipeline: Vec::new(),
        hears_held_up: false,
    };
    let answer = client.connector.channel(&hop.address).call_with(&message, vec![data.clone()], LONG).await.unwrap();
    assert_eq!(answer.message.results[0].failure, None);
}

/// A write of so many bytes without its bytes.
fn named(request: u64, seq: u64, offset: u64, length: u64) -> pb::WriteReplica {
    pb::WriteReplica {
        metablock: METABLOCK,
        version: version(EPOCH, seq),
        predecessor: version(u64::from(seq > 1), seq - 1),
        kind: pb::WriteKind::WriteData.into(),
        offset,
        length,
        staged: ticket(request),
        ..pb::WriteReplica::default()
    }
}

async fn log(client: &Client, hop: &pb::Hop, writes: Vec<pb::WriteReplica>, payload: Vec<Bytes>) -> Result<()> {
    let message = pb::LogWrites { inode: 2, epoch: EPOCH, writes, ..pb::LogWrites::default() };
    client.connector.channel(&hop.address).call_with(&message, payload, LONG).await.map(drop)
}

/// Goal: a log has the bytes that were put, with their writer's checksums, in one call with bytes that were sent. What was
/// not put is refused, and not logged as something else.
#[test]
fn a_log_takes_what_was_put_by_its_name() {
    in_world(7, |world, _, master| async move {
        let hop = hop(&virt_server(&world, "h1", &master).await);
        let client = Client::new(&world.process("client").runtime());
        let (first, second, third) = (bytes(300_000, 1), bytes(1_000, 2), bytes(70_000, 3));
        put(&client, &hop, 1, 0, &first).await;
        put(&client, &hop, 3, 400_000, &third).await;
        let sent = pb::WriteReplica { checksums: sums(5_000, &second), staged: None, ..named(0, 2, 5_000, 1_000) };
        let writes = vec![named(1, 1, 0, 300_000), sent, named(3, 3, 400_000, 70_000)];
        log(&client, &hop, writes, vec![second.clone()]).await.unwrap();

        let refused = async |write: pb::WriteReplica, payload: &[Bytes]| {
            log(&client, &hop, vec![write], payload.to_vec()).await.unwrap_err().kind()
        };
        assert_eq!(refused(named(9, 4, 0, 100), &[]).await, ErrorKind::Gap, "nothing was put under this name");
        assert_eq!(refused(named(1, 4, 0, 100), &[]).await, ErrorKind::Protocol, "other bytes were put");
        assert_eq!(
            refused(named(1, 4, 0, 300_000), std::slice::from_ref(&second)).await,
            ErrorKind::Protocol,
            "too many bytes"
        );

        let read = pb::ReadLog { inode: 2, epoch: EPOCH + 1, ..pb::ReadLog::default() };
        let reply = client.connector.channel(&hop.address).call_with(&read, Vec::new(), LONG).await.unwrap();
        let logged = &reply.message.writes;
        assert_eq!(logged.iter().map(|one| one.version).collect::<Vec<_>>(), [1, 2, 3].map(|seq| version(EPOCH, seq)));
        assert!(logged.iter().all(|one| one.staged.is_none()));
        let expected: Vec<_> = [sums(0, &first), sums(5_000, &second), sums(400_000, &third)].into();
        assert_eq!(logged.iter().map(|one| one.checksums.clone()).collect::<Vec<_>>(), expected);
        assert!(reply.payload == [&first[..], &second[..], &third[..]].concat());
    });
}
