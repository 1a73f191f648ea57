//! The program as a user meets it: real processes, real sockets, a real mount.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests live in the real world")]

#[path = "it/answers.rs"]
mod answers;
#[path = "it/bad_input.rs"]
mod bad_input;
#[path = "it/caches.rs"]
mod caches;
#[path = "it/coherence.rs"]
mod coherence;
#[path = "it/commands.rs"]
mod commands;
#[path = "it/compliance.rs"]
mod compliance;
#[path = "it/copies.rs"]
mod copies;
#[path = "it/damage.rs"]
mod damage;
#[path = "it/datasets.rs"]
mod datasets;
#[path = "it/departures.rs"]
mod departures;
#[path = "it/ends.rs"]
mod ends;
#[path = "it/faults.rs"]
mod faults;
#[path = "it/fewer.rs"]
mod fewer;
#[path = "it/first_hour.rs"]
mod first_hour;
#[path = "it/frozen.rs"]
mod frozen;
#[path = "it/full.rs"]
mod full;
#[path = "it/gray.rs"]
mod gray;
#[path = "it/harness.rs"]
mod harness;
#[path = "it/hosts.rs"]
mod hosts;
#[path = "it/identities.rs"]
mod identities;
#[path = "it/jobs.rs"]
mod jobs;
#[path = "it/kills.rs"]
mod kills;
#[path = "it/lifecycle.rs"]
mod lifecycle;
#[path = "it/lineage.rs"]
mod lineage;
#[path = "it/linear.rs"]
mod linear;
#[path = "it/load.rs"]
mod load;
#[path = "it/mount.rs"]
mod mount;
#[path = "it/names.rs"]
mod names;
#[path = "it/power.rs"]
mod power;
#[path = "it/programs.rs"]
mod programs;
#[path = "it/promises.rs"]
mod promises;
#[path = "it/proxies.rs"]
mod proxies;
#[path = "it/raid.rs"]
mod raid;
#[path = "it/removal.rs"]
mod removal;
#[path = "it/returns.rs"]
mod returns;
#[path = "it/scarce.rs"]
mod scarce;
#[path = "it/several.rs"]
mod several;
#[path = "it/shared.rs"]
mod shared;
#[path = "it/shares.rs"]
mod shares;
#[path = "it/snapshots.rs"]
mod snapshots;
#[path = "it/sub_racks.rs"]
mod sub_racks;
#[path = "it/supplies.rs"]
mod supplies;
#[path = "it/trash.rs"]
mod trash;
#[path = "it/two_builds.rs"]
mod two_builds;
#[path = "it/verdicts.rs"]
mod verdicts;
#[path = "it/waiting.rs"]
mod waiting;
#[path = "it/watch.rs"]
mod watch;
