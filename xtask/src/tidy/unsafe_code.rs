//! Every crate forbids unsafe code at its root, except a few that call the system, or the CPU, in ways for which there is no safe
//! wrapper.

use super::Finding;
use crate::tree::Tree;

const LINE: &str = "#![forbid(unsafe_code)]";

/// System calls and shared memory (`ebb-runtime`), one ioctl (`ebb-fuse`), vector instructions that the compiler does not find
/// by itself (`ebb-code`), Java's memory and names (`ebb-java`), a counting allocator (`ebb-fuzz`), cuts of a file system's power
/// (`xtask`).
const ALLOWED: [&str; 6] =
    ["crates/ebb-runtime/", "crates/ebb-fuse/", "crates/ebb-code/", "crates/ebb-java/", "lab/ebb-fuzz/", "xtask/"];

/// Finds roots without the line, and exceptions that are no longer needed.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let roots = tree.ending(".rs").filter(|file| is_root(&file.path) && !is_allowed(&file.path));
    let open = roots.filter(|file| !file.text.lines().any(|line| line == LINE));
    let open = open.map(|file| Finding::new(&file.path, 0, format!("a crate without unsafe code says so: {LINE}")));
    let is_needed = |folder: &str| {
        tree.ending(".rs").any(|file| file.path.starts_with(folder) && file.text.contains(concat!("unsafe", " {")))
    };
    let idle = ALLOWED.into_iter().filter(|folder| tree.ending(".rs").any(|file| file.path.starts_with(folder)));
    let idle = idle.filter(|folder| !is_needed(folder));
    let idle =
        idle.map(|folder| Finding::new(folder, 0, "has no unsafe code any more: take it out of this check's list"));
    open.chain(idle).collect()
}

fn is_allowed(path: &str) -> bool {
    ALLOWED.iter().any(|folder| path.starts_with(folder))
}

/// Libraries, programs and programs beside a library.
fn is_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_forbids_it_or_is_an_exception_that_needs_it() {
        let call = concat!("let x = unsafe", " { f() };\n");
        let files = [
            ("crates/a/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n"),
            ("crates/b/src/main.rs", "//! B.\n"),
            ("crates/b/src/other.rs", "//! Other.\n"),
            ("crates/ebb-fuse/src/lib.rs", "//! F.\n"),
            ("crates/ebb-runtime/src/lib.rs", "//! R.\n"),
            ("crates/ebb-runtime/src/real.rs", call),
        ];
        let found: Vec<String> = check(&Tree::of(&files)).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["crates/b/src/main.rs", "crates/ebb-fuse/"]);
    }
}
