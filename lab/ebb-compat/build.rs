//! Reads the message definitions of the previous release and of this one. Generates the types of the previous one, and
//! a list of both by name. Needs `protoc` (Debian: protobuf-compiler).

#![expect(clippy::disallowed_methods, reason = "the next build makes a build script's output anew")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet};

fn main() -> std::io::Result<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for (name, folder) in [("previous", "previous"), ("current", "../../crates/ebb-wire/proto")] {
        println!("cargo::rerun-if-changed={folder}");
        let set = load(Path::new(folder))?;
        std::fs::write(out.join(format!("{name}.bin")), set.encode_to_vec())?;
        std::fs::write(out.join(format!("{name}.rs")), list(&set))?;
        if name == "previous" {
            prost_build::Config::new().compile_fds(set)?;
        }
    }
    Ok(())
}

/// All definitions of a folder.
fn load(folder: &Path) -> std::io::Result<FileDescriptorSet> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    prost_build::Config::new().load_fds(&files, &[folder])
}

/// A function that decodes a message of this name and encodes it again.
fn list(set: &FileDescriptorSet) -> String {
    let mut arms = String::new();
    for file in &set.file {
        file.message_type.iter().for_each(|message| arm(message, "", "", &mut arms));
    }
    format!(
        "pub fn again(name: &str, bytes: &[u8]) -> Option<Result<Vec<u8>, prost::DecodeError>> {{\n    match name {{\n{arms}        \
         _ => None,\n    }}\n}}\n"
    )
}

fn arm(message: &DescriptorProto, above: &str, module: &str, arms: &mut String) {
    let name = format!("{above}{}", message.name());
    let line = format!("\"{name}\" => Some(pass::<pb::{module}{}>(bytes)),", message.name());
    writeln!(arms, "        {line}").expect("a string takes everything");
    for nested in &message.nested_type {
        arm(nested, &format!("{name}."), &format!("{module}{}::", snake(message.name())), arms);
    }
}

/// `MetaOp` is the module `meta_op`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}
