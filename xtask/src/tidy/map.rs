//! The code map of ARCHITECTURE.md names every package, and no other.

use super::{Finding, quoted, table_cells};
use crate::tree::Tree;

/// File with the map.
pub const MAP: &str = "ARCHITECTURE.md";

/// Packages of the code map with their lines, in its order.
pub fn mapped(tree: &Tree) -> Vec<(usize, &str)> {
    let Some(text) = tree.text(MAP) else { return Vec::new() };
    let section = (1..).zip(text.lines()).skip_while(|(_, line)| *line != "## Code map").skip(1);
    let rows = section.take_while(|(_, line)| !line.starts_with("## "));
    rows.filter_map(|(number, line)| Some((number, quoted(table_cells(line)?.first()?)?))).collect()
}

/// Finds packages that the map lacks, and names without a package.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mapped = mapped(tree);
    let lacking = tree.packages().filter(|(name, _)| !mapped.iter().any(|(_, known)| known == name));
    let lacking = lacking.map(|(name, _)| Finding::new(MAP, 0, format!("the code map lacks `{name}`")));
    let gone = mapped.iter().filter(|(_, name)| !tree.packages().any(|(known, _)| known == *name));
    let gone = gone.map(|(line, name)| Finding::new(MAP, *line, format!("there is no package `{name}`")));
    lacking.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_found() {
        let text =
            "# A\n## Code map\n| crate | is |\n|---|---|\n| `ebb-old` | x |\n| `ebb` | y |\n## Next\n| `no` | z |\n";
        let tree =
            Tree::of(&[(MAP, text), ("Cargo.toml", ""), ("crates/ebb/Cargo.toml", ""), ("xtask/Cargo.toml", "")]);
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["ARCHITECTURE.md: the code map lacks `xtask`", "ARCHITECTURE.md:5: there is no package `ebb-old`",]
        );
    }
}
