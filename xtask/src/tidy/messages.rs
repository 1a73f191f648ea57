//! docs/messages.md lists every call with its number, and every call has its messages.

use super::{Finding, quoted, table_cells};
use crate::tree::Tree;

const CODE: &str = "crates/ebb-wire/src/method.rs";
const DOC: &str = "docs/messages.md";

/// Compares the registry of methods with the page and with the `.proto` files.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let (Some(code), Some(doc)) = (tree.text(CODE), tree.text(DOC)) else {
        return vec![Finding::new(DOC, 0, format!("it or {CODE} is missing"))];
    };
    let methods: Vec<(usize, Method<'_>)> =
        (1..).zip(code.lines()).filter_map(|(line, text)| Some((line, Method::in_code(text)?))).collect();
    let listed: Vec<(usize, u32, &str)> = (1..)
        .zip(doc.lines())
        .filter_map(|(line, text)| {
            let cells = table_cells(text)?;
            Some((line, cells[0].parse().ok()?, quoted(cells.get(1)?)?))
        })
        .collect();

    let mut findings = Vec::new();
    for (line, method) in &methods {
        if !listed.iter().any(|(_, number, name)| (*number, *name) == (method.number, method.name)) {
            findings.push(Finding::new(DOC, 0, format!("lacks call {} `{}`", method.number, method.name)));
        }
        for message in [method.name, method.reply] {
            if !tree.ending(".proto").any(|file| file.text.contains(&format!("message {message} {{"))) {
                findings.push(Finding::new(CODE, *line, format!("no .proto file has message {message}")));
            }
        }
    }
    let unknown = listed.iter().filter(|(_, number, name)| {
        !methods.iter().any(|(_, method)| (*number, *name) == (method.number, method.name))
    });
    findings.extend(
        unknown.map(|(line, number, name)| Finding::new(DOC, *line, format!("there is no call {number} `{name}`"))),
    );
    findings
}

struct Method<'a> {
    name: &'a str,
    number: u32,
    reply: &'a str,
}

impl<'a> Method<'a> {
    /// `Poll = 4, PollReply;`, perhaps with more behind another comma.
    fn in_code(line: &'a str) -> Option<Self> {
        let (name, rest) = line.trim().strip_suffix(';')?.split_once(" = ")?;
        let mut parts = rest.split(", ");
        Some(Self { name, number: parts.next()?.parse().ok()?, reply: parts.next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_calls_and_absent_messages_are_found() {
        let tree = Tree::of(&[
            (CODE, "    Poll = 4, PollReply, in order by file;\n    Scrub = 69, ScrubReply;\n"),
            (DOC, "| 4 | `Poll` | x |\n| 9 | `Gone` | y |\n"),
            ("a.proto", "message Poll {}\nmessage PollReply {}\nmessage Scrub {}\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.text).collect();
        assert_eq!(
            found,
            ["lacks call 69 `Scrub`", "no .proto file has message ScrubReply", "there is no call 9 `Gone`",]
        );
    }
}
