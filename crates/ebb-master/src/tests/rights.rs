//! A program sees and uses what its user may.

use ebb_types::{Credentials, ErrorKind, FileKind, InodeId, Role};
use ebb_wire::pb;
use pb::meta_op::{self, Op};

use super::harness::{Cluster, DEADLINE, TestClient, with_cluster};

const ALICE: u32 = 1000;
const BOB: u32 = 1001;

/// A program's session.
struct Program {
    channel: ebb_rpc::Channel,
    session: u64,
    user: pb::Credentials,
}

impl Program {
    async fn open(cluster: &Cluster, uid: u32) -> Self {
        let channel = cluster.channel_as("client", Role::Program);
        let open = pb::OpenSession { host: "client".into(), role: "test".into(), ..Default::default() };
        let session = channel.call(&open, DEADLINE).await.unwrap().session;
        let user = (&Credentials { uid, gid: uid, groups: Vec::new() }).into();
        Self { channel, session, user }
    }

    async fn ask(&self, op: Op) -> Result<pb::MetaReply, ErrorKind> {
        let request = pb::MetaRequest {
            session: self.session,
            credentials: Some(self.user.clone()),
            op: Some(pb::MetaOp { op: Some(op) }),
            ..Default::default()
        };
        self.channel.call(&request, DEADLINE).await.map_err(|error| error.kind())
    }

    async fn acquire(&self, inode: InodeId, mode: pb::LeaseMode, access: Option<u32>) -> Result<(), ErrorKind> {
        let acquire = pb::Acquire {
            session: self.session,
            inode: inode.raw(),
            mode: mode as i32,
            open: access.is_some(),
            access: access.unwrap_or(0),
            opening: 1,
            credentials: Some(self.user.clone()),
            ..Default::default()
        };
        self.channel.call(&acquire, DEADLINE).await.map(drop).map_err(|error| error.kind())
    }
}

/// Makes an empty file that nobody holds.
async fn make(client: &TestClient, name: &str) -> InodeId {
    let kind = FileKind::File.raw();
    let make = meta_op::MakeNode { parent: 1, name: name.into(), kind, mode: 0o644, ..Default::default() };
    InodeId::new(client.mutate(Op::MakeNode(make)).await.unwrap().attr.unwrap().inode)
}

#[test]
fn a_program_asks_for_what_its_user_may_see() {
    with_cluster(1, 3, |cluster| async move {
        let root = cluster.client().await;
        let secret = make(&root, "secret").await;
        let set = meta_op::SetAttr { inode: secret.raw(), uid: Some(ALICE), mode: Some(0o600), ..Default::default() };
        root.mutate(Op::SetAttr(set)).await.unwrap();
        let (alice, bob) = (Program::open(&cluster, ALICE).await, Program::open(&cluster, BOB).await);
        let inode = secret.raw();
        let questions = || {
            [
                Op::GetAttr(meta_op::GetAttr { inode }),
                Op::GetMap(meta_op::GetMap { inode, ..Default::default() }),
                Op::ListXattr(meta_op::ListXattr { inode }),
            ]
        };
        for op in questions() {
            alice.ask(op.clone()).await.unwrap();
            assert_eq!(bob.ask(op.clone()).await.unwrap_err(), ErrorKind::AccessDenied, "{op:?}");
        }
        for mode in [pb::LeaseMode::LeaseRead, pb::LeaseMode::LeaseWrite, pb::LeaseMode::LeaseNone] {
            assert_eq!(bob.acquire(secret, mode, None).await, Err(ErrorKind::AccessDenied), "{mode:?}");
        }
        assert_eq!(bob.acquire(secret, pb::LeaseMode::LeaseRead, Some(4)).await, Err(ErrorKind::AccessDenied));
        alice.acquire(secret, pb::LeaseMode::LeaseRead, Some(4)).await.unwrap();
        // By its name it is seen: the directory is for all.
        let lookup = meta_op::Lookup { parent: InodeId::ROOT.raw(), name: b"secret".to_vec() };
        bob.ask(Op::Lookup(lookup.clone())).await.unwrap();
        let set = meta_op::SetAttr { inode: InodeId::ROOT.raw(), mode: Some(0o700), ..Default::default() };
        root.mutate(Op::SetAttr(set)).await.unwrap();
        assert_eq!(bob.ask(Op::Lookup(lookup)).await.unwrap_err(), ErrorKind::AccessDenied);
        let list = meta_op::ReadDir { inode: InodeId::ROOT.raw(), ..Default::default() };
        assert_eq!(
            bob.ask(Op::ReadDir(list)).await.unwrap_err(),
            ErrorKind::AccessDenied,
            "it did not ask for a check"
        );
    });
}

#[test]
fn what_a_program_has_open_it_goes_on_reading() {
    with_cluster(1, 3, |cluster| async move {
        let root = cluster.client().await;
        let file = make(&root, "file").await;
        let chmod = |mode| Op::SetAttr(meta_op::SetAttr { inode: file.raw(), mode: Some(mode), ..Default::default() });
        root.mutate(chmod(0o644)).await.unwrap();
        let bob = Program::open(&cluster, BOB).await;
        bob.acquire(file, pb::LeaseMode::LeaseRead, Some(4)).await.unwrap();
        root.mutate(chmod(0o600)).await.unwrap();
        let map = || Op::GetMap(meta_op::GetMap { inode: file.raw(), ..Default::default() });
        bob.ask(map()).await.unwrap();
        bob.acquire(file, pb::LeaseMode::LeaseRead, None).await.unwrap();
        assert_eq!(bob.acquire(file, pb::LeaseMode::LeaseWrite, None).await, Err(ErrorKind::AccessDenied));
        let late = Program::open(&cluster, BOB).await;
        assert_eq!(late.ask(map()).await.unwrap_err(), ErrorKind::AccessDenied);
    });
}
