//! Tests of the promises that both worlds keep. They run on each world.
//!
//! Code above may rely on all that is tested here. Differences between the worlds are not tested here, and code may not
//! rely on them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod disk;
mod local;
mod net;
mod tasks;

use std::future::Future;
use std::path::PathBuf;

use crate::Runtime;
use crate::virt::{World, WorldOptions};

/// Three processes, a place to listen and a directory.
struct Setup {
    server: Runtime,
    client: Runtime,
    /// On the server's host.
    neighbour: Runtime,
    /// Where the server may listen, port 0.
    address: String,
    /// An empty directory of the server.
    directory: PathBuf,
}

fn in_the_real_world<F: Future<Output = ()>>(body: impl FnOnce(Setup) -> F) {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    tokio.block_on(async {
        let runtime = Runtime::real();
        let address = "127.0.0.1:0".to_owned();
        let directory = temporary.path().to_owned();
        let [server, client, neighbour] = [runtime.clone(), runtime.clone(), runtime];
        body(Setup { server, client, neighbour, address, directory }).await;
    });
}

fn in_virtual_worlds<F: Future<Output = ()>>(body: impl Fn(Setup) -> F) {
    for seed in 0..4 {
        World::run(seed, WorldOptions::default(), |world| {
            let body = &body;
            async move {
                let server = world.process("h1");
                let address = format!("{}:0", server.ip());
                let directory = PathBuf::from("/data");
                let runtime = server.runtime();
                runtime.disk().create_dir_all(&directory).await.unwrap();
                let (client, neighbour) =
                    (world.process("h2").runtime(), world.process_on("h1", "neighbour").runtime());
                body(Setup { server: runtime, client, neighbour, address, directory }).await;
            }
        });
    }
}

/// Makes a test on each world of each of these functions.
macro_rules! on_both_worlds {
    ($($name:ident),* $(,)?) => {
        mod real {
            $(#[test] fn $name() { crate::conformance::in_the_real_world(super::$name); })*
        }
        mod virt {
            $(#[test] fn $name() { crate::conformance::in_virtual_worlds(super::$name); })*
        }
    };
}
use on_both_worlds;

/// Bytes that differ everywhere, so that anything out of place shows.
fn pattern(len: usize) -> bytes::Bytes {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect::<Vec<_>>().into()
}
