//! Writes to what is frozen: an heir takes its place.

use std::sync::Arc;

use ebb_types::{Epoch, InodeId, MetablockId, Result, Version, bail};
use ebb_wire::convert::version;
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::machine::{Call, Machine, take_id};
use crate::map::Metablock;
use crate::outcome::Effect;
use crate::replicas::Owner;

/// A metablock that is to take a frozen one's place.
#[derive(Clone, Debug)]
pub(crate) struct Heir {
    /// The frozen one.
    pub(crate) of: MetablockId,
    pub(crate) index: u64,
    pub(crate) id: MetablockId,
    pub(crate) members: Arc<[pb::Member]>,
}

impl Heir {
    /// Whether a member of it lies on one of these nodes.
    pub(crate) fn lies_on(&self, nodes: &[u64]) -> bool {
        self.members.iter().any(|member| nodes.contains(&member.node))
    }

    /// For the holder.
    pub(crate) fn to_pb(&self) -> pb::Metablock {
        pb::Metablock {
            id: self.id.raw(),
            index: self.index,
            version: Some(Version::ZERO.into()),
            generation: 1,
            members: self.members.to_vec(),
            heir_of: self.of.raw(),
            ..Default::default()
        }
    }

    pub(crate) fn from_pb(heir: &pb::Metablock) -> Self {
        let (of, members) = (MetablockId::new(heir.heir_of), heir.members.as_slice().into());
        Self { of, index: heir.index, id: heir.metablock_id(), members }
    }
}

impl Machine {
    /// The heir of a frozen metablock. Asked again it is the same.
    pub(crate) fn grant_heir(
        &mut self,
        call: &mut Call<'_>,
        id: InodeId,
        of: &Metablock,
        members: &[pb::Member],
    ) -> pb::Metablock {
        let known = self.heirs(id).iter().find(|heir| heir.of == of.id).map(Heir::to_pb);
        if let Some(heir) = known {
            return heir;
        }
        let heir = Heir {
            of: of.id,
            index: of.index,
            id: take_id!(self.next.metablock, MetablockId),
            members: members.into(),
        };
        // It is in the index from its grant on: a replica of it is no stray.
        assert!(self.replicas.add(Owner::Heir(id), heir.id, members), "{} is assigned twice", heir.id);
        let (metablock, new) = (heir.id, members.to_vec());
        let answer = heir.to_pb();
        if let Some(file) = self.edit(id).file_mut() {
            file.heirs.push(heir);
        }
        call.effects.push(Effect::BesideChanged { metablock, old: Vec::new(), new });
        answer
    }

    pub(crate) fn heirs(&self, id: InodeId) -> &[Heir] {
        self.inodes.get(&id).and_then(|inode| inode.file()).map_or(&[], |file| &file.heirs)
    }

    /// Puts an heir in the place of a frozen metablock. All its members have the frozen bytes, at their version.
    pub(crate) fn swap(&mut self, call: &mut Call<'_>, op: &meta_op::Swap) -> Result<pb::MetaReply> {
        let (id, frozen, heir) = (InodeId::new(op.inode), MetablockId::new(op.metablock), MetablockId::new(op.heir));
        let inode = self.check_holder(call, id, Epoch::new(op.epoch))?;
        let Some(file) = inode.file() else { bail!(Invalid, "{id} is not a regular file") };
        let Some(heir) = file.heirs.iter().find(|one| (one.id, one.of) == (heir, frozen)).cloned() else {
            bail!(NotFound, "{heir} is no heir of {frozen}");
        };
        let Some(old) = file.map.get(frozen).cloned() else { bail!(NotFound, "{frozen} is not a metablock of {id}") };
        if !self.is_frozen(id, inode, &old) {
            bail!(Invalid, "{frozen} is not frozen");
        }
        // I-63: the heir goes on from exactly what the frozen one shows. Bytes behind a cut would be read again when the file
        // grows.
        if version(op.version) != old.version || op.length != old.length {
            bail!(
                SetChanged,
                "{heir} has {} bytes at {}, and {frozen} shows {} at {}",
                op.length,
                version(op.version),
                old.length,
                old.version,
                heir = heir.id
            );
        }
        let (dataset, members) = (inode.dataset, heir.members.clone());
        let block = Metablock {
            id: heir.id,
            index: heir.index,
            version: old.version,
            length: old.length,
            generation: 1,
            members,
            left_out: None,
            committed_s: call.now_s(),
            frozen: None,
        };
        self.counted(id, |machine| {
            if let Some(file) = machine.edit(id).file_mut() {
                file.heirs.retain(|one| one.id != heir.id);
                let gone = file.map.remove_where(|other| other.id == frozen);
                assert!(gone.len() == 1, "{frozen} is in the map of {id} more than once");
                assert!(file.map.insert(block.clone()), "{id} has a metablock at index {} already", block.index);
            }
        });
        self.replicas.give(heir.id, Owner::File(id));
        let (metablock, new) = (heir.id, block.members.to_vec());
        call.effects.push(Effect::SetChanged { inode: id, dataset, metablock, old: Vec::new(), new });
        // Ordering: the heir is the file's before the frozen one is ballast, so that no moment lacks the bytes.
        self.end_extras_of(call, id, frozen);
        self.lose_metablock(call, id, dataset, &old);
        call.changed(id);
        Ok(pb::MetaReply { metablocks: vec![block.to_pb()], ..self.attr_reply(id)? })
    }

    /// I-68: an heir that did not take its place has bytes that no file has.
    pub(crate) fn end_heirs(&mut self, call: &mut Call<'_>, id: InodeId, ends: impl Fn(&Heir) -> bool) {
        if !self.heirs(id).iter().any(&ends) {
            return;
        }
        let Some(file) = self.edit(id).file_mut() else { return };
        let (ended, kept) = std::mem::take(&mut file.heirs).into_iter().partition(ends);
        file.heirs = kept;
        let ended: Vec<Heir> = ended;
        for heir in ended {
            self.free_beside(call, heir.id, &heir.members);
        }
    }
}
