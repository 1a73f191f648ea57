//! A file of more than 600 lines, without its tests, lacks a concept: find its name.

use super::Finding;
use crate::tree::Tree;

const LINES_MAX: usize = 600;

/// Counts up to a file's own test module; files of tests alone are not counted.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.ending(".rs").filter(|file| !is_test(&file.path));
    let long = sources.filter_map(|file| {
        let lines = code_lines(&file.text);
        (lines > LINES_MAX).then(|| {
            Finding::new(&file.path, 0, format!("{lines} lines; past {LINES_MAX} a concept is missing: find its name"))
        })
    });
    long.collect()
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/")
}

fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1] == "mod tests {");
    tests.unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_counts() {
        let long = "let x = 1;\n".repeat(601);
        let tested = format!("{}#[cfg(test)]\nmod tests {{\n{long}", "a\n".repeat(600));
        let tree = Tree::of(&[("a.rs", &long), ("a/tests.rs", &long), ("b.rs", &tested)]);
        assert_eq!(check(&tree).iter().map(|finding| finding.path.as_str()).collect::<Vec<_>>(), ["a.rs"]);
    }
}
