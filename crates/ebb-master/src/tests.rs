//! Tests of the whole master, and helpers that the tests of its parts share.

mod callers;
mod disk_faults;
mod durability;
mod fake;
mod guests;
pub(crate) mod harness;
mod leases;
mod opening;
mod overload;
mod recovery;
mod repair;
mod rights;
mod room;
mod watches;

use std::future::Future;
use std::path::PathBuf;

use ebb_runtime::Runtime;
use ebb_wire::pb;

/// Runs a test on the real back end, with a directory of its own.
pub(crate) fn block_on<F: Future<Output = ()>>(test: impl FnOnce(Runtime, PathBuf) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    threads.block_on(test(Runtime::real(), dir.path().to_owned()));
}

/// A request that makes a file in the root directory and asks for no metablock.
pub(crate) fn create_command(session: u64, request: u64, name: &str) -> pb::ClientCommand {
    let create = pb::meta_op::Create {
        parent: 1,
        name: name.as_bytes().to_vec(),
        mode: 0o644,
        no_grant: true,
        ..Default::default()
    };
    let op = Some(pb::MetaOp { op: Some(pb::meta_op::Op::Create(create)) });
    let request = pb::MetaRequest {
        session,
        request,
        acknowledged: request,
        credentials: Some(pb::Credentials::default()),
        op,
        lease: false,
    };
    pb::ClientCommand { request: Some(request), placements: Vec::new() }
}
