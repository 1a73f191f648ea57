//! Every numbered invariant has a checker: an existing file, or a function in one.

use super::{Finding, table_cells};
use crate::tree::Tree;

const PATH: &str = "docs/invariants.md";

/// Rows are `| I-7 | what | checkers |`, a checker is `path` or `path::function`.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(PATH) else { return vec![Finding::new(PATH, 0, "is missing")] };
    let mut findings = Vec::new();
    let mut last = 0;
    for (line, row) in (1..).zip(text.lines()) {
        let Some(cells) = table_cells(row) else { continue };
        let Some(number) = cells[0].strip_prefix("I-").and_then(|number| number.parse::<u32>().ok()) else { continue };
        if number <= last {
            findings.push(Finding::new(PATH, line, format!("I-{number} stands after I-{last}: numbers only rise")));
        }
        last = number;
        let checkers: Vec<&str> = cells.last().map_or(Vec::new(), |cell| cell.split('`').skip(1).step_by(2).collect());
        if checkers.is_empty() {
            findings.push(Finding::new(PATH, line, format!("I-{number} has no checker")));
        }
        let broken = checkers.iter().filter(|checker| !exists(tree, checker));
        findings.extend(broken.map(|checker| Finding::new(PATH, line, format!("I-{number}: there is no {checker}"))));
    }
    if last == 0 {
        findings.push(Finding::new(PATH, 0, "has no numbered invariant"));
    }
    findings
}

pub(super) fn exists(tree: &Tree, checker: &str) -> bool {
    match checker.split_once("::") {
        None => tree.has(checker),
        Some((path, function)) => tree.text(path).is_some_and(|text| text.contains(&format!("fn {function}("))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_checkers_are_found() {
        let table = "| I-1 | a | `x.rs::good` |\n| I-2 | b | `x.rs::bad`, `y.rs` |\n| I-2 | c | none |\n";
        let tree = Tree::of(&[(PATH, table), ("x.rs", "fn good() {}\n")]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.text).collect();
        assert_eq!(
            found,
            [
                "I-2: there is no x.rs::bad",
                "I-2: there is no y.rs",
                "I-2 stands after I-2: numbers only rise",
                "I-2 has no checker",
            ]
        );
    }
}
