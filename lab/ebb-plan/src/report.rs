//! One page: every analytic figure and table of the papers next to ours.

use std::fmt::Write;

use crate::figure::Figure;
use crate::table::{Cell, Table, escape};

/// Heading of [`Section::agreeing`].
pub const AGREEING: &str = "as the paper says";

/// Part of a report: one paper, or one part of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Introduction: the subject, and conditions for all of the part. Paragraphs of plain text.
    pub intro: Vec<String>,
    /// The paper's numbers beside ours.
    pub rows: Vec<Comparison>,
    /// Figures, in the order in which they are read.
    pub figures: Vec<Figure>,
    /// Further tables.
    pub tables: Vec<Table>,
}

/// One number of a paper beside ours.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// Where in the paper: `Table 1`, `Fig. 5`, `Sec. 2.1`.
    pub source: String,
    /// The quantity, with its unit and setting.
    pub quantity: String,
    /// The paper's number.
    pub paper: Cell,
    /// Ours.
    pub ours: Cell,
    /// The reason for a difference, or the method. Needed if they differ by more than [`Comparison::CLOSE`].
    pub remark: String,
    /// The result of the comparison, if it has a rule other than the difference as a share of the paper's number.
    pub verdict: Option<Verdict>,
}

/// The result of a comparison with a rule of its own: a bound, a range, points instead of per cent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// In place of the difference: `holds`, `+13 points`.
    pub words: String,
    /// Whether ours agrees with the paper.
    pub holds: bool,
}

impl Comparison {
    /// Differences up to this need no explanation.
    pub const CLOSE: f64 = 0.02;

    /// A comparison of two cells.
    pub fn new(source: &str, quantity: impl Into<String>, paper: Cell, ours: Cell, remark: impl Into<String>) -> Self {
        Self { source: source.to_owned(), quantity: quantity.into(), paper, ours, remark: remark.into(), verdict: None }
    }

    /// Sets the result of a rule of its own: whether it holds, and the words in place of the difference.
    #[must_use]
    pub fn judged(mut self, holds: bool, words: impl Into<String>) -> Self {
        self.verdict = Some(Verdict { words: words.into(), holds });
        self
    }

    /// Sets the result for a bound of the paper's: whether ours keeps it.
    #[must_use]
    pub fn bound(self, holds: bool) -> Self {
        self.judged(holds, if holds { "holds" } else { "does not hold" })
    }

    /// Ours minus the paper's, as a share of the paper's. `None` if there is a verdict instead, if one is no number, or
    /// if the paper's is zero and ours is not.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        if self.verdict.is_some() {
            return None;
        }
        let (paper, ours) = (value(&self.paper)?, value(&self.ours)?);
        match (paper == 0.0, ours == 0.0) {
            (true, true) => Some(0.0),
            (true, false) => None,
            _ => Some((ours - paper) / paper.abs()),
        }
    }

    /// Whether ours agrees with the paper: by the verdict, or else within [`Comparison::CLOSE`], or by the same words.
    #[must_use]
    pub fn agrees(&self) -> bool {
        if let Some(verdict) = &self.verdict {
            return verdict.holds;
        }
        self.difference().map_or(self.paper == self.ours, |difference| difference.abs() <= Self::CLOSE)
    }
}

impl Section {
    /// A section without contents.
    #[must_use]
    pub fn new(title: impl Into<String>, intro: &[&str]) -> Self {
        Self {
            title: title.into(),
            intro: intro.iter().map(|text| (*text).to_owned()).collect(),
            rows: Vec::new(),
            figures: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Number of comparisons in which ours agrees with the paper, by each one's own rule. A bound that holds counts
    /// like a close number.
    #[must_use]
    pub fn agreeing(&self) -> usize {
        self.rows.iter().filter(|row| row.agrees()).count()
    }

    /// The comparisons as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            ("source", "where"),
            ("what", "what"),
            ("paper", "paper"),
            ("ours", "ours"),
            ("difference", "difference"),
            ("remark", "remark"),
        ];
        let mut table = Table::new(self.title.clone(), &columns);
        for row in &self.rows {
            table.row(vec![
                Cell::text(&row.source),
                Cell::text(&row.quantity),
                row.paper.clone(),
                row.ours.clone(),
                Cell::share(row.difference(), 1),
                Cell::text(&row.remark),
            ]);
        }
        table
    }
}

fn value(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Count(count) => Some(*count as f64),
        Cell::Number(value, _) | Cell::Scientific(value) | Cell::Share(value, _) | Cell::Bytes(value) => Some(*value),
        Cell::Text(_) | Cell::Missing => None,
    }
}

/// The whole page. It refers to no other file.
#[must_use]
pub fn page(title: &str, lead: &str, sections: &[Section]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <main>\n<h1>{0}</h1>\n<p class=\"lead\">{1}</p>\n",
        escape(title),
        escape(lead)
    );
    summary(&mut out, sections);
    for (index, section) in sections.iter().enumerate() {
        one(&mut out, index, section);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn summary(out: &mut String, sections: &[Section]) {
    let _ = write!(
        out,
        "<nav><table>\n<thead><tr><th>part</th><th class=\"num\">numbers</th><th class=\"num\">{AGREEING}</th>"
    );
    out.push_str("<th class=\"num\">explained</th></tr></thead>\n<tbody>\n");
    for (index, section) in sections.iter().enumerate() {
        let agreeing = section.agreeing();
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#s{index}\">{}</a></td><td class=\"num\">{}</td><td class=\"num\">{agreeing}</td><td \
             class=\"num\">{}</td></tr>",
            escape(&section.title),
            section.rows.len(),
            section.rows.len() - agreeing
        );
    }
    out.push_str("</tbody>\n</table></nav>\n");
}

fn one(out: &mut String, index: usize, section: &Section) {
    let _ = writeln!(out, "<section id=\"s{index}\">\n<h2>{}</h2>", escape(&section.title));
    for paragraph in &section.intro {
        let _ = writeln!(out, "<p>{}</p>", escape(paragraph));
    }
    if !section.rows.is_empty() {
        comparisons(out, &section.rows);
    }
    for figure in &section.figures {
        let _ = writeln!(out, "<figure>\n{}</figure>", figure.svg());
    }
    for table in &section.tables {
        let _ = writeln!(out, "<div class=\"wide\">{}</div>", table.html());
    }
    out.push_str("</section>\n");
}

fn comparisons(out: &mut String, rows: &[Comparison]) {
    out.push_str(
        "<div class=\"wide rows\"><table>\n<thead><tr><th>where</th><th>what</th><th class=\"num\">paper</th>",
    );
    out.push_str("<th class=\"num\">ours</th><th class=\"num\">difference</th><th>remark</th></tr></thead>\n<tbody>\n");
    for row in rows {
        let class = if row.agrees() { "close" } else { "apart" };
        let difference = match (&row.verdict, row.difference()) {
            (Some(verdict), _) => verdict.words.clone(),
            (None, Some(share)) if share.abs() < 0.0005 => "0".to_owned(),
            (None, Some(share)) => format!("{:+.1} %", share * 100.0),
            (None, None) => if row.agrees() { "same" } else { "\u{2013}" }.to_owned(),
        };
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num \
             {class}\">{}</td><td>{}</td></tr>",
            escape(&row.source),
            escape(&row.quantity),
            escape(&row.paper.human()),
            escape(&row.ours.human()),
            escape(&difference),
            escape(&row.remark)
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
}

const STYLE: &str = "
:root { color-scheme: light; }
body { margin: 0; background: #f5f7fa; color: #1f2933; line-height: 1.5;
  font: 16px/1.5 Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.4rem; margin: 0 0 .6rem; }
p { max-width: 46rem; margin: .5rem 0; }
.lead { font-size: 1.1rem; color: #52606d; }
nav { margin: 1.5rem 0 2rem; }
section { background: #fff; border: 1px solid #e4e7eb; border-radius: 10px; padding: 1.6rem 1.8rem; margin: 1.6rem 0; }
.wide { overflow-x: auto; margin: 1.2rem 0; }
table { border-collapse: collapse; font-size: .88rem; width: 100%; }
nav table { width: auto; }
caption { text-align: left; font-weight: 600; padding: .3rem 0 .5rem; }
th { text-align: left; font-weight: 600; color: #52606d; border-bottom: 2px solid #cbd2d9; }
th, td { padding: .38rem .7rem .38rem 0; vertical-align: top; }
.rows td:first-child { white-space: nowrap; }
.rows td:nth-child(2) { min-width: 21rem; }
td { border-bottom: 1px solid #e4e7eb; }
.num { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.close { color: #00785a; }
.apart { color: #b44a00; font-weight: 600; }
figure { margin: 1.4rem 0; }
figure svg { width: 100%; height: auto; max-width: 880px; display: block; }
a { color: #0072b2; }
@media print { body { background: #fff; } section { border: none; padding: 0; break-inside: auto; } figure, tr { break-inside: avoid; } }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shares_of_the_paper_s_number() {
        let row = |paper, ours| Comparison::new("T", "w", paper, ours, "");
        assert_eq!(row(Cell::Count(100), Cell::Number(101.0, 0)).difference(), Some(0.01));
        assert!(row(Cell::Count(100), Cell::Number(101.0, 0)).agrees());
        assert!(!row(Cell::Count(100), Cell::Number(103.0, 0)).agrees());
        assert!(row(Cell::Count(0), Cell::Number(0.0, 0)).agrees());
        assert!(!row(Cell::Count(0), Cell::Number(1.0, 0)).agrees());
        assert!(row("yes".into(), "yes".into()).agrees());
        let judged = row(Cell::Count(100), Cell::Count(110)).judged(true, "+10 points");
        assert!(judged.agrees() && judged.difference().is_none());
        assert!(!row("above 3".into(), Cell::Count(2)).bound(false).agrees());
    }

    #[test]
    fn the_page_is_whole_and_escapes_its_input() {
        let mut section = Section::new("A & B", &["x < y"]);
        section.rows.push(Comparison::new("Fig. 1", "n", Cell::Count(1), Cell::Count(2), "since <b>"));
        let html = page("Title", "lead", &[section]);
        assert!(html.contains("A &amp; B") && html.contains("x &lt; y") && html.contains("since &lt;b&gt;"));
        assert!(html.contains(AGREEING) && html.contains("+100.0 %") && html.trim_end().ends_with("</html>"));
        assert!(!html.contains("http://") && !html.contains("src="), "nothing comes from elsewhere");
    }
}
