//! The registry: every decoder. Adding one is a line here, a constant in its module, and a row in the table for people.

mod files;
mod meta;
mod power;
mod store;
mod wire;

use crate::target::Target;

/// Every target. The rows of `docs/formats/decoders.md` are in the same order.
pub const ALL: &[Target] = &[
    wire::FRAME,
    wire::HELLO,
    wire::REQUESTS,
    wire::REPLIES,
    wire::SHARE,
    wire::FUSE,
    meta::COMMANDS,
    meta::QUERIES,
    meta::RECORDS,
    meta::BLOB,
    store::MASTER_SEGMENT,
    store::MASTER_HINT,
    store::MASTER_IDENTITY,
    store::MASTER_ACCEPTED,
    store::MASTER_CHECKPOINT,
    store::INDEX,
    store::JOURNAL,
    store::LABEL,
    store::NODE,
    store::CHECK,
    store::HANDOFF_SEGMENT,
    store::HANDOFF_CALL,
    power::PLAN,
    power::TRACE,
    power::FOLLOW,
    power::SETTINGS,
    power::ACCOUNT,
    power::UPS,
    power::REDFISH,
    power::CARBON,
    power::OPENADR,
    power::PREDICTION,
    power::IPMITOOL,
    files::SIGNAL,
    files::HISTOGRAM,
    files::FIND,
];
