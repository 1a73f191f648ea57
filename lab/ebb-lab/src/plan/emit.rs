//! The four forms of output: tables for people, JSON, CSV, a figure.

use std::path::{Path, PathBuf};

use clap::Args;
use ebb_cli::output::{Output, print_line};
use ebb_plan::{Figure, Table};
use ebb_types::{Result, bail, err};
use serde_json::Value;

/// Forms of the output. `--json` is an option of the whole program.
#[derive(Clone, Debug, Default, Args)]
pub struct EmitArgs {
    /// Print the first table as comma-separated values on stdout, or write it to FILE.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    csv: Option<PathBuf>,
    /// Write the figure to FILE as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The result of a command.
pub struct Answer {
    /// Sentences above the tables.
    pub notes: Vec<String>,
    /// Tables. CSV is made of the first one.
    pub tables: Vec<Table>,
    /// The one JSON value.
    pub json: Value,
    /// The figure, if `--svg` was given.
    pub figure: Option<Figure>,
}

impl EmitArgs {
    /// Whether a figure is wanted: its data may be expensive.
    pub const fn wants_figure(&self) -> bool {
        self.svg.is_some()
    }

    /// Whether the first table goes out as CSV.
    pub const fn wants_csv(&self) -> bool {
        self.csv.is_some()
    }

    /// Writes the answer to the requested places.
    pub fn emit(&self, output: Output, answer: &Answer) -> Result<()> {
        if output.json() && self.csv.as_deref() == Some(Path::new("-")) {
            bail!(Invalid, "--json and --csv both need stdout; give --csv=FILE or one of them alone");
        }
        if let Some(path) = &self.svg {
            let figure = answer.figure.as_ref().ok_or_else(|| err!(Invalid, "there is no figure of this answer"))?;
            write(path, &figure.svg())?;
        }
        match self.csv.as_deref() {
            Some(path) if path == Path::new("-") => {
                print_line(first(answer)?.csv().trim_end());
                return Ok(());
            }
            Some(path) => write(path, &first(answer)?.csv())?,
            None => {}
        }
        if output.json() {
            output.print_json(&answer.json);
        } else {
            people(output, answer);
        }
        Ok(())
    }
}

fn people(output: Output, answer: &Answer) {
    for note in &answer.notes {
        output.say(note);
    }
    for (index, table) in answer.tables.iter().enumerate() {
        if index > 0 || !answer.notes.is_empty() {
            output.say("");
        }
        output.say(&table.title);
        for line in table.lines() {
            output.say(&line);
        }
    }
}

fn first(answer: &Answer) -> Result<&Table> {
    answer.tables.first().ok_or_else(|| err!(Invalid, "there is no table in this answer"))
}

/// Writes a whole file.
pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| err!(Io, "writing {}: {error}", path.display()))
}
