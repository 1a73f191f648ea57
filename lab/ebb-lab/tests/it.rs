//! The program as a user runs it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests live in the real world")]

#[path = "it/lab.rs"]
mod lab;
#[path = "it/plan.rs"]
mod plan;
#[path = "it/plan_lsn.rs"]
mod plan_lsn;
#[path = "it/soak.rs"]
mod soak;
