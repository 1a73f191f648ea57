//! Sessions: repeated requests, windows, and their end.

use ebb_types::{ErrorKind as E, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World, range};
use crate::{Effect, REQUEST_WINDOW, Reply};

fn mkdir(name: &str) -> Op {
    Op::MakeDir(meta_op::MakeDir { parent: ROOT, name: name.into(), mode: 0o755, umask: 0 })
}

fn send(world: &mut World, request: u64, acknowledged: u64, op: Op) -> Result<pb::MetaReply, E> {
    let template = world.request(op);
    let request = pb::MetaRequest { request, acknowledged, ..template };
    let command = pb::ClientCommand { request: Some(request), placements: Vec::new() };
    match world.apply(Change::Client(command)).reply {
        Ok(Reply::Meta(reply)) => Ok(reply),
        Ok(other) => panic!("not a reply to a client: {other:?}"),
        Err(error) => Err(error.kind()),
    }
}

#[test]
fn a_repeated_request_is_answered_and_not_redone() {
    let mut world = World::new();
    let first = send(&mut world, 1, 0, mkdir("a")).unwrap();
    assert!(!world.effects.is_empty());
    let again = send(&mut world, 1, 0, mkdir("a")).unwrap();
    assert_eq!(first, again);
    assert!(world.effects.is_empty());
    assert_eq!(world.names(ROOT), ["a"]);
    // A refusal is an answer too, and stays one.
    assert_eq!(send(&mut world, 2, 0, mkdir("a")), Err(E::Exists));
    send(&mut world, 3, 0, Op::RemoveDir(meta_op::RemoveDir { parent: ROOT, name: b"a".into(), whole: false }))
        .unwrap();
    assert_eq!(send(&mut world, 2, 0, mkdir("a")), Err(E::Exists));
    send(&mut world, 4, 0, mkdir("a")).unwrap();
}

#[test]
fn requests_may_overtake_each_other_within_a_window() {
    let mut world = World::new();
    for request in [5, 1, 3, 2, 4] {
        send(&mut world, request, 0, mkdir(&request.to_string())).unwrap();
    }
    assert_eq!(send(&mut world, 3, 0, mkdir("3")).unwrap().attr.unwrap().inode, 4);
    send(&mut world, 6, 4, mkdir("6")).unwrap();
    assert_eq!(send(&mut world, 3, 0, mkdir("other")), Err(E::Stale), "its reply was taken");
    assert!(send(&mut world, 4, 0, mkdir("other")).is_ok(), "4 is not below 4");
    assert_eq!(send(&mut world, 4 + REQUEST_WINDOW, 0, mkdir("far")), Err(E::Overloaded));
    assert!(send(&mut world, 4 + REQUEST_WINDOW, 5, mkdir("far")).is_ok(), "a refusal at the door uses up nothing");
    assert_eq!(send(&mut world, 0, 0, mkdir("none")), Err(E::Invalid));
}

#[test]
fn requests_must_be_whole() {
    let mut world = World::new();
    let apply = |world: &mut World, request| {
        let command = pb::ClientCommand { request, placements: Vec::new() };
        world.apply(Change::Client(command)).reply.unwrap_err().kind()
    };
    assert_eq!(apply(&mut world, None), E::Invalid);
    let whole = world.request(mkdir("a"));
    assert_eq!(apply(&mut world, Some(pb::MetaRequest { session: 99, ..whole.clone() })), E::SessionExpired);
    assert_eq!(apply(&mut world, Some(pb::MetaRequest { credentials: None, ..whole.clone() })), E::Invalid);
    let empty = pb::MetaRequest { request: 7, op: None, ..whole };
    assert_eq!(apply(&mut world, Some(empty)), E::Invalid);
    assert_eq!(send(&mut world, 8, 0, Op::GetAttr(meta_op::GetAttr { inode: ROOT })), Err(E::Invalid));
    assert_eq!(world.ask(mkdir("a")), Err(E::Invalid));
    let command = pb::Command { now_ns: 1, command: None, ..Default::default() };
    assert_eq!(world.machine.apply(&command).reply.unwrap_err().kind(), E::Invalid);
}

#[test]
fn a_closed_session_loses_locks_and_leases() {
    let mut world = World::new();
    let inode = world.create(ROOT, "f", &[1]).attr.unwrap().inode;
    world.lock(inode, range(2, 7, 0, 100), false).unwrap();
    let first = world.session;
    world.session = world.open_session();
    world.request = 0;
    assert!(world.lock(inode, range(2, 8, 50, 60), true).unwrap().queued);
    world.close_session(first);
    let granted = Effect::LockGranted {
        session: ebb_types::SessionId::new(world.session),
        inode: InodeId::new(inode),
        owner: 8,
        flock: false,
        deadlock: false,
    };
    assert!(world.effects.contains(&granted));
    assert!(world.effects.contains(&Effect::NeedsRecovery(InodeId::new(inode))));
    world.close_session(first);
    assert!(world.effects.is_empty(), "closing twice is no error and does nothing");
    world.session = first;
    assert_eq!(world.mkdir(ROOT, "d", 0o755), Err(E::SessionExpired));
    let sessions: Vec<_> =
        world.machine.sessions().map(|(id, host, role)| (id.raw(), host.to_string(), role.to_owned())).collect();
    assert_eq!(sessions, [(2, "client".to_owned(), "test".to_owned())]);
}
