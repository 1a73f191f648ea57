//! The state as a stream of records, and back.
//!
//! Indexes are not written, as they follow from the inodes. A checksum is chained over all records. So a stream that
//! has lost, gained or swapped a record is refused.

use std::sync::Arc;

use ebb_types::{
    ClusterId, DatasetId, Epoch, Error, FileKind, Geometry, HostName, InodeId, MetablockId, NodeId, RequestId, Result,
    SessionId, SnapshotId, VolumeId, bail,
};
use ebb_wire::frame::crc32c;
use ebb_wire::pb;
use ebb_wire::pb::checkpoint_record::Record;
use ebb_wire::{Message, convert};

use crate::dataset::Usage;
use crate::dir::Entries;
use crate::inode::{Body, Inode, LINK_MAX};
use crate::known::decode_known;
use crate::lineage::Lineage;
use crate::locks::Lock;
use crate::machine::{Machine, NUMBER_MAX, NextIds};
use crate::map::Metablock;
use crate::ops::grant::check_members;
use crate::raid::record::raid_record;
use crate::raid::thaw::Heir;
use crate::replicas::Owner;
use crate::session::Session;
use crate::trust::Trust;
use crate::version;

pub(crate) mod inode;

use inode::{body, check_attr, check_block, lock_table, xattrs};

/// Format of the records. It rises when their meaning changes.
pub const CHECKPOINT_FORMAT: u32 = 1;

/// Checksum over a stream of records. Each record is mixed with the sum of the records before it.
#[derive(Clone, Copy, Default)]
struct RunningSum {
    records: u64,
    checksum: u32,
}

impl RunningSum {
    fn add(&mut self, record: &[u8], buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend(self.checksum.to_le_bytes());
        buffer.extend_from_slice(record);
        self.checksum = crc32c(buffer);
        self.records += 1;
    }

    fn trailer(&self) -> Record {
        Record::Trailer(pb::CheckpointTrailer { records: self.records, checksum: self.checksum })
    }
}

impl Machine {
    /// Encodes the whole state, applied up to this index and term of the log. The header comes first, the trailer last.
    /// `emit` receives one encoded record at a time.
    pub fn encode_records(&self, index: u64, term: u64, mut emit: impl FnMut(&[u8])) {
        let (mut sum, mut encoded, mut buffer) = (RunningSum::default(), Vec::new(), Vec::new());
        let mut encode = |record: Record, encoded: &mut Vec<u8>| {
            encoded.clear();
            pb::CheckpointRecord { record: Some(record) }.encode_raw(encoded);
            emit(encoded);
        };
        for record in std::iter::once(self.header(index, term)).chain(self.body()) {
            encode(record, &mut encoded);
            sum.add(&encoded, &mut buffer);
        }
        encode(sum.trailer(), &mut encoded);
    }

    /// A hash over the whole state. Equal states have equal digests, in any process.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut buffer = Vec::new();
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for record in std::iter::once(self.header(0, 0)).chain(self.body()) {
            buffer.clear();
            pb::CheckpointRecord { record: Some(record) }.encode_raw(&mut buffer);
            // FNV-1a, 64 bits, with the length so that records cannot run into each other.
            for byte in (buffer.len() as u64).to_le_bytes().iter().chain(&buffer) {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        hash
    }

    fn header(&self, index: u64, term: u64) -> Record {
        Record::Header(pb::CheckpointHeader {
            format: CHECKPOINT_FORMAT,
            cluster: self.cluster.map_or(0, ClusterId::raw),
            applied_index: index,
            applied_term: term,
            next_inode: self.next.inode.raw(),
            next_metablock: self.next.metablock.raw(),
            next_session: self.next.session.raw(),
            next_node: self.next.node.raw(),
            next_volume: self.next.volume.raw(),
            next_dataset: self.next.dataset.raw(),
            version: if self.version == version::OLDEST { 0 } else { self.version },
            // A cluster without snapshots is as the release before reads it.
            next_snapshot: if self.next.snapshot == SnapshotId::new(1) { 0 } else { self.next.snapshot.raw() },
        })
    }

    fn body(&self) -> impl Iterator<Item = Record> + '_ {
        let inodes = self.inodes.iter().map(|(id, inode)| Record::Inode(self.inode_record(*id, inode)));
        let entries = self.entries.iter().map(|(key, entry)| {
            Record::Entry(pb::DirEntryRecord {
                parent: key.parent.raw(),
                name: key.name.to_vec(),
                inode: entry.inode.raw(),
                cookie: entry.cookie,
                kind: self.inodes.get(&entry.inode).map_or(0, |inode| inode.kind().raw()),
            })
        });
        let sessions = self.sessions.iter().map(|(id, session)| Record::Session(session_record(id, session)));
        let nodes = self.registry.records().map(Record::Node);
        let datasets = self.datasets.iter().map(|dataset| Record::Dataset(dataset.clone()));
        let deleted = self
            .replicas
            .deleted()
            .map(|(id, member)| Record::Deleted(pb::DeletedRecord { metablock: id.raw(), members: vec![member] }));
        let quarantined = self.replicas.quarantined().map(|(volume, id)| {
            Record::Quarantine(pb::Quarantine { volume: volume.raw(), metablocks: vec![id.raw()], release: false })
        });
        let plans = self.plans.iter().map(|plan| Record::Plan(plan.clone()));
        let extras = self.extras.iter().map(|(inode, id, members)| {
            Record::Extra(pb::ExtraRecord { inode: inode.raw(), metablock: id.raw(), members: members.to_vec() })
        });
        let lineage = self.lineage.to_record().map(Record::Lineage);
        let raid_sets = self.raid.iter().map(|(id, set)| Record::RaidSet(raid_record(id, set)));
        let taken = self.raid.taken();
        let taken = (!taken.is_empty()).then(|| pb::TakenIds { ids: taken.iter().copied().collect() });
        inodes
            .chain(entries)
            .chain(sessions)
            .chain(nodes)
            .chain(datasets)
            .chain(deleted)
            .chain(quarantined)
            .chain(plans)
            .chain(self.trust.to_record().map(Record::Trust))
            .chain(extras)
            .chain(lineage)
            // Ordering: slots of RAID sets may belong to them.
            .chain(self.snapshot_records())
            .chain(raid_sets)
            .chain(taken.map(Record::TakenIds))
    }

    fn inode_record(&self, id: InodeId, inode: &Inode) -> pb::InodeRecord {
        let mut record = self.bare_record(id, inode);
        let to_pb = |locks: &[Lock]| locks.iter().map(|lock| lock.to_pb()).collect();
        if let Some(table) = self.locks.table(id) {
            (record.locks, record.lock_queue) = (to_pb(table.held()), to_pb(table.queue()));
        }
        record.metablocks = inode.file().into_iter().flat_map(|file| file.map.iter()).map(Metablock::to_pb).collect();
        record.frozen_below = self.snapshots.frozen_for(id).raw();
        record
    }

    /// An inode without its locks and metablocks.
    pub(crate) fn bare_record(&self, id: InodeId, inode: &Inode) -> pb::InodeRecord {
        let xattrs = inode.xattrs.as_ref().map(|xattrs| xattrs.all()).unwrap_or_default();
        let mut record = pb::InodeRecord {
            attr: Some(inode.attr(id, self.datasets.settings(inode.dataset))),
            xattrs: xattrs.into_iter().map(|(name, value)| pb::Xattr { name, value: value.to_vec() }).collect(),
            ..Default::default()
        };
        match &inode.body {
            Body::File(file) => {
                record.holder = file.holder.map_or(0, SessionId::raw);
                record.recovering = file.recovering;
                record.pending_trim = file.trim.as_deref().copied();
                record.linkable = file.linkable;
                record.emptied = file.emptied;
                record.heirs = file.heirs.iter().map(Heir::to_pb).collect();
            }
            Body::Directory(directory) => {
                record.parent = directory.parent.raw();
                record.next_cookie = directory.next_cookie;
            }
            Body::Symlink(target) => record.target = target.to_vec(),
            Body::Fifo | Body::Socket | Body::CharDevice | Body::BlockDevice => {}
        }
        record
    }

    /// Decodes a state, and the index and term of the last applied entry of the log. A stream that is cut, damaged or
    /// of another format is refused (kind `Corrupt` or `Unsupported`).
    pub fn from_records<'a>(records: impl Iterator<Item = Result<&'a [u8]>> + Clone) -> Result<(Self, u64, u64)> {
        Names::load(records.clone())?.join(Remainder::load(records)?)
    }
}

/// Half of a state that is being loaded: the entries of all directories. It takes about as long as the [`Remainder`], and
/// neither needs the other. So two threads can load them.
pub struct Names {
    entries: Entries,
    /// Number of entries of each directory, and the inodes that they lead to.
    counts: Vec<(InodeId, u64)>,
    targets: Vec<(InodeId, InodeId)>,
}

/// The other half: everything but the entries.
pub struct Remainder {
    loader: Loader,
}

/// Whether an encoded record is a directory entry. Such a record is one field, with this tag.
fn is_entry(encoded: &[u8]) -> bool {
    const TAG: u8 = (3 << 3) | 2;
    encoded.first() == Some(&TAG)
}

fn decode(encoded: &[u8], number: u64) -> Result<pb::CheckpointRecord> {
    decode_known(encoded).map_err(|error| error.context(format_args!("record {number}")))
}

impl Names {
    /// Loads the entries of a stream of records, and ignores all other records.
    pub fn load<'a>(records: impl Iterator<Item = Result<&'a [u8]>>) -> Result<Self> {
        let mut names = Self { entries: Entries::default(), counts: Vec::new(), targets: Vec::new() };
        for (number, encoded) in records.enumerate() {
            let encoded = encoded?;
            if !is_entry(encoded) {
                continue;
            }
            let Some(Record::Entry(entry)) = decode(encoded, number as u64)?.record else {
                bail!(Corrupt, "record {number} begins as an entry and is none");
            };
            let (parent, inode) = (InodeId::new(entry.parent), InodeId::new(entry.inode));
            match names.counts.last_mut() {
                // They stand together.
                Some((same, count)) if *same == parent => *count += 1,
                _ => names.counts.push((parent, 1)),
            }
            names.targets.push((parent, inode));
            // A stream with one name twice is not refused here: `check` reports it.
            let _is_new = names.entries.insert(parent, &entry.name, inode, entry.cookie);
        }
        Ok(names)
    }

    /// Joins both halves, and checks that they belong to each other.
    pub fn join(self, rest: Remainder) -> Result<(Machine, u64, u64)> {
        let mut loader = rest.loader;
        let mut subdirectories = std::collections::BTreeMap::<InodeId, u32>::new();
        for (parent, inode) in self.targets {
            match loader.machine.inodes.get(&inode) {
                Some(inode) if inode.is_directory() => *subdirectories.entry(parent).or_default() += 1,
                Some(_) => {}
                None => bail!(Corrupt, "an entry of {parent} leads to {inode}, which is not recorded"),
            }
        }
        for (parent, count) in self.counts {
            let inode = loader.machine.inodes.get_mut(&parent).map(Arc::make_mut);
            let Some((nlink, directory)) = inode.and_then(|inode| Some((inode.nlink, inode.directory_mut()?))) else {
                bail!(Corrupt, "{parent} has an entry and is not a directory");
            };
            directory.count += count;
            // One that was removed with everything below it has no links.
            if nlink == 0 {
                loader.machine.orphans.remove(&parent);
                loader.machine.felled.insert(parent);
                continue;
            }
            // Each of its directories takes a link with it when it goes.
            if nlink != 2 + subdirectories.get(&parent).copied().unwrap_or_default() {
                bail!(Corrupt, "{parent} has {nlink} links, which do not follow from its directories");
            }
        }
        loader.machine.entries = self.entries;
        loader.finish()
    }
}

impl Remainder {
    /// Loads the records that are not entries. It checks the trailer's count and checksum over all records.
    pub fn load<'a>(records: impl Iterator<Item = Result<&'a [u8]>>) -> Result<Self> {
        let mut loader = Loader { machine: Machine::empty(), place: None };
        let (mut sum, mut buffer) = (RunningSum::default(), Vec::new());
        for encoded in records {
            let encoded = encoded?;
            if is_entry(encoded) {
                if loader.place.is_none() {
                    bail!(Corrupt, "the checkpoint does not start with its header");
                }
                sum.add(encoded, &mut buffer);
                continue;
            }
            let record = decode(encoded, sum.records)?;
            if let Some(Record::Trailer(trailer)) = &record.record {
                if (trailer.records, trailer.checksum) != (sum.records, sum.checksum) {
                    bail!(
                        Corrupt,
                        "the checkpoint's {} records do not match its trailer ({})",
                        sum.records,
                        trailer.records
                    );
                }
                return Ok(Self { loader });
            }
            sum.add(encoded, &mut buffer);
            loader.load(record)?;
        }
        bail!(Corrupt, "the checkpoint ends after {} records without a trailer", sum.records)
    }
}

struct Loader {
    machine: Machine,
    /// Index and term of the last applied entry, after the header.
    place: Option<(u64, u64)>,
}

impl Loader {
    fn load(&mut self, record: pb::CheckpointRecord) -> Result<()> {
        let Some(record) = record.record else { bail!(Unsupported, "a checkpoint record of an unknown kind") };
        if let Record::Header(header) = record {
            return self.load_header(&header);
        }
        if self.place.is_none() {
            bail!(Corrupt, "the checkpoint does not start with its header");
        }
        match record {
            Record::Header(_) | Record::Trailer(_) | Record::Entry(_) => bail!(Internal, "handled before"),
            Record::Inode(inode) => self.load_inode(inode),
            Record::Session(session) => self.load_session(session),
            Record::Node(node) => self.machine.registry.restore(node),
            Record::Dataset(dataset) => {
                let geometry = Geometry { block_size: dataset.block_size, metablock_size: dataset.metablock_size };
                if let Err(sentence) = geometry.check() {
                    bail!(Corrupt, "ds{}: {sentence}", dataset.id);
                }
                self.machine.datasets.insert(dataset);
                Ok(())
            }
            Record::Quarantine(quarantined) => {
                for id in &quarantined.metablocks {
                    self.machine.replicas.quarantine(VolumeId::new(quarantined.volume), MetablockId::new(*id));
                }
                Ok(())
            }
            Record::Trust(record) => {
                self.machine.trust = Trust::from_record(record)?;
                Ok(())
            }
            Record::Plan(plan) => {
                self.machine.plans.push(plan);
                Ok(())
            }
            Record::Extra(extra) => {
                let (inode, id) = (InodeId::new(extra.inode), MetablockId::new(extra.metablock));
                if check_members(&extra.members).is_err() || self.machine.replicas.owner(id) != Some(inode) {
                    bail!(Corrupt, "{inode} has extra copies of {id}, which is not its own");
                }
                self.machine.extras.put(inode, id, &extra.members);
                Ok(())
            }
            Record::Lineage(record) => {
                self.machine.lineage = Lineage::from_record(&record)?;
                Ok(())
            }
            Record::RaidSet(record) => self.machine.load_raid_set(&record),
            Record::TakenIds(record) => self.machine.load_taken(&record),
            Record::Snapshot(record) => self.machine.load_snapshot(&record),
            Record::Kept(record) => self.machine.load_kept(&record),
            Record::PastInode(record) => {
                let Some(inode) = record.inode else { bail!(Corrupt, "snap{} keeps nothing", record.snapshot) };
                let (id, inode) = decode_inode(inode)?;
                self.machine.load_past_inode(SnapshotId::new(record.snapshot), id, inode)
            }
            Record::PastEntry(record) => self.machine.load_past_name(&record),
            Record::Deleted(deleted) => {
                for member in &deleted.members {
                    self.machine.replicas.load_deleted(MetablockId::new(deleted.metablock), *member);
                }
                Ok(())
            }
        }
    }

    fn load_header(&mut self, header: &pb::CheckpointHeader) -> Result<()> {
        if self.place.is_some() {
            bail!(Corrupt, "the checkpoint has two headers");
        }
        if header.format != CHECKPOINT_FORMAT {
            bail!(
                Unsupported,
                "checkpoint format {} is not {CHECKPOINT_FORMAT}: another release wrote it",
                header.format
            );
        }
        if header.version > version::NEWEST {
            return Err(version::too_new(header.version));
        }
        let counters = [
            header.next_inode,
            header.next_metablock,
            header.next_session,
            header.next_node,
            header.next_volume,
            header.next_dataset,
            header.next_snapshot.max(1),
        ];
        if !counters.iter().all(|next| (1..=2 * NUMBER_MAX).contains(next)) || header.applied_index > NUMBER_MAX {
            bail!(Corrupt, "the checkpoint's counters are where no cluster gets: {header:?}");
        }
        self.machine.version = header.version.max(version::OLDEST);
        self.machine.cluster = (header.cluster != 0).then(|| ClusterId::new(header.cluster));
        self.machine.next = NextIds {
            inode: InodeId::new(header.next_inode),
            metablock: MetablockId::new(header.next_metablock),
            session: SessionId::new(header.next_session),
            node: NodeId::new(header.next_node),
            volume: VolumeId::new(header.next_volume),
            dataset: DatasetId::new(header.next_dataset),
            snapshot: SnapshotId::new(header.next_snapshot.max(1)),
        };
        self.place = Some((header.applied_index, header.applied_term));
        Ok(())
    }

    fn load_inode(&mut self, record: pb::InodeRecord) -> Result<()> {
        let table = lock_table(&record)?;
        let frozen_below = MetablockId::new(record.frozen_below);
        let (id, inode) = decode_inode(record)?;
        let machine = &mut self.machine;
        machine.snapshots.freeze_for(id, frozen_below);
        if id >= machine.next.inode {
            bail!(Corrupt, "{id} is above the counter of inodes, {}", machine.next.inode);
        }
        if let Some(file) = inode.file() {
            for block in file.map.iter() {
                check_block(block, machine.next.metablock)?;
                if !machine.replicas.add(Owner::File(id), block.id, &block.members) {
                    bail!(Corrupt, "{} is recorded in two files, {id} is one", block.id);
                }
            }
            for heir in &file.heirs {
                if file.holder.is_none() || heir.id >= machine.next.metablock {
                    bail!(Corrupt, "{} is an heir of {} in {id}, which is not written", heir.id, heir.of);
                }
                check_members(&heir.members)?;
                if !machine.replicas.add(Owner::Heir(id), heir.id, &heir.members) {
                    bail!(Corrupt, "{} is recorded twice, as an heir in {id}", heir.id);
                }
            }
            if let Some(session) = file.holder {
                machine.held.insert((session, id));
            }
            if file.recovering {
                machine.recovering.insert(id);
            }
        }
        if inode.nlink == 0 {
            machine.orphans.insert(id);
        }
        if !table.is_empty() {
            machine.locks.restore(id, table);
        }
        if machine.inodes.insert(id, Arc::new(inode)).is_some() {
            bail!(Corrupt, "{id} is recorded twice");
        }
        Ok(())
    }

    fn load_session(&mut self, record: pb::SessionRecord) -> Result<()> {
        let mut replies = std::collections::BTreeMap::new();
        for reply in record.replies {
            let outcome = match reply.failure {
                Some(failure) => Err(Error::from(failure)),
                None => Ok(pb::MetaReply::decode(reply.reply.as_slice()).map_err(|error| {
                    ebb_types::err!(Corrupt, "a reply of s{} does not decode: {error}", record.session)
                })?),
            };
            replies.insert(RequestId::new(reply.request), Arc::new(outcome));
        }
        let session = Session {
            host: HostName::new(record.host),
            role: record.role.as_str().into(),
            acknowledged: RequestId::new(record.acknowledged),
            replies,
        };
        let id = SessionId::new(record.session);
        if !self.machine.is_session_id(id) {
            bail!(Corrupt, "{id} is above the counter of sessions, {}", self.machine.next.session);
        }
        self.machine.sessions.insert(id, session);
        Ok(())
    }

    fn finish(mut self) -> Result<(Machine, u64, u64)> {
        let Some((index, term)) = self.place else { bail!(Corrupt, "the checkpoint has no header") };
        // Ids of sessions are drawn since masters have a lineage.
        let highest = self.machine.sessions.iter().map(|(id, _)| id).max();
        if let Some(id) = highest.filter(|id| *id >= self.machine.next.session && !self.machine.lineage.is_begun()) {
            bail!(Corrupt, "{id} is above the counter of sessions, {}", self.machine.next.session);
        }
        if self.machine.directory(InodeId::ROOT).is_err() {
            bail!(Corrupt, "the checkpoint has no root directory");
        }
        self.machine.check_slots()?;
        self.machine.replicas.drop_deleted_in_use();
        self.machine.finish_snapshots()?;
        let mut usage = std::collections::BTreeMap::<DatasetId, Usage>::new();
        for (id, inode) in &self.machine.inodes {
            let most = match inode.directory() {
                Some(body) if body.count > 0 => u32::MAX,
                Some(_) => 2,
                None => LINK_MAX,
            };
            // A directory counts its own `.` and its name together: it has both or none.
            if inode.nlink > most || (inode.is_directory() && inode.nlink == 1) {
                bail!(Corrupt, "{id} has {} links", inode.nlink);
            }
            let used = usage.entry(inode.dataset).or_default();
            used.inodes += 1;
            used.bytes = used.bytes.saturating_add(inode.file().map_or(0, |file| file.map.allocated_bytes()));
        }
        for (dataset, Usage { inodes: count, bytes, .. }) in usage {
            if self.machine.datasets.get(dataset).is_none() {
                bail!(Corrupt, "{dataset} has {count} inodes and is not recorded");
            }
            self.machine.datasets.count_inodes(dataset, count);
            self.machine.datasets.count_bytes(dataset, 0, bytes);
        }
        Ok((self.machine, index, term))
    }
}

fn decode_inode(mut record: pb::InodeRecord) -> Result<(InodeId, Inode)> {
    let Some(attr) = record.attr.take() else { bail!(Corrupt, "an inode record without attributes") };
    let id = InodeId::new(attr.inode);
    check_attr(&attr)?;
    let inode = Inode {
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        size: if attr.kind == FileKind::Directory.raw() { 0 } else { attr.size },
        atime: attr.atime_ns,
        mtime: attr.mtime_ns,
        ctime: attr.ctime_ns,
        btime: attr.btime_ns,
        epoch: Epoch::new(attr.epoch),
        size_generation: attr.size_generation,
        takeovers: attr.takeovers,
        dataset: DatasetId::new(attr.dataset),
        xattrs: xattrs(std::mem::take(&mut record.xattrs))?,
        body: body(&attr, &record)?,
    };
    if let Some(directory) = inode.directory()
        && directory.next_cookie > NUMBER_MAX
    {
        bail!(Corrupt, "{id} is at cookie {}", directory.next_cookie);
    }
    Ok((id, inode))
}

fn session_record(id: SessionId, session: &Session) -> pb::SessionRecord {
    let replies = session.replies.iter().map(|(request, outcome)| match &**outcome {
        Ok(reply) => pb::SessionReply { request: request.raw(), reply: reply.encode_to_vec(), failure: None },
        Err(error) => {
            pb::SessionReply { request: request.raw(), reply: Vec::new(), failure: Some(pb::Failure::from(error)) }
        }
    });
    pb::SessionRecord {
        session: id.raw(),
        host: session.host.as_str().to_owned(),
        role: session.role.to_string(),
        replies: replies.collect(),
        acknowledged: session.acknowledged.raw(),
    }
}

/// Version of a trim.
pub(crate) fn trim_version(trim: &pb::meta_op::Trim) -> ebb_types::Version {
    convert::version(trim.version)
}
