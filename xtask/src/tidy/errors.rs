//! docs/errors.md lists every error kind with the number, errno and retry verdict that the code gives it.

use super::{Finding, quoted, table_cells};
use crate::tree::Tree;

const CODE: &str = "crates/ebb-types/src/error.rs";
const DOC: &str = "docs/errors.md";

/// Compares both tables, both ways.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let (Some(code), Some(doc)) = (tree.text(CODE), tree.text(DOC)) else {
        return vec![Finding::new(DOC, 0, format!("it or {CODE} is missing"))];
    };
    let coded: Vec<(usize, Kind<'_>)> =
        (1..).zip(code.lines()).filter_map(|(line, text)| Some((line, Kind::in_code(text)?))).collect();
    let listed: Vec<(usize, Kind<'_>)> =
        (1..).zip(doc.lines()).filter_map(|(line, text)| Some((line, Kind::in_doc(text)?))).collect();
    let lacking = coded.iter().filter(|(_, kind)| !listed.iter().any(|(_, known)| known == kind));
    let lacking = lacking.map(|(_, kind)| Finding::new(DOC, 0, format!("lacks {kind:?}")));
    let wrong = listed.iter().filter(|(_, kind)| !coded.iter().any(|(_, known)| known == kind));
    let wrong = wrong.map(|(line, kind)| Finding::new(DOC, *line, format!("the code has no {kind:?}")));
    lacking.chain(wrong).collect()
}

#[derive(PartialEq, Eq, Debug)]
struct Kind<'a> {
    number: u32,
    name: &'a str,
    errno: i32,
    retry: &'a str,
}

impl<'a> Kind<'a> {
    /// `NotFound = 1, 2, Never;`
    fn in_code(line: &'a str) -> Option<Self> {
        let (name, values) = line.trim().strip_suffix(';')?.split_once(" = ")?;
        let mut values = values.split(", ");
        let kind = Self {
            number: values.next()?.parse().ok()?,
            name,
            errno: values.next()?.parse().ok()?,
            retry: values.next()?,
        };
        values.next().is_none().then_some(kind)
    }

    /// `| 1 | `NotFound` | ENOENT 2 | never | meaning |`
    fn in_doc(line: &'a str) -> Option<Self> {
        let cells = table_cells(line)?;
        let retry = match *cells.get(3)? {
            "never" => "Never",
            "safe" => "Safe",
            "if idempotent" => "IfIdempotent",
            other => other,
        };
        Some(Self {
            number: cells[0].parse().ok()?,
            name: quoted(cells[1])?,
            errno: cells[2].rsplit(' ').next()?.parse().ok()?,
            retry,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_from_both_sides() {
        let code = "    NotFound = 1, 2, Never;\n    Timeout = 60, 110, IfIdempotent;\n";
        let good =
            "| 1 | `NotFound` | ENOENT 2 | never | x |\n| 60 | `Timeout` | ETIMEDOUT 110 | if idempotent | y |\n";
        assert_eq!(check(&Tree::of(&[(CODE, code), (DOC, good)])), []);
        let found = check(&Tree::of(&[(CODE, code), (DOC, &good.replace("| 60", "| 61"))]));
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
