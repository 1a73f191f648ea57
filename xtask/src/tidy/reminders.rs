//! No leftover reminders: work is finished, or it is not begun.

use super::Finding;
use crate::tree::Tree;

/// Spelled in two halves, so that this file is not found.
const REMINDERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("HA", "CK"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("#[ig", "nore"),
];

/// Looks in sources, scripts, messages and documents.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_looked_at(&file.path)) {
        for (number, line) in file.lines() {
            let left = REMINDERS.iter().filter(|word| contains_word(line, word));
            findings.extend(left.map(|word| Finding::new(&file.path, number, format!("a reminder is left: {word}"))));
        }
    }
    findings
}

fn is_looked_at(path: &str) -> bool {
    [".rs", ".md", ".proto", ".sh", ".toml"].iter().any(|suffix| path.ends_with(suffix))
}

/// Not inside a longer word: `mktemp run.` followed by a row of capitals is a pattern, not a reminder.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(place, _)| {
        let before = line[..place].chars().next_back();
        let after = line[place + word.len()..].chars().next();
        let joins = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        !joins(before) && (!joins(after) || !word.ends_with(char::is_alphanumeric))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reminders_are_found_and_patterns_are_not() {
        let text = format!("// {} later\nmktemp run.{}\nlet x = 1;\n", REMINDERS[0], "X".repeat(6));
        let found = check(&Tree::of(&[("a.rs", &text), ("b.bin", &text)]));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1]);
    }
}
