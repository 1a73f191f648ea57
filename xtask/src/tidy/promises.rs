//! Every promise of docs/semantics.md names the tests that quote it, and these exist.
//!
//! A promise is a paragraph in which **Kept**, **Weakened** or **Refused** is set in bold; it ends with `(quoted by ...)`: tests
//! between backquotes, each a `path` or a `path::function`.

use super::Finding;
use super::invariants::exists;
use crate::tree::Tree;

const PATH: &str = "docs/semantics.md";
const VERDICTS: [&str; 3] = ["**kept", "**weakened", "**refused"];
const QUOTED: &str = "(quoted by ";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(PATH) else { return vec![Finding::new(PATH, 0, "is missing")] };
    let mut findings = Vec::new();
    let mut promises = 0;
    for (line, paragraph) in paragraphs(text) {
        let lower = paragraph.to_lowercase();
        if !VERDICTS.iter().any(|verdict| lower.contains(verdict)) {
            continue;
        }
        promises += 1;
        let tests: Vec<&str> = paragraph.split(QUOTED).skip(1).flat_map(tests).collect();
        if tests.is_empty() {
            findings.push(Finding::new(PATH, line, "a promise that no test quotes: write one, and name it here"));
        }
        let broken = tests.into_iter().filter(|test| !exists(tree, test));
        findings.extend(broken.map(|test| Finding::new(PATH, line, format!("there is no {test}"))));
    }
    if promises == 0 {
        findings.push(Finding::new(PATH, 0, "promises nothing"));
    }
    findings
}

/// The names between backquotes up to the closing bracket.
fn tests(rest: &str) -> impl Iterator<Item = &str> {
    let end = rest.find(')').unwrap_or(rest.len());
    rest[..end].split('`').skip(1).step_by(2)
}

/// Runs of lines that are not empty, with the number of the first.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            inside = false;
            continue;
        }
        match found.last_mut().filter(|_| inside) {
            Some((_, paragraph)) => {
                paragraph.push(' ');
                paragraph.push_str(line);
            }
            None => found.push((number, line.to_owned())),
        }
        inside = true;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_without_tests_are_found() {
        let text = "# S\n\n**Kept.** One\n(quoted by `x.rs::good`,\n`y.rs`).\n\nTwo: **weakened**\nin a way.\n\nNo promise.\n\n\
                    **Refused**: three (quoted by `x.rs::bad`).\n";
        let tree = Tree::of(&[(PATH, text), ("x.rs", "fn good() {}\n"), ("y.rs", "")]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| (finding.line, finding.text)).collect();
        let expected = [
            (7, "a promise that no test quotes: write one, and name it here".to_owned()),
            (12, "there is no x.rs::bad".to_owned()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_text_that_promises_nothing_is_found() {
        assert_eq!(check(&Tree::of(&[(PATH, "# Nothing\n")])).len(), 1);
    }
}
