//! A source file that no module names is never compiled, so nothing shows when it becomes wrong.

use super::Finding;
use crate::tree::Tree;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let strays = tree.ending(".rs").filter(|file| !is_found_by_cargo(&file.path) && !is_named(tree, &file.path));
    strays.map(|file| Finding::new(&file.path, 0, "no module names it: name it, or drop it")).collect()
}

/// Whether it is the root of a library, a program, an example or a test.
fn is_found_by_cargo(path: &str) -> bool {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let is_beside_src = ["examples", "tests", "benches"].iter().any(|name| folder.ends_with(&format!("/{name}")));
    // `src/tests/` is a folder of modules like others.
    matches!(file, "lib.rs" | "main.rs" | "build.rs") || (is_beside_src && !folder.contains("/src/"))
}

fn is_named(tree: &Tree, path: &str) -> bool {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let above = match folder.ends_with("/src") {
        true => vec![format!("{folder}/lib.rs"), format!("{folder}/main.rs")],
        false => vec![format!("{folder}.rs")],
    };
    let line = format!("mod {};", file.trim_end_matches(".rs"));
    let names = |text: &str| text.lines().any(|found| found == line || found.ends_with(&format!(" {line}")));
    above.iter().filter_map(|path| tree.text(path)).any(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_no_module_names_are_found() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "mod b;\npub mod c;\n    mod inner;\n"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/b/tests.rs", ""),
            ("crates/a/src/b/lost.rs", ""),
            ("crates/a/src/c.rs", ""),
            ("crates/a/src/ab.rs", ""),
            ("crates/a/tests/it.rs", "mod one;\n"),
            ("crates/a/tests/it/one.rs", ""),
            ("crates/a/examples/try.rs", ""),
            ("crates/a/build.rs", ""),
            ("xtask/src/main.rs", "mod tidy;\n"),
            ("xtask/src/tidy.rs", ""),
        ]);
        let found: Vec<Finding> = check(&tree);
        let found: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(found, ["crates/a/src/b/lost.rs", "crates/a/src/ab.rs"]);
    }
}
