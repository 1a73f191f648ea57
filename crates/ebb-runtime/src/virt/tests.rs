//! Abilities of the virtual world alone: faults, replay, and time that costs nothing.

mod disk;
mod net;
mod replay;
mod spindles;
mod time;

use std::future::Future;
use std::path::Path;

use super::{World, WorldOptions};
use crate::Runtime;

/// Runs a body once for each of a few seeds.
fn with_seeds<F: Future<Output = ()>>(seeds: std::ops::Range<u64>, body: impl Fn(World) -> F) {
    for seed in seeds {
        World::run(seed, WorldOptions::default(), &body);
    }
}

/// Makes `/d`.
async fn with_directory(runtime: &Runtime) -> &'static Path {
    let path = Path::new("/d");
    runtime.disk().create_dir_all(path).await.unwrap();
    path
}
