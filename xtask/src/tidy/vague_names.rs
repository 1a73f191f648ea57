//! A function's name says what the function does: names that fit every function are refused.

use super::Finding;
use crate::tree::Tree;

/// Names that are meaningless at a call, and have too many hits in a search.
const VAGUE: [&str; 6] = ["settle", "look", "take", "begin", "judge", "note"];
/// A stand-in for another crate has that crate's names. This file contains the names as data.
const EXEMPT: [&str; 2] = ["lab/ebb-threads/src/stand_in.rs", "xtask/src/tidy/vague_names.rs"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".rs").filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        for (number, line) in file.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let name = code.split_once("fn ").map(|(_, rest)| rest).unwrap_or_default();
            let name = name.split(['(', '<']).next().unwrap_or_default();
            if VAGUE.contains(&name) {
                let text = format!("a function named `{name}`: say what it does to what");
                findings.push(Finding::new(&file.path, number, text));
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
