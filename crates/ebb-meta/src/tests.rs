//! Tests of the machine as a whole.

mod attrs;
mod datasets;
mod determinism;
mod extras;
mod felled;
mod files;
mod garbage;
mod harness;
mod lineage;
mod listing;
mod lock_model;
mod locks;
mod model;
mod names;
mod nodes;
mod permissions;
mod power;
mod raid;
mod raid_on_volumes;
mod removal;
mod renames;
mod sessions;
mod snapshots;
mod takeovers;
mod trash;
mod xattrs;
