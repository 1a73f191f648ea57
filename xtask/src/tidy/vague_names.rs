//! Functions say what they do: none has a name that fits any of them.

use super::Finding;
use crate::tree::Tree;

/// Names that tell nothing at the place of a call, and find too much in a search.
const VAGUE: [&str; 6] = ["settle", "look", "take", "begin", "judge", "note"];
/// What stands in for another crate's interface has that one's names; and this file has them to look for.
const EXEMPT: [&str; 2] = ["lab/ebb-threads/src/stand_in.rs", "xtask/src/tidy/vague_names.rs"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".rs").filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        for (number, line) in file.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let name = code.split_once("fn ").map(|(_, rest)| rest).unwrap_or_default();
            let name = name.split(['(', '<']).next().unwrap_or_default();
            if VAGUE.contains(&name) {
                let what = format!("a function named `{name}`: say what it does to what");
                findings.push(Finding::new(&file.path, number, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_any_function_are_found() {
        let text =
            "pub async fn settle(&self) {}\nfn take<T>() {}\nfn take_bytes() {}\n// fn look()\nlet x = y.take();\n";
        let tree = Tree::of(&[("a.rs", text), (EXEMPT[0], "fn take() {}\n")]);
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "a.rs:1: a function named `settle`: say what it does to what",
                "a.rs:2: a function named `take`: say what it does to what",
            ]
        );
    }
}
