//! Tables that print for people, as CSV, as HTML and as JSON records.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Map, Value, json};

/// One value of a table. It is rounded for people, and exact in CSV and JSON.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number and how many decimals a person wants to see of it.
    Number(f64, usize),
    /// A number of any size, shown with its power of ten.
    Scientific(f64),
    /// A share of one, shown in per cent with that many decimals.
    Share(f64, usize),
    /// Bytes, shown in the decimal unit that fits.
    Bytes(f64),
    /// There is no such value: shown as a dash, null in JSON, empty in CSV.
    Missing,
}

impl Cell {
    /// Words.
    pub fn text(words: impl Into<String>) -> Self {
        Self::Text(words.into())
    }

    /// A whole number.
    pub fn count(count: usize) -> Self {
        Self::Count(count as u64)
    }

    /// The number, or a dash if there is none.
    pub fn number(value: Option<f64>, decimals: usize) -> Self {
        value.filter(|value| value.is_finite()).map_or(Self::Missing, |value| Self::Number(value, decimals))
    }

    /// The share, or a dash if there is none.
    pub fn share(value: Option<f64>, decimals: usize) -> Self {
        value.filter(|value| value.is_finite()).map_or(Self::Missing, |value| Self::Share(value, decimals))
    }

    /// As a person reads it.
    #[must_use]
    pub fn human(&self) -> String {
        match self {
            Self::Text(words) => words.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(value, decimals) => format!("{value:.decimals$}"),
            Self::Scientific(value) => format!("{value:.2e}"),
            Self::Share(value, decimals) => format!("{:.decimals$} %", value * 100.0),
            Self::Bytes(bytes) => human_bytes(*bytes),
            Self::Missing => "-".to_owned(),
        }
    }

    /// As a program reads it.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Self::Text(words) => json!(words),
            Self::Count(count) => json!(count),
            Self::Number(value, _) | Self::Scientific(value) | Self::Share(value, _) | Self::Bytes(value) => {
                json!(value)
            }
            Self::Missing => Value::Null,
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Text(words) => words.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(value, _) | Self::Scientific(value) | Self::Share(value, _) | Self::Bytes(value) => {
                value.to_string()
            }
            Self::Missing => String::new(),
        }
    }

    const fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_))
    }
}

impl From<&str> for Cell {
    fn from(words: &str) -> Self {
        Self::text(words)
    }
}

/// A column: `key` names it for programs (`snake_case`), `head` for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Name in JSON and CSV.
    pub key: String,
    /// Heading for people.
    pub head: String,
}

/// A named table.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// The meaning of the rows, in one line.
    pub title: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// Row and column of cells that stand out.
    marked: BTreeSet<(usize, usize)>,
}

impl Table {
    /// An empty table with columns of (key, heading).
    #[must_use]
    pub fn new(title: impl Into<String>, columns: &[(&str, &str)]) -> Self {
        let column = |(key, head): &(&str, &str)| Column { key: (*key).to_owned(), head: (*head).to_owned() };
        Self {
            title: title.into(),
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
            marked: BTreeSet::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row of {:?}", self.title);
        self.rows.push(cells);
    }

    /// Adds a row in which some cells stand out: bold on a page, with a star in a terminal. Programs see no mark.
    pub fn marked_row(&mut self, cells: Vec<Cell>, marks: &[bool]) {
        let row = self.rows.len();
        self.marked
            .extend(marks.iter().enumerate().filter(|(_, is_marked)| **is_marked).map(|(column, _)| (row, column)));
        self.row(cells);
    }

    /// The rows so far.
    #[must_use]
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Lines for a terminal: heading, rule, rows; numbers to the right.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let numeric = self.numeric();
        let star = |row: usize, column: usize| if self.marked.contains(&(row, column)) { "*" } else { "" };
        let words = |(row, cells): (usize, &Vec<Cell>)| {
            let cells = cells.iter().enumerate();
            cells.map(|(column, cell)| format!("{}{}", star(row, column), cell.human())).collect::<Vec<_>>()
        };
        let body: Vec<Vec<String>> = self.rows.iter().enumerate().map(words).collect();
        let head: Vec<String> = self.columns.iter().map(|column| column.head.clone()).collect();
        let width = |index: usize| {
            let cells = body.iter().chain([&head]);
            cells.map(|row| row[index].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |row: &[String]| {
            let cells = row.iter().enumerate().map(|(index, cell)| {
                let pad = " ".repeat(widths[index] - cell.chars().count());
                if numeric[index] { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        [line(&head), rule.join("  ")].into_iter().chain(body.iter().map(|row| line(row))).collect()
    }

    /// Comma-separated values (RFC 4180) under a line of keys.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let keys = self.columns.iter().map(|column| column.key.clone()).collect();
        let body = self.rows.iter().map(|row| row.iter().map(Cell::csv).collect::<Vec<_>>());
        for record in std::iter::once(keys).chain(body) {
            writer.write_record(&record).expect("a write to memory does not fail");
        }
        let bytes = writer.into_inner().expect("a flush to memory does not fail");
        String::from_utf8(bytes).expect("made of strings")
    }

    /// An array of objects, one for each row.
    #[must_use]
    pub fn json(&self) -> Value {
        let record = |row: &Vec<Cell>| {
            let fields = self.columns.iter().zip(row).map(|(column, cell)| (column.key.clone(), cell.json()));
            Value::Object(fields.collect::<Map<_, _>>())
        };
        Value::Array(self.rows.iter().map(record).collect())
    }

    /// An HTML table with its title as caption.
    #[must_use]
    pub fn html(&self) -> String {
        let numeric = self.numeric();
        let class = |index: usize| if numeric[index] { " class=\"num\"" } else { "" };
        let mut out = format!("<table>\n<caption>{}</caption>\n<thead><tr>", escape(&self.title));
        for (index, column) in self.columns.iter().enumerate() {
            let _ = write!(out, "<th{}>{}</th>", class(index), escape(&column.head));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for (row, cells) in self.rows.iter().enumerate() {
            out.push_str("<tr>");
            for (index, cell) in cells.iter().enumerate() {
                let (words, is_marked) = (escape(&cell.human()), self.marked.contains(&(row, index)));
                let words = if is_marked { format!("<b>{words}</b>") } else { words };
                let _ = write!(out, "<td{}>{words}</td>", class(index));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table>\n");
        out
    }

    fn numeric(&self) -> Vec<bool> {
        (0..self.columns.len()).map(|index| self.rows.iter().all(|row| row[index].is_number())).collect()
    }
}

/// Text escaped for HTML and SVG.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Bytes for a person, in powers of 1000 as the papers count: `3.32 kB`.
#[must_use]
pub fn human_bytes(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes;
    let mut unit = 0;
    while value.abs() >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value.abs() {
        size if size >= 99.95 || value == 0.0 || (unit == 0 && value.fract() == 0.0) => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        _ => return format!("{value:.2e} {}", UNITS[unit]),
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new("Gears", &[("scheme", "scheme"), ("lost", "lost a year")]);
        table.row(vec!["3 copies".into(), Cell::Bytes(87.3)]);
        table.row(vec!["8+2, \"wide\"".into(), Cell::Number(3318.4, 1)]);
        table.row(vec!["none".into(), Cell::Missing]);
        table
    }

    #[test]
    fn people_see_columns_with_numbers_to_the_right() {
        let lines = sample().lines();
        assert_eq!(lines[0], "scheme       lost a year");
        assert_eq!(lines[2], "3 copies          87.3 B");
        assert_eq!(lines[4], "none                   -");
    }

    #[test]
    fn marked_cells_stand_out_for_people_alone() {
        let mut table = Table::new("Best", &[("one", "one"), ("other", "other")]);
        table.marked_row(vec![Cell::Count(1), Cell::Count(2)], &[false, true]);
        assert_eq!(table.lines()[2], "  1     *2");
        assert!(table.html().contains("<td class=\"num\">1</td><td class=\"num\"><b>2</b></td>"));
        assert_eq!(table.csv(), "one,other\n1,2\n");
    }

    #[test]
    fn csv_is_quoted_where_it_must_be_and_keeps_all_digits() {
        assert_eq!(sample().csv(), "scheme,lost\n3 copies,87.3\n\"8+2, \"\"wide\"\"\",3318.4\nnone,\n");
    }

    #[test]
    fn json_has_one_object_for_each_row() {
        let value = sample().json();
        assert_eq!(value[0]["lost"], 87.3);
        assert_eq!(value[2]["lost"], Value::Null);
    }

    #[test]
    fn bytes_are_read_at_a_glance() {
        let shown: Vec<String> = [0.0, 87.0, 87.31, 3318.4, 1e7, 999_600.0, 0.000_12].map(human_bytes).to_vec();
        assert_eq!(shown, ["0 B", "87 B", "87.3 B", "3.32 kB", "10.0 MB", "1.00 MB", "1.20e-4 B"]);
    }
}
