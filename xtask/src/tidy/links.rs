//! Relative links in documents lead to a file or folder of the tree, and to a heading if they name one.

use super::Finding;
use crate::tree::Tree;

/// Checks every `[text](target)` outside code.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".md") {
        let mut in_code = false;
        for (number, line) in file.lines() {
            in_code ^= line.trim_start().starts_with("```");
            if in_code {
                continue;
            }
            let broken = targets(line).filter_map(|target| problem(tree, &file.path, target));
            findings.extend(broken.map(|text| Finding::new(&file.path, number, text)));
        }
    }
    findings
}

fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn problem(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let path = if path.is_empty() { from.to_owned() } else { resolve(from, path) };
    if !tree.has(&path) {
        return Some(format!("the link to {target} leads nowhere"));
    }
    let heading = heading?;
    let headings = || tree.text(&path).unwrap_or_default().lines().filter(|line| line.starts_with('#')).map(anchor);
    (!headings().any(|known| known == heading)).then(|| format!("{path} has no heading #{heading}"))
}

/// The path from the root that `target` means in the file `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchor that code-hosting sites give a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found_and_live_ones_pass() {
        let text = "[a](../README.md#two-commands) [b](gone.md) [c](https://x.y/z) [d](#nowhere) [e](.)\n```\n[f](no.md)\n```\n";
        let tree = Tree::of(&[("README.md", "# R\n## Two commands\n"), ("docs/a.md", text)]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.text).collect();
        assert_eq!(found, ["the link to gone.md leads nowhere", "docs/a.md has no heading #nowhere"]);
    }
}
