//! Datasets: directory trees with one layout, number of replicas and geometry.

use std::sync::Arc;

use ebb_types::{
    DatasetId, Domain, Encode, Geometry, InodeId, LOG_COPIES_MIN, NodeClass, Prefetch, RAID_METABLOCK_SIZE_MAX,
    ReadRule, Redundancy, Result, bail,
};
use ebb_wire::pb;
use imbl::OrdMap;

/// Replication in which the writer sends to every member.
pub(crate) const SINGLE_SOURCE: &str = "single-source";
/// Replication in which each member forwards to the next.
pub(crate) const PIPELINE: &str = "pipeline";
/// Layout of the default dataset.
const LAYOUT_DEFAULT: &str = "random";
/// Replicas of the default dataset, unless the cluster was made with another number.
const REPLICAS_DEFAULT: u32 = 3;
/// Most members of a set.
pub(crate) const REPLICAS_MAX: u32 = 16;
/// Most percent of the unused capacity that extra copies may take.
const EXTRA_SHARE_MAX: u32 = 90;
/// Greatest weight of a share, and greatest priority.
const SHARE_MAX: u32 = 1_000;
/// Most nodes of a chain.
const CHAIN_MAX: usize = 65_536;
const DEFAULT: DatasetId = DatasetId::new(0);

/// What a dataset contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// Inodes in it. The dataset ends with the last one.
    pub(crate) inodes: u64,
    /// Committed bytes of its files, of one copy.
    pub(crate) bytes: u64,
    /// Inodes that are gone, and that snapshots show.
    pub(crate) past_inodes: u64,
    /// Bytes that snapshots alone have, of one copy.
    pub(crate) kept_bytes: u64,
}

#[derive(Clone, Debug)]
struct Row {
    settings: Arc<pb::Dataset>,
    usage: Usage,
}

/// All datasets. The default dataset has id 0 and always exists.
#[derive(Clone)]
pub(crate) struct Datasets {
    rows: OrdMap<DatasetId, Row>,
    /// Settings in place of a dataset that is missing. So no reader has to fail.
    fallback: Arc<pb::Dataset>,
}

impl Datasets {
    /// The default dataset with the root directory in it.
    pub(crate) fn new() -> Self {
        let mut new = Self::empty();
        new.rows.insert(
            DEFAULT,
            Row { settings: Arc::clone(&new.fallback), usage: Usage { inodes: 1, ..Usage::default() } },
        );
        new
    }

    pub(crate) fn empty() -> Self {
        let geometry = Geometry::default();
        let fallback = pb::Dataset {
            id: DEFAULT.raw(),
            path: "/".into(),
            root_inode: InodeId::ROOT.raw(),
            layout: LAYOUT_DEFAULT.into(),
            replicas: REPLICAS_DEFAULT,
            block_size: geometry.block_size,
            metablock_size: geometry.metablock_size,
            replication: PIPELINE.into(),
            ..Default::default()
        };
        Self { rows: OrdMap::new(), fallback: Arc::new(fallback) }
    }

    pub(crate) fn get(&self, id: DatasetId) -> Option<&pb::Dataset> {
        self.rows.get(&id).map(|row| &*row.settings)
    }

    /// Settings of the dataset of an inode.
    pub(crate) fn settings(&self, id: DatasetId) -> &pb::Dataset {
        self.get(id).unwrap_or(&self.fallback)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &pb::Dataset> {
        self.rows.values().map(|row| &*row.settings)
    }

    /// What each dataset contains, in order of id.
    pub(crate) fn usages(&self) -> impl Iterator<Item = (DatasetId, Usage)> + '_ {
        self.rows.iter().map(|(id, row)| (*id, row.usage))
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The dataset that has this directory as its root.
    pub(crate) fn rooted_at(&self, inode: InodeId) -> Option<&pb::Dataset> {
        self.iter().find(|dataset| dataset.root_inode == inode.raw())
    }

    /// Adds a dataset without inodes, or replaces its settings.
    pub(crate) fn insert(&mut self, settings: pb::Dataset) {
        let id = DatasetId::new(settings.id);
        let usage = self.usage(id);
        self.rows.insert(id, Row { settings: Arc::new(settings), usage });
    }

    /// Replaces a node of a dataset's chain. Fails with kind `Stale` if the chain has changed since the command was
    /// proposed.
    pub(crate) fn replace_in_chain(&mut self, op: &pb::ReplaceInChain) -> Result<()> {
        let id = DatasetId::new(op.dataset);
        let Some(settings) = self.get(id) else { bail!(NotFound, "there is no dataset {id}") };
        if !settings.chain.contains(&op.gone) || settings.chain.contains(&op.by) || op.by == 0 {
            bail!(Stale, "n{} does not take the place of n{} on the chain of {}", op.by, op.gone, settings.path);
        }
        self.leave_chain(id, op.gone, op.by);
        Ok(())
    }

    /// Adds a node to a dataset's chain. Fails with kind `Stale` if it is on it, or if there is no chain.
    pub(crate) fn join_chain(&mut self, op: &pb::JoinChain) -> Result<()> {
        let id = DatasetId::new(op.dataset);
        let Some(settings) = self.get(id) else { bail!(NotFound, "there is no dataset {id}") };
        if settings.chain.is_empty() || settings.chain.contains(&op.node) || settings.chain.len() >= CHAIN_MAX {
            bail!(Stale, "n{} does not join the chain of {}", op.node, settings.path);
        }
        let mut settings = settings.clone();
        let place = if op.first { 0 } else { settings.chain.len() };
        settings.chain.insert(place, op.node);
        self.insert(settings);
        Ok(())
    }

    /// Takes a node off a dataset's chain. `by` takes its place; 0: the chain is shorter, and so is the number of nodes
    /// that are to be active at most.
    pub(crate) fn leave_chain(&mut self, id: DatasetId, gone: u64, by: u64) {
        let Some(settings) = self.get(id) else { return };
        let mut settings = settings.clone();
        if by == 0 {
            settings.chain.retain(|node| *node != gone);
            settings.active = settings.active.min(u32::try_from(settings.chain.len()).unwrap_or(u32::MAX));
        } else {
            settings.chain.iter_mut().filter(|node| **node == gone).for_each(|node| *node = by);
        }
        self.insert(settings);
    }

    /// Gives a dataset another layout. `NotEmpty` if it has a file or a directory: they keep the layout that they were
    /// made with.
    pub(crate) fn place(&self, settings: &mut pb::Dataset, placement: &pb::meta_op::Placement) -> Result<()> {
        let Usage { inodes, .. } = self.usage(DatasetId::new(settings.id));
        if inodes > 1 {
            bail!(
                NotEmpty,
                "{} is not empty: files keep the layout that they were made with. Make another dataset with it",
                settings.path
            );
        }
        let pb::meta_op::Placement { layout, primaries, gear_size, chain, node_class } = placement;
        let placed = pb::Dataset {
            layout: layout.clone(),
            primaries: *primaries,
            gear_size: *gear_size,
            chain: chain.clone(),
            node_class: *node_class,
            ..settings.clone()
        };
        check_layout(&placed)?;
        check_node_class(placed.node_class)?;
        check_chain(&placed)?;
        check_raid(&placed)?;
        *settings = placed;
        Ok(())
    }

    /// What a dataset contains.
    pub(crate) fn usage(&self, id: DatasetId) -> Usage {
        self.rows.get(&id).map(|row| row.usage).unwrap_or_default()
    }

    /// Counts a change of a file's committed bytes.
    pub(crate) fn count_bytes(&mut self, id: DatasetId, from: u64, to: u64) {
        if from != to
            && let Some(row) = self.rows.get_mut(&id)
        {
            // A checkpoint may name lengths whose sum overflows, so the count is allowed to be wrong there.
            row.usage.bytes = row.usage.bytes.saturating_sub(from).saturating_add(to);
        }
    }

    /// Counts a change of what snapshots alone have, in bytes.
    pub(crate) fn count_kept(&mut self, id: DatasetId, from: u64, to: u64) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.usage.kept_bytes = row.usage.kept_bytes.saturating_sub(from).saturating_add(to);
        }
    }

    /// Counts inodes that are gone, and that snapshots show: so many more, or one less.
    pub(crate) fn count_past(&mut self, id: DatasetId, change: i64) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.usage.past_inodes = row.usage.past_inodes.saturating_add_signed(change);
        }
    }

    /// Refuses a further inode if the quota is used up.
    pub(crate) fn check_inode_quota(&self, id: DatasetId) -> Result<()> {
        // I-35: refused before the inode is made, as nothing takes it back.
        match self.rows.get(&id) {
            Some(Row { settings, usage })
                if settings.quota_inodes != 0 && usage.inodes + usage.past_inodes >= settings.quota_inodes =>
            {
                let Usage { inodes, past_inodes, .. } = *usage;
                if past_inodes > 0 {
                    bail!(
                        QuotaExceeded,
                        "{path} has {inodes} files and directories, and its snapshots {past_inodes} that were removed; its quota \
                         is {}: remove snapshots (`ebb snapshot list {path}`), or raise it",
                        settings.quota_inodes,
                        path = settings.path
                    )
                }
                bail!(
                    QuotaExceeded,
                    "{} has {inodes} files and directories, its quota is {}: remove some, or raise it",
                    settings.path,
                    settings.quota_inodes
                )
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn count_inode(&mut self, id: DatasetId) {
        self.count_inodes(id, 1);
    }

    pub(crate) fn count_inodes(&mut self, id: DatasetId, count: u64) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.usage.inodes += count;
        }
    }

    /// Counts one inode less. A dataset ends with its last inode. The default dataset always has the root.
    pub(crate) fn forget_inode(&mut self, id: DatasetId) {
        if let Some(row) = self.rows.get_mut(&id) {
            assert!(row.usage.inodes > 0, "{id} counts no inodes and loses one");
            row.usage.inodes -= 1;
            if row.usage.inodes == 0 && id != DEFAULT {
                self.rows.remove(&id);
            }
        }
    }

    /// Clears the path of the dataset that is rooted at this directory: the directory has lost its name.
    pub(crate) fn root_removed(&mut self, inode: InodeId) {
        if self.rows.len() > 1
            && let Some(dataset) = self.rooted_at(inode).cloned()
        {
            self.insert(pb::Dataset { path: String::new(), ..dataset });
        }
    }

    /// Settings of the default dataset of a new cluster. No copies: as many as without this.
    pub(crate) fn set_defaults(&mut self, replicas: u32, extra_share_percent: u32) -> Result<()> {
        check_extra_share(extra_share_percent)?;
        let mut settings = pb::Dataset { extra_share_percent, ..self.settings(DEFAULT).clone() };
        if replicas != 0 {
            check_replicas(replicas)?;
            settings.replicas = replicas;
        }
        self.insert(settings);
        Ok(())
    }

    /// The requested settings, completed from the default dataset's. Refuses settings that do not fit together.
    pub(crate) fn complete(&self, asked: &pb::Dataset) -> Result<pb::Dataset> {
        let default = self.settings(DEFAULT);
        let or_number = |asked: u64, default: u64| if asked == 0 { default } else { asked };
        let or_text = |asked: &str, default: &str| if asked.is_empty() { default } else { asked }.to_owned();
        let settings = pb::Dataset {
            id: 0,
            path: asked.path.clone(),
            root_inode: 0,
            layout: or_text(&asked.layout, &default.layout),
            replicas: if asked.replicas == 0 { default.replicas } else { asked.replicas },
            block_size: or_number(asked.block_size, default.block_size),
            metablock_size: or_number(asked.metablock_size, default.metablock_size.max(asked.block_size)),
            replication: or_text(&asked.replication, &default.replication),
            quota_bytes: asked.quota_bytes,
            quota_inodes: asked.quota_inodes,
            primaries: asked.primaries,
            gear_size: asked.gear_size,
            chain: asked.chain.clone(),
            active: asked.active,
            extra_share_percent: asked.extra_share_percent,
            prefetch: if asked.prefetch == 0 { default.prefetch } else { asked.prefetch },
            read_rule: if asked.read_rule == 0 { default.read_rule } else { asked.read_rule },
            min_copies: asked.min_copies,
            trash_seconds: asked.trash_seconds,
            log_copies: asked.log_copies,
            share: asked.share,
            priority: asked.priority,
            raid_copies: asked.raid_copies,
            raid_slots: asked.raid_slots,
            raid_rows: asked.raid_rows,
            raid_domain: asked.raid_domain,
            encode: asked.encode,
            delay_ms: asked.delay_ms,
            node_class: asked.node_class,
            ..Default::default()
        };
        check_raid(&settings)?;
        check_chain(&settings)?;
        check_extra_share(settings.extra_share_percent)?;
        check_prefetch(settings.prefetch)?;
        check_read_rule(settings.read_rule)?;
        check_node_class(settings.node_class)?;
        check_replicas(settings.replicas)?;
        check_min_copies(&settings)?;
        check_log_copies(settings.log_copies)?;
        check_share(&settings)?;
        let geometry = Geometry { block_size: settings.block_size, metablock_size: settings.metablock_size };
        if let Err(sentence) = geometry.check() {
            bail!(Invalid, "dataset {}: {sentence}", settings.path);
        }
        if ![PIPELINE, SINGLE_SOURCE].contains(&settings.replication.as_str()) {
            bail!(Invalid, "replication \"{}\" is neither {PIPELINE} nor {SINGLE_SOURCE}", settings.replication);
        }
        check_layout(&settings)?;
        Ok(settings)
    }
}

fn check_layout(settings: &pb::Dataset) -> Result<()> {
    let layout = &settings.layout;
    if layout.len() > 64 || !layout.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') {
        bail!(Invalid, "\"{}\" is not the name of a layout", layout.escape_default());
    }
    Ok(())
}

/// Checks bounds only. The leader chooses the chain, and checks that it fits the layout.
fn check_chain(settings: &pb::Dataset) -> Result<()> {
    let nodes = settings.chain.len();
    if nodes > CHAIN_MAX {
        bail!(Invalid, "an expansion chain of {nodes} nodes; at most {CHAIN_MAX} are kept");
    }
    if [settings.primaries, settings.gear_size].iter().any(|count| *count as usize > nodes) {
        bail!(Invalid, "dataset {}: more primaries or nodes in a gear than its chain of {nodes} nodes", settings.path);
    }
    Ok(())
}

/// Refuses a share that would leave no part of the unused capacity free.
pub(crate) fn check_extra_share(percent: u32) -> Result<()> {
    if percent > EXTRA_SHARE_MAX {
        bail!(Invalid, "{percent} % of the unused capacity for extra copies: between 0 and {EXTRA_SHARE_MAX}");
    }
    Ok(())
}

/// Refuses a setting that a later release may know: readers of this release could not keep to it.
pub(crate) fn check_prefetch(raw: u32) -> Result<()> {
    if Prefetch::from_raw(raw).is_none() {
        bail!(Invalid, "prefetch setting {raw} is neither a percentage nor spare");
    }
    Ok(())
}

/// Refuses a read rule that this release does not know, for the same reason as [`check_prefetch`].
pub(crate) fn check_read_rule(raw: u32) -> Result<()> {
    if ReadRule::from_raw(raw).is_none() {
        bail!(Invalid, "read rule {raw} is not known to this release");
    }
    Ok(())
}

fn check_node_class(raw: u32) -> Result<()> {
    if NodeClass::from_raw(raw).is_none() {
        bail!(Invalid, "the class {raw} of nodes is not known to this release");
    }
    Ok(())
}

/// Refuses more required copies than there are: no write could be acknowledged.
pub(crate) fn check_min_copies(settings: &pb::Dataset) -> Result<()> {
    let (min, replicas) = (settings.min_copies, settings.replicas);
    if min > replicas {
        bail!(
            Invalid,
            "dataset {}: a write would have to be on {min} members, and there are {replicas} copies: no write could be \
             acknowledged. Give --min-copies between 1 and {replicas}",
            settings.path
        );
    }
    Ok(())
}

/// Refuses a number of logs with which a single failure could lose acknowledged data, and more than any set has members.
pub(crate) fn check_log_copies(logs: u32) -> Result<()> {
    if logs != 0 && !(LOG_COPIES_MIN..=REPLICAS_MAX).contains(&logs) {
        bail!(Invalid, "{logs} logs in place of members that sleep: give between {LOG_COPIES_MIN} and {REPLICAS_MAX}");
    }
    Ok(())
}

/// Refuses a priority that would order nothing, and weights and priorities that are no plain small numbers.
pub(crate) fn check_share(settings: &pb::Dataset) -> Result<()> {
    let pb::Dataset { path, share, priority, .. } = settings;
    if *share > SHARE_MAX || *priority > SHARE_MAX {
        bail!(Invalid, "dataset {path}: a share of {share} with priority {priority}: each is at most {SHARE_MAX}");
    }
    if *priority > 0 && *share == 0 {
        bail!(Invalid, "dataset {path}: a priority orders the claims of datasets with a share: give --share, too");
    }
    Ok(())
}

/// Refuses a code that no RAID set has, metablocks too long for one, and a way to encode that this release does not know.
pub(crate) fn check_raid(settings: &pb::Dataset) -> Result<()> {
    let pb::Dataset { path, metablock_size, .. } = settings;
    let raw = settings.raid_code();
    if raw != Redundancy::Copies.to_raw() {
        if let Err(sentence) = raw.check() {
            bail!(Invalid, "dataset {path}: {sentence}");
        }
        if raw.domain == Domain::Volume && settings.layout != "lsn" {
            bail!(
                Invalid,
                "dataset {path}: RAID sets on volumes lie inside localized storage nodes, and the layout {} uses other nodes: \
                 give --layout lsn, or --domain host",
                settings.layout
            );
        }
        if *metablock_size > RAID_METABLOCK_SIZE_MAX {
            bail!(
                Invalid,
                "dataset {path}: metablocks of {metablock_size} bytes are too long for RAID sets: {RAID_METABLOCK_SIZE_MAX} \
                 at most"
            );
        }
    }
    if Encode::from_raw(settings.encode).is_none() {
        bail!(
            Invalid,
            "dataset {path}: a way to encode with number {}, which this release does not know",
            settings.encode
        );
    }
    Ok(())
}

/// Refuses a number of copies that no dataset has.
pub(crate) fn check_replicas(replicas: u32) -> Result<()> {
    if !(1..=REPLICAS_MAX).contains(&replicas) {
        bail!(Invalid, "{replicas} replicas are not between 1 and {REPLICAS_MAX}");
    }
    Ok(())
}
