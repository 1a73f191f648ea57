//! A proxy's start, and its work while no request comes.

use std::time::Duration;

use ebb_client::{Access, Created, NewFile};
use ebb_types::{Credentials, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::shared_op::{self, Op};

use super::direct::ByHand;
use super::harness::{Cluster, run, run_apart};
use super::{number, take_turns};

/// Goal: a file that cannot be given back holds up no other. Method: a member is frozen before it has synced the
/// writes of a file, and no node could be a replacement; the file becomes quiet. The client with the place for a
/// direct write to another file does not come back. The next one waits until that place is given up (six seconds),
/// and no longer.
#[test]
fn a_file_that_cannot_be_given_back_holds_up_no_other() {
    run(61, |cluster: Cluster| async move {
        let (sharers, _) = cluster.sharers(2).await;
        take_turns(&sharers).await;
        let (one, two) = (&sharers[0], &sharers[1]);
        let (root, access) = (Credentials::root(), Access::ReadWrite);
        let made = one.0.create(&root, NewFile::exclusive(InodeId::ROOT, b"other", access)).await;
        let Created { handle, attr, .. } = made.unwrap();
        one.0.write(handle, 0, number(1)).await.unwrap();
        one.0.fsync(handle).await.unwrap();
        let other = attr.inode;
        let gone = ByHand::new(&cluster, &one.0, other).await;
        let next = ByHand::new(&cluster, &two.0, other).await;

        assert_eq!(gone.ask(1001, 0, 1 << 20).await.len(), 1);
        two.0.write(two.1, 0, number(5)).await.unwrap();
        cluster.freeze_node(0);
        let started = cluster.world.now();
        let attributes = pb::meta_op::SetAttr { inode: other.raw(), mtime_ns: Some(7), ..Default::default() };
        let set = shared_op::Set { credentials: Some((&root).into()), attributes: Some(attributes) };
        let answer = loop {
            match next.send(1001, Op::Set(set.clone())).await {
                Ok(answer) => break answer,
                Err(error) => assert!(cluster.world.now() - started < Duration::from_secs(20), "{error}"),
            }
        };
        let waited = cluster.world.now() - started;
        assert!(!answer.moved && answer.failure.is_none(), "{answer:?}");
        assert!(waited < Duration::from_secs(9), "{waited:?}");
        cluster.thaw_node(0);
    });
}

#[test]
fn a_proxy_that_cannot_listen_leaves_no_session() {
    run_apart(62, |cluster: Cluster| async move {
        let client = cluster.client().await;
        let before = cluster.count_sessions(&client).await;
        for _ in 0..3 {
            assert!(cluster.start_proxy_again().await.is_err(), "somebody listens there");
        }
        assert_eq!(cluster.count_sessions(&client).await, before);
    });
}
