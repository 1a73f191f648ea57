//! Generates the message types from `proto/`. Needs `protoc` (Debian: protobuf-compiler).

const FILES: [&str; 12] = [
    "proto/common.proto",
    "proto/hello.proto",
    "proto/identity.proto",
    "proto/meta.proto",
    "proto/node.proto",
    "proto/block.proto",
    "proto/worker.proto",
    "proto/proxy.proto",
    "proto/relay.proto",
    "proto/power.proto",
    "proto/handoff.proto",
    "proto/log.proto",
];

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto");
    prost_build::Config::new()
        .bytes([".ebb.MetaOp.SetXattr.value", ".ebb.RaftMessage"])
        .compile_protos(&FILES, &["proto"])
}
