//! The result: the table with the papers' numbers beside ours, and the figures.

use ebb_plan::{Cell, Comparison, Figure, Section, Table};
use ebb_types::{Result, bail};
use serde_json::{Value, json};

use crate::part::{Lab, Part};

/// Rows and figures of a paper, or of the parts that were asked for.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As it goes on a page.
    pub section: Section,
}

/// A source as it is asked for: `Fig. 10` by `10`, `fig10` or `Fig. 10`, `Table 2` by `table2`.
fn key(source: &str) -> String {
    let plain: String = source.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    plain.strip_prefix("figure").or_else(|| plain.strip_prefix("fig")).unwrap_or(&plain).to_owned()
}

/// Makes the parts of a paper; with `wanted`, those rows and figures alone. `Invalid`, with the names that there are, for
/// a figure that is none.
pub fn run(title: &str, intro: &[&str], parts: &[Part], lab: &Lab<'_>, wanted: Option<&str>) -> Result<Outcome> {
    let mut section = Section::new(title, intro);
    let is_wanted = |source: &str| wanted.is_none_or(|wanted| key(wanted) == key(source));
    let mut known: Vec<&str> = Vec::new();
    for source in parts.iter().flat_map(|part| part.sources) {
        if !known.contains(source) {
            known.push(source);
        }
    }
    if !known.iter().any(|source| is_wanted(source)) {
        bail!(Invalid, "there is no figure {:?}; choose one of {}", wanted.unwrap_or_default(), known.join(", "));
    }
    for part in parts.iter().filter(|part| part.sources.iter().any(|source| is_wanted(source))) {
        let made = (part.make)(lab)?;
        section.intro.extend(made.intro);
        section.rows.extend(made.rows.into_iter().filter(|row| is_wanted(&row.source)));
        let of = |figure: &Figure| is_wanted(figure.title.split(':').next().unwrap_or_default());
        section.figures.extend(made.figures.into_iter().filter(of));
        section.tables.extend(made.tables);
    }
    Ok(Outcome { section })
}

/// Ours as a multiple of the paper's; in words where it is no matter of size.
fn ratio(row: &Comparison) -> Cell {
    match (&row.verdict, row.difference()) {
        (Some(verdict), _) => Cell::text(&verdict.words),
        (None, Some(difference)) => Cell::Number(1.0 + difference, 2),
        (None, None) if row.agrees() => "same".into(),
        (None, None) => Cell::Missing,
    }
}

impl Outcome {
    /// The numbers: figure, point, paper, ours, ratio, why.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = [
            ("figure", "figure"),
            ("point", "point"),
            ("paper", "paper"),
            ("ours", "ours"),
            ("ratio", "ratio"),
            ("why", "why"),
        ];
        let mut table = Table::new(self.section.title.clone(), &columns);
        for row in &self.section.rows {
            table.row(vec![
                Cell::text(&row.source),
                Cell::text(&row.quantity),
                row.paper.clone(),
                row.ours.clone(),
                ratio(row),
                Cell::text(&row.remark),
            ]);
        }
        table
    }

    /// The result as JSON for programs.
    #[must_use]
    pub fn json(&self, seed: u64) -> Value {
        let agreeing = self.section.agreeing();
        json!({"seed": seed, "numbers": self.section.rows.len(), "agreeing": agreeing, "rows": self.table().json()})
    }

    /// The same for results that were measured and follow from no seed: with the number of rounds, and the tables of
    /// all observations.
    #[must_use]
    pub fn measured_json(&self, rounds: u32) -> Value {
        let agreeing = self.section.agreeing();
        let tables: Vec<Value> =
            self.section.tables.iter().map(|table| json!({"title": table.title, "rows": table.json()})).collect();
        let numbers = self.section.rows.len();
        json!({"rounds": rounds, "numbers": numbers, "agreeing": agreeing, "rows": self.table().json(), "tables": tables})
    }

    /// Names and contents of the files of the figures.
    #[must_use]
    pub fn pictures(&self) -> Vec<(String, String)> {
        let name = |(index, figure): (usize, &Figure)| {
            let source = key(figure.title.split(':').next().unwrap_or_default());
            (format!("{:02}-{source}.svg", index + 1), figure.svg())
        };
        self.section.figures.iter().enumerate().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::part::Effort;

    fn part(_: &Lab<'_>) -> Result<Section> {
        let mut section = Section::new("", &[]);
        section.rows.push(Comparison::new("Fig. 1", "a", Cell::Count(2), Cell::Count(3), "since"));
        section.rows.push(Comparison::new("Table 2", "b", Cell::Count(2), Cell::Count(2), ""));
        Ok(section)
    }

    #[test]
    fn one_figure_can_be_asked_for_by_any_of_its_names() {
        let lab = Lab { seed: 1, effort: Effort::Quick, jobs: NonZeroUsize::MIN, on_world: &|_| () };
        let parts = [Part { sources: &["Fig. 1", "Table 2"], make: part }];
        for name in ["1", "fig1", "Fig. 1", "figure 1"] {
            let rows = run("P", &[], &parts, &lab, Some(name)).unwrap().table().rows().to_vec();
            assert_eq!((rows.len(), rows[0][4].clone()), (1, Cell::Number(1.5, 2)));
        }
        assert_eq!(run("P", &[], &parts, &lab, None).unwrap().table().rows().len(), 2);
        assert!(run("P", &[], &parts, &lab, Some("7")).unwrap_err().to_string().contains("Table 2"));
    }
}
