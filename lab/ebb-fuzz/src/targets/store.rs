//! What the master and the block servers have on their disks.

use ebb_code::fuzz as code;
use ebb_handoff::fuzz as handoff;
use ebb_master::log::fuzz as master;
use ebb_store::fuzz as store;

use crate::target::{Cap, Shape, Target, nothing};

/// A record has a header of its own: its entry is copied, and its command applied.
pub(super) const MASTER_SEGMENT: Target = Target {
    name: "master/segment",
    source: "log-N.segment",
    cap: Cap { base: 256 << 10, times: 64 },
    shape: Shape::Bytes,
    cases: 4_000,
    decode: master::segment,
    samples: master::segments,
    repair: |bytes| master::repair_segment(bytes),
};

pub(super) const MASTER_HINT: Target = Target {
    name: "master/hint",
    source: "synced",
    cap: Cap { base: 4 << 10, times: 0 },
    shape: Shape::Bytes,
    cases: 5_000,
    decode: master::hint,
    samples: master::hints,
    repair: |bytes| master::repair_hint(bytes),
};

pub(super) const MASTER_IDENTITY: Target = Target {
    name: "master/identity",
    source: "master",
    cap: Cap { base: 4 << 10, times: 4 },
    shape: Shape::Text,
    cases: 5_000,
    decode: master::identity,
    samples: master::identities,
    repair: master::repair_identity,
};

pub(super) const MASTER_ACCEPTED: Target = Target {
    name: "master/accepted",
    source: "accept-loss",
    cap: Cap { base: 4 << 10, times: 64 },
    shape: Shape::Text,
    cases: 5_000,
    decode: ebb_master::accept::fuzz,
    samples: ebb_master::accept::fuzz_samples,
    repair: nothing,
};

pub(super) const MASTER_CHECKPOINT: Target = Target {
    name: "master/checkpoint",
    source: "checkpoint-N",
    cap: super::meta::STATE,
    shape: Shape::Bytes,
    cases: 3_000,
    decode: master::checkpoint,
    samples: || super::meta::streams().iter().map(|records| master::checkpoint_of(records)).collect(),
    repair: |bytes| master::repair_checkpoint(bytes),
};

/// A replica that has a length and no bytes takes four bytes and two bits for each of its chunks: 272 KiB for a record
/// of 112 bytes.
const REPLICAS: Cap = Cap { base: 64 << 10, times: 3_000 };

pub(super) const INDEX: Target = Target {
    name: "store/index",
    source: "index-N",
    cap: Cap { base: 64 << 10, times: 24 },
    shape: Shape::Bytes,
    cases: 3_000,
    decode: store::index,
    samples: store::indexes,
    repair: store::repair_index,
};

pub(super) const JOURNAL: Target = Target {
    name: "store/journal",
    source: "journal-N",
    cap: REPLICAS,
    shape: Shape::Bytes,
    cases: 3_000,
    decode: store::journal,
    samples: store::journals,
    repair: |bytes| store::repair_journal(bytes),
};

pub(super) const LABEL: Target = Target {
    name: "store/label",
    source: "volume",
    cap: Cap { base: 4 << 10, times: 4 },
    shape: Shape::Text,
    cases: 5_000,
    decode: store::label,
    samples: store::labels,
    repair: store::repair_label,
};

pub(super) const NODE: Target = Target {
    name: "block/node",
    source: "node",
    cap: Cap { base: 4 << 10, times: 4 },
    shape: Shape::Text,
    cases: 5_000,
    decode: ebb_block::fuzz::identity,
    samples: ebb_block::fuzz::identities,
    repair: nothing,
};

/// The trailer, behind the length of its metablock (8 bytes). The checksums are copied, and encoded again.
pub(super) const CHECK: Target = Target {
    name: "raid/check",
    source: "a check metablock",
    cap: Cap { base: 16 << 10, times: 4 },
    shape: Shape::Bytes,
    cases: 3_000,
    decode: code::check,
    samples: code::trailers,
    repair: code::repair,
};

pub(super) const HANDOFF_SEGMENT: Target = Target {
    name: "handoff/segment",
    source: "offload-N",
    cap: Cap { base: 64 << 10, times: 512 },
    shape: Shape::Bytes,
    cases: 5_000,
    decode: handoff::segment,
    samples: handoff::segments,
    repair: |bytes| handoff::repair_segment(bytes),
};

pub(super) const HANDOFF_CALL: Target = Target {
    name: "handoff/call",
    source: "a peer of the cluster",
    cap: Cap { base: 64 << 10, times: 512 },
    shape: Shape::Message(2),
    cases: 5_000,
    decode: handoff::call,
    samples: handoff::calls,
    repair: |bytes| {
        // All but the last ten bytes are the message.
        if let Some(len) = bytes.len().checked_sub(12).and_then(|len| u16::try_from(len).ok()) {
            bytes[..2].copy_from_slice(&len.to_le_bytes());
        }
    },
};
