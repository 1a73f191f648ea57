//! Output for people and programs: sentences and tables, or JSON alone on stdout.

use std::io::{IsTerminal, Write};
use std::time::Duration;

pub use ebb_types::{counted, human_bytes};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

impl Output {
    /// JSON alone on stdout, or sentences.
    pub const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether only JSON may go to stdout.
    pub const fn json(self) -> bool {
        self.json
    }

    /// A sentence for a person; with JSON it goes nowhere.
    pub fn say(self, line: &str) {
        if !self.json {
            print_line(line);
        }
    }

    /// The result of a command: a sentence for a person, or the one JSON value.
    pub fn answer(self, sentence: &str, value: &serde_json::Value) {
        if self.json { self.print_json(value) } else { print_line(sentence) }
    }

    /// A sentence that matters with JSON too: to stderr.
    pub fn warn(self, line: &str) {
        let _ = writeln!(std::io::stderr(), "ebb: {line}");
    }

    /// The one JSON value.
    pub fn print_json(self, value: &serde_json::Value) {
        print_line(&value.to_string());
    }

    /// A table for a person.
    pub fn table(self, table: &Table) {
        if !self.json {
            for line in table.lines() {
                print_line(&line);
            }
        }
    }

    /// A progress bar in bytes on stderr, if a person is watching.
    pub fn byte_bar(self, total: u64, label: &str) -> ProgressBar {
        self.bar(Some(total), label, "{msg:20!} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    }

    /// A progress bar in items.
    pub fn item_bar(self, total: u64, label: &str) -> ProgressBar {
        self.bar(Some(total), label, "{msg:20!} [{bar:30}] {pos}/{len} {eta}")
    }

    /// The progress of work whose extent is not known: a count and its rate.
    pub fn count_bar(self, label: &str) -> ProgressBar {
        self.bar(None, label, "{msg} {human_pos} ({per_sec})")
    }

    fn bar(self, total: Option<u64>, label: &str, template: &str) -> ProgressBar {
        let shown = !self.json && std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> ").with_key("eta", show_left));
        }
        bar.set_message(label.to_owned());
        bar
    }
}

/// Time before the first estimate of the time left: the rate of the first moments is no rate.
const FIRST_ESTIMATE: Duration = Duration::from_secs(2);

/// The time that is left, or `-` if it cannot be told yet.
fn show_left(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let done = state.fraction();
    let _ = match state.elapsed() >= FIRST_ESTIMATE && done >= 0.01 {
        true => write!(out, "{:#}", HumanDuration(state.elapsed().div_f32(done).mul_f32(1.0 - done))),
        false => write!(out, "-"),
    };
}

/// Prints a line; a reader that has gone (`ebb ... | head`) is no error of ours.
pub fn print_line(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

/// Prints a name on a line of its own, as ls does: for a person its printable part, for a program its very bytes.
pub fn print_name(name: &[u8]) {
    if std::io::stdout().is_terminal() {
        return print_line(&ebb_api::path::text(name));
    }
    if std::io::stdout().write_all(&[name, b"\n"].concat()).is_err() {
        std::process::exit(0);
    }
}

/// Columns as wide as they must be; numbers to the right.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this head.
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text.
    pub fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric: Vec<bool> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .skip(1)
                    .filter_map(|row| row.get(column))
                    .all(|cell| cell.is_empty() || cell.chars().next().is_some_and(|c| c.is_ascii_digit()))
            })
            .collect();
        self.rows
            .iter()
            .map(|row| {
                let cells: Vec<String> = row
                    .iter()
                    .enumerate()
                    .map(|(column, cell)| {
                        let pad = " ".repeat(widths[column] - cell.chars().count());
                        if numeric[column] { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
                    })
                    .collect();
                cells.join("  ").trim_end().to_owned()
            })
            .collect()
    }
}

/// Adds a name to a JSON object. A name in UTF-8 stands under `key` as it is. One that is not stands there escaped as
/// in [`text`](ebb_api::path::text), and in hexadecimal under `key` with `_hex`.
pub fn put_json(object: &mut serde_json::Value, key: &str, name: &[u8]) {
    match std::str::from_utf8(name) {
        Ok(name) => object[key] = name.into(),
        Err(_) => {
            object[key] = ebb_api::path::text(name).into();
            let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            object[format!("{key}_hex")] = hex.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_words_left_and_numbers_right() {
        let mut table = Table::new(&["NAME", "BYTES"]);
        table.row(vec!["a".into(), "10".into()]);
        table.row(vec!["long name".into(), "2000".into()]);
        assert_eq!(table.lines(), ["NAME       BYTES", "a             10", "long name   2000"]);
    }

    #[test]
    fn names_stay_exact_in_json() {
        let json = |name| {
            let mut object = serde_json::json!({});
            put_json(&mut object, "name", name);
            object
        };
        assert_eq!(json(b"a\nb"), serde_json::json!({"name": "a\nb"}));
        assert_eq!(json(b"a\\nb"), serde_json::json!({"name": "a\\nb"}));
        assert_eq!(json(b"a\xff"), serde_json::json!({"name": "a\\xff", "name_hex": "61ff"}));
    }
}
