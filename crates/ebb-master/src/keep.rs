//! Caching of replies: which names and attributes of a reply the session may keep, decided under the locks for the
//! present state.

use std::collections::BTreeSet;

use ebb_meta::Machine;
use ebb_types::{FileKind, InodeId, SessionId};
use ebb_wire::pb;
use pb::meta_op::{self, Op};

use crate::fence::{find, parents};
use crate::soft::Soft;

/// Registers the session's watches for what this reply shows, and marks them in it. `reply` has the present state (of a
/// query), or the state when the change was applied. Facts that have changed since then are not kept.
pub(crate) fn keep(machine: &Machine, soft: &mut Soft, session: SessionId, op: &Op, reply: &mut pb::MetaReply) {
    if !soft.sessions.contains(session) {
        return;
    }
    match op {
        Op::Lookup(lookup) if is_dots(&lookup.name) => {}
        Op::Lookup(lookup) => keep_directory(soft, session, lookup.parent, reply),
        Op::ReadDir(read) => {
            keep_directory(soft, session, read.inode, reply);
            let shown = reply.entries.iter().filter_map(|entry| entry.attr.as_ref());
            let kept: Vec<u64> =
                shown.filter(|attr| may_keep(machine, soft, session, attr)).map(|attr| attr.inode).collect();
            reply.leased.extend(kept);
        }
        Op::Commit(commit) => keep_released(machine, soft, session, commit, reply),
        _ if !op.is_query() => keep_changed(machine, soft, session, op, reply),
        _ => {}
    }
    if let Some(attr) = &reply.attr
        && may_keep(machine, soft, session, attr)
    {
        reply.leased.push(attr.inode);
    }
}

fn keep_directory(soft: &mut Soft, session: SessionId, directory: u64, reply: &mut pb::MetaReply) {
    if soft.watches.watch(session, InodeId::new(directory)) {
        reply.leased.push(directory);
    }
}

/// Keeps files whose lease a commit gave back: their holder continues to read from its caches.
fn keep_released(
    machine: &Machine,
    soft: &mut Soft,
    session: SessionId,
    commit: &meta_op::Commit,
    reply: &mut pb::MetaReply,
) {
    let refused: BTreeSet<u64> = reply.refusals.iter().map(|refusal| refusal.inode).collect();
    let back = commit.files.iter().filter(|file| file.release && !file.gone && !refused.contains(&file.inode));
    for attr in back.filter_map(|file| machine.attr(InodeId::new(file.inode)).ok()) {
        if may_keep(machine, soft, session, &attr) {
            reply.leased.push(attr.inode);
            reply.released.push(attr);
        }
    }
}

/// Keeps the directories of a change, if their names are still as the change left them.
fn keep_changed(machine: &Machine, soft: &mut Soft, session: SessionId, op: &Op, reply: &mut pb::MetaReply) {
    let made = reply.attr.as_ref().map_or(0, |attr| attr.inode);
    let is = |parent: u64, name: &[u8], inode: u64| find(machine, parent, name).map_or(0, InodeId::raw) == inode;
    let lasts = match op {
        Op::Create(op) => is(op.parent, &op.name, made),
        Op::MakeDir(op) => is(op.parent, &op.name, made),
        Op::MakeNode(op) => is(op.parent, &op.name, made),
        Op::Symlink(op) => is(op.parent, &op.name, made),
        Op::Link(op) => is(op.parent, &op.name, made),
        Op::Unlink(op) => is(op.parent, &op.name, 0),
        Op::RemoveDir(op) => is(op.parent, &op.name, 0),
        Op::Rename(op) => is(op.target_parent, &op.target_name, made) && !op.exchange,
        _ => return,
    };
    for parent in parents(op).into_iter().filter(|_| lasts) {
        if let Ok(attr) = machine.attr(parent)
            && soft.watches.watch(session, parent)
        {
            reply.leased.push(parent.raw());
            reply.parents.push(attr);
        }
    }
}

/// Whether attributes may be kept. They must be the recorded ones, and no other session may be writing the file.
pub(crate) fn may_keep(machine: &Machine, soft: &mut Soft, session: SessionId, attr: &pb::Attr) -> bool {
    let inode = InodeId::new(attr.inode);
    let quiet = attr.kind != FileKind::File.raw()
        || (!attr.size_unknown && machine.holder(inode).is_none_or(|holder| holder == session));
    quiet && machine.attr(inode).as_ref() == Ok(attr) && soft.watches.watch(session, inode)
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
