//! Words that the glossary retired are not used.

use super::{Finding, table_cells};
use crate::tree::Tree;

const GLOSSARY: &str = "docs/glossary.md";
const HEADING: &str = "## Retired words";

/// The glossary's last table is `| retired | say |`; nothing but the glossary itself may use the left column.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(GLOSSARY) else { return vec![Finding::new(GLOSSARY, 0, "is missing")] };
    let rows = text.lines().skip_while(|line| *line != HEADING).filter_map(table_cells).skip(1);
    let retired: Vec<(String, &str)> =
        rows.filter(|cells| cells.len() > 1).map(|cells| (cells[0].to_lowercase(), cells[1])).collect();
    if retired.is_empty() {
        return vec![Finding::new(GLOSSARY, 0, format!("has no table under {HEADING:?}"))];
    }
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_looked_at(&file.path)) {
        for (number, line) in file.lines() {
            let line = line.to_lowercase();
            let used = retired.iter().filter(|(word, _)| has_word(&line, word));
            findings.extend(used.map(|(word, instead)| {
                Finding::new(&file.path, number, format!("\"{word}\" is retired: say {instead}"))
            }));
        }
    }
    findings
}

fn is_looked_at(path: &str) -> bool {
    path != GLOSSARY && [".rs", ".md", ".proto"].iter().any(|suffix| path.ends_with(suffix))
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(place, _)| {
        let before = line[..place].chars().next_back();
        let after = line[place + word.len()..].chars().next();
        ![before, after].into_iter().flatten().any(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_words_are_found_whole_and_in_any_case() {
        let glossary = "| word | means |\n|---|---|\n| node | x |\n## Retired words\n| retired | say |\n|---|---|\n| brick | volume |\n";
        let tree = Tree::of(&[(GLOSSARY, glossary), ("a.rs", "// A Brick.\n// bricklayer, node\n")]);
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["a.rs:1: \"brick\" is retired: say volume"]);
    }
}
