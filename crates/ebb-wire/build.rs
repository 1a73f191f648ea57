//! Generates the message types from `proto/`. Needs `protoc` (Debian: protobuf-compiler).

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto");
    prost_build::Config::new()
        .bytes([".ebb.MetaOp.SetXattr.value", ".ebb.RaftMessage"])
        .compile_protos(&["proto/common.proto", "proto/meta.proto", "proto/node.proto", "proto/block.proto", "proto/worker.proto", "proto/log.proto"], &["proto"])
}
