//! Changes of the soft state with every applied command, in the same step.

use ebb_meta::{Applied, Effect, Machine, Reply};
use ebb_power::{PowerPlan, wall_ms};
use ebb_runtime::Moment;
use ebb_types::{DatasetId, HostName, InodeId, Result, SessionId};
use ebb_wire::pb;
use pb::command::Command as Op;
use pb::meta_op::Op as MetaOp;

use super::Soft;
use crate::copies::repair::Condition;
use crate::group::Observer;
use crate::raid::choose::longest_row_bytes;
use crate::sessions::Reclaim;
use crate::shared::State;
use crate::view::condition;
use crate::work::Presence;

impl Observer for State {
    fn on_applied(&self, machine: &Machine, command: &pb::Command, applied: &Applied) {
        let mut soft = self.soft();
        if let Some(op) = &command.command {
            self.on_command(machine, &mut soft, op, applied);
        }
        if let (Some(Op::ReplaceInChain(replace)), Ok(_)) = (&command.command, &applied.reply) {
            soft.chains.on_replaced(machine, replace);
        }
        if let (Some(Op::JoinChain(join)), Ok(_)) = (&command.command, &applied.reply) {
            soft.chains.on_chain_changed(machine, DatasetId::new(join.dataset));
        }
        crate::room::on_applied(&mut soft.room, machine, command, &applied.effects);
        for effect in &applied.effects {
            self.on_effect(machine, &mut soft, command, effect);
        }
    }
}

impl State {
    fn on_command(&self, machine: &Machine, soft: &mut Soft, op: &Op, applied: &Applied) {
        match (op, &applied.reply) {
            (Op::OpenSession(open), Ok(Reply::Session(session))) => {
                soft.sessions.insert(*session, HostName::new(open.host.clone()), Reclaim::Done, self.runtime.now());
            }
            (Op::CloseSession(session), _) => {
                let session = SessionId::new(*session);
                soft.sessions.remove(session);
                soft.leases.drop_session(session);
                soft.watches.drop_session(session);
                if let Some(vouched) = &mut soft.vouched {
                    vouched.forget(session);
                }
                if soft.sharing.drop_session(session) {
                    // Clients of that proxy need another one.
                    soft.registry.bump();
                    soft.sessions.wake_all();
                }
                self.wake.reap.notify_one();
            }
            (Op::AcquireWrite(acquire), Ok(_)) => {
                let (session, inode) = (SessionId::new(acquire.session), InodeId::new(acquire.inode));
                soft.leases.remove_reader(session, inode);
                soft.sharing.on_lease(session, inode);
                soft.leases.touch(inode);
            }
            (Op::InitCluster(_), Ok(_)) => {
                // The default dataset was there before its settings.
                for dataset in machine.datasets() {
                    soft.chains.on_settings(machine, dataset);
                }
                soft.registry.set_row_bytes(longest_row_bytes(machine));
            }
            (Op::FinishRecovery(finish), Ok(_)) => soft.leases.touch(InodeId::new(finish.inode)),
            (Op::RegisterNode(_) | Op::SetNodeState(_), Ok(_)) => {
                soft.registry.bump();
                soft.sessions.wake_all();
            }
            (Op::ForgetNode(forget), Ok(_)) => soft.on_node_removed(machine, forget),
            (Op::PublishPlan(published), Ok(_)) => {
                self.on_plan(soft, published);
                soft.sessions.wake_all();
            }
            (Op::Client(client), reply) => {
                if let Ok(Reply::Meta(pb::MetaReply { dataset: Some(dataset), .. })) = reply {
                    soft.registry.set_row_bytes(longest_row_bytes(machine));
                    if soft.chains.on_settings(machine, dataset) {
                        soft.work.rescan = true;
                        self.wake.repair.notify_one();
                    }
                }
                Self::on_commit(machine, soft, client, reply);
                on_client(machine, soft, client, reply, self.runtime.now());
            }
            _ => {}
        }
    }

    fn on_commit(machine: &Machine, soft: &mut Soft, client: &pb::ClientCommand, reply: &Result<Reply>) {
        let op = client.request.as_ref().and_then(|request| request.op.as_ref()?.op.as_ref());
        if let (Some(MetaOp::Commit(commit)), Ok(_)) = (op, reply) {
            for inode in commit.files.iter().filter(|file| file.gone).map(|file| InodeId::new(file.inode)) {
                if machine.is_emptied(inode) {
                    tracing::trace!(%inode, "the bytes of a removed file were dropped");
                    soft.nameless.end(inode);
                }
            }
            soft.popular.on_commit(&commit.files);
        }
    }

    fn on_plan(&self, soft: &mut Soft, published: &pb::PublishedPlan) {
        let now_ms = wall_ms(self.runtime.wall());
        let taken = PowerPlan::decode(&published.plan).and_then(|plan| soft.plans.accept(plan, now_ms));
        if let Err(error) = taken {
            tracing::error!(version = published.version, %error, "a logged power plan cannot be followed");
        }
        self.wake.plans.notify_waiters();
    }

    fn on_effect(&self, machine: &Machine, soft: &mut Soft, command: &pb::Command, effect: &Effect) {
        match effect {
            Effect::SetChanged { dataset, metablock, old, new, .. } => {
                soft.chains.on_set_changed(*dataset, old, new);
                soft.holdings.on_set_changed(*dataset, old, new);
                // A set with all wanted copies on good nodes needs no examination. Otherwise a node may have begun to
                // drain, or have died, since the placement. The queue of that node's sets did not include this one.
                let wanted = machine.dataset(*dataset).map_or(0, |dataset| dataset.replicas as usize);
                let is_good = |member| condition(machine, soft, *metablock, member) == Condition::Good;
                if old.is_empty() && new.len() >= wanted && new.iter().all(is_good) {
                    return;
                }
                let exists = machine.has_metablock(*metablock);
                let presence = if exists { Presence::Mapped } else { Presence::Freed };
                soft.work.on_set_changed(*metablock, old, new, presence);
                if !exists {
                    soft.popular.forget(*metablock);
                }
                self.wake.repair.notify_one();
                self.wake.deletes.notify_one();
            }
            Effect::ExtrasChanged { metablock, old, new, .. } => {
                let (work, popular) = (&mut soft.work, &mut soft.popular);
                for member in old.iter().chain(new) {
                    let volume = member.volume_id();
                    popular.acquit(&(*metablock, volume));
                    if machine.is_placed_on(*metablock, volume) {
                        work.excess.remove(&(volume, *metablock));
                    } else if machine.has_metablock(*metablock) {
                        work.excess.insert((volume, *metablock));
                    }
                }
                self.wake.deletes.notify_one();
            }
            // It is freed when no session can open it any more. The reaper wakes up for that by itself.
            Effect::Orphaned(inode) => soft.nameless.add(*inode, self.runtime.now()),
            Effect::LeftOutChanged { metablock, old } => {
                let work = &mut soft.work;
                let now = machine.find_record(*metablock).map(|record| record.left_out);
                for member in old.iter().chain(now.iter().flatten()).filter_map(|one| one.member) {
                    let volume = member.volume_id();
                    let is_wanted = machine.is_left_out(*metablock, volume) || machine.is_placed_on(*metablock, volume);
                    if is_wanted {
                        work.excess.remove(&(volume, *metablock));
                    } else if now.is_some() {
                        work.excess.insert((volume, *metablock));
                    }
                }
                self.wake.deletes.notify_one();
            }
            Effect::Freed(inode) => {
                soft.nameless.end(*inode);
                soft.leases.drop_file(*inode);
                soft.watches.drop_inode(*inode);
                self.wake.deletes.notify_one();
            }
            Effect::Changed { inode, by } => {
                let interested = soft.leases.interested(*inode);
                soft.sessions.announce_change(interested, *inode, *by);
            }
            Effect::LockGranted { session, inode, owner, flock, deadlock } => {
                let lock = pb::LockGranted { inode: inode.raw(), owner: *owner, flock: *flock, deadlock: *deadlock };
                soft.sessions.grant_lock(*session, lock);
            }
            Effect::LeaseEnded { inode, session } => {
                // A holder that commits and releases may continue to read from its caches (a recall that keeps READ).
                // Its answer to the recall comes later, so it counts as a reader from now on.
                if matches!(command.command, Some(Op::Client(_))) && soft.sessions.contains(*session) {
                    soft.leases.add_reader(*session, *inode);
                }
                soft.leases.touch(*inode);
                self.wake.repair.notify_one();
                self.wake.reap.notify_one();
            }
            Effect::BesideChanged { metablock, old, new } => {
                let presence = if machine.has_metablock(*metablock) { Presence::Mapped } else { Presence::Freed };
                soft.work.on_set_changed(*metablock, old, new, presence);
                self.wake.deletes.notify_one();
            }
            Effect::KeptChanged { dataset, metablock, old, new } => {
                soft.holdings.on_set_changed(*dataset, old, new);
                let presence = if machine.has_metablock(*metablock) { Presence::Mapped } else { Presence::Freed };
                soft.work.on_set_changed(*metablock, old, new, presence);
                self.wake.repair.notify_one();
                self.wake.deletes.notify_one();
            }
            // Its replicas have effects of their own, and its next step is found by the next look.
            Effect::RaidSetChanged(id) => soft.holdings.on_raid_set(*id, machine.raid_set(*id).as_ref()),
            Effect::NeedsRecovery(inode) => {
                soft.work.recoveries.insert(*inode);
                self.wake.recovery.notify_one();
            }
        }
    }
}

fn on_client(machine: &Machine, soft: &mut Soft, client: &pb::ClientCommand, reply: &Result<Reply>, now: Moment) {
    let Some(request) = &client.request else { return };
    let session = SessionId::new(request.session);
    let is_new = soft.sessions.note_request(session, request.request);
    match (request.op.as_ref().and_then(|op| op.op.as_ref()), reply) {
        (Some(MetaOp::Create(_)), Ok(Reply::Meta(pb::MetaReply { attr: Some(attr), .. })))
            if soft.sessions.contains(session) && machine.attr(InodeId::new(attr.inode)).is_ok() =>
        {
            soft.leases.add_open(session, InodeId::new(attr.inode), 0);
        }
        // I-12: a repeated request is answered again, but must not drop a grant that came after the first one.
        (Some(MetaOp::SetLock(set)), _) if is_new => {
            if let Some(lock) = &set.lock {
                soft.sessions.forget_lock(session, InodeId::new(set.inode), lock.owner, lock.flock);
            }
        }
        (Some(MetaOp::Swap(swap)), Ok(_)) if is_new => {
            if let Ok(dataset) = machine.dataset_of(InodeId::new(swap.inode)) {
                soft.thaws.add(DatasetId::new(dataset.id), swap.length, now);
            }
        }
        _ => {}
    }
}
