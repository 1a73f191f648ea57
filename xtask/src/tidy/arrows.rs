//! A crate depends only on crates above it in the code map, and a pure crate on no crate that has effects.

use super::{Finding, map};
use crate::tree::Tree;

/// Crates in which every result is a function of the arguments.
const PURE: &[&str] =
    &["ebb-types", "ebb-wire", "ebb-layout", "ebb-code", "ebb-meta", "ebb-model", "ebb-power", "ebb-sim"];
/// Crates with effects, which pure crates may not use.
const ACTING: &[&str] =
    &["tokio", "ebb-runtime", "ebb-rpc", "rustix", "libc", "getrandom", "rand", "tracing-subscriber"];

/// Checks `[dependencies]` of every package; tests may depend on anything.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let order: Vec<&str> = map::mapped(tree).into_iter().map(|(_, name)| name).collect();
    let place = |wanted: &str| order.iter().position(|name| *name == wanted);
    let mut findings = Vec::new();
    for (package, manifest) in tree.packages() {
        let path = tree.files.iter().find(|file| std::ptr::eq(file.text.as_str(), manifest)).map(|file| &file.path);
        let path = path.expect("the manifest is of this tree");
        for (line, needed) in dependencies(manifest) {
            if let (Some(own), Some(other)) = (place(package), place(needed))
                && other >= own
            {
                findings.push(Finding::new(path, line, format!("`{package}` stands above `{needed}` in the code map")));
            }
            if PURE.contains(&package) && ACTING.contains(&needed) {
                findings.push(Finding::new(path, line, format!("`{package}` is pure and may not use `{needed}`")));
            }
        }
    }
    findings
}

/// Names under `[dependencies]`, with their lines.
fn dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(manifest.lines()).skip_while(|(_, line)| line.trim() != "[dependencies]").skip(1);
    lines.take_while(|(_, line)| !line.starts_with('[')).filter_map(|(number, line)| {
        let name = line.split(['=', '.', ' ']).next()?.trim();
        (!name.is_empty() && !name.starts_with('#')).then_some((number, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upward_arrows_and_impure_needs_are_found() {
        let map = "## Code map\n| `ebb-meta` | x |\n| `ebb-rpc` | y |\n";
        let meta = "[package]\n[dependencies]\nebb-rpc = { path = \"../ebb-rpc\" }\ntokio.workspace = true\n[dev-dependencies]\nebb-rpc = 1\n";
        let rpc = "[dependencies]\nebb-meta = { path = \"../ebb-meta\" }\ntokio.workspace = true\n";
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", map),
            ("crates/ebb-meta/Cargo.toml", meta),
            ("crates/ebb-rpc/Cargo.toml", rpc),
        ]);
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/ebb-meta/Cargo.toml:3: `ebb-meta` stands above `ebb-rpc` in the code map",
                "crates/ebb-meta/Cargo.toml:3: `ebb-meta` is pure and may not use `ebb-rpc`",
                "crates/ebb-meta/Cargo.toml:4: `ebb-meta` is pure and may not use `tokio`",
            ]
        );
    }
}
