//! Applications from a file.
//!
//! ```toml
//! [[app]]
//! name = "Log scan"
//! map_input = "40GiB"          # bytes, or a size with its unit
//! map_output = "100MiB"        # to reducers; to files, if there are none
//! reduce_output = 0
//! mappers = 640
//! reducers = 20
//! map_cycles_per_byte = 160    # of input; of output, if there is no input
//! reduce_cycles_per_byte = 90  # of the bytes at a reducer
//! ```

use std::path::Path;

use ebb_cli::units::ByteSize;
use ebb_sim::App;
use ebb_types::{Result, bail, err};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    app: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    map_input: Size,
    #[serde(default)]
    map_output: Size,
    #[serde(default)]
    reduce_output: Size,
    mappers: usize,
    #[serde(default)]
    reducers: usize,
    #[serde(default = "scan")]
    map_cycles_per_byte: f64,
    #[serde(default = "reduce")]
    reduce_cycles_per_byte: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Text(String),
}

impl Default for Size {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

/// Grep's.
const fn scan() -> f64 {
    160.0
}

/// MRPerf's.
const fn reduce() -> f64 {
    90.0
}

/// Reads and checks a file of applications.
pub fn read(path: &Path) -> Result<Vec<App>> {
    let text = std::fs::read_to_string(path).map_err(|error| err!(Invalid, "reading {}: {error}", path.display()))?;
    parse(&text, path)
}

fn parse(text: &str, path: &Path) -> Result<Vec<App>> {
    let file: File = toml::from_str(text).map_err(|error| err!(Invalid, "{}: {error}", path.display()))?;
    if file.app.is_empty() {
        bail!(Invalid, "{}: there is no [[app]] in it", path.display());
    }
    file.app.into_iter().map(|entry| entry.app(path)).collect()
}

impl Entry {
    fn app(self, path: &Path) -> Result<App> {
        let name = self.name;
        let bytes = |field: &str, size: &Size| match size {
            Size::Bytes(bytes) => Ok(*bytes as f64),
            Size::Text(text) => text
                .parse::<ByteSize>()
                .map(|size| size.0 as f64)
                .map_err(|reason| err!(Invalid, "{}: {name}: {field}: {reason}", path.display())),
        };
        Ok(App {
            map_input_bytes: bytes("map_input", &self.map_input)?,
            map_output_bytes: bytes("map_output", &self.map_output)?,
            reduce_output_bytes: bytes("reduce_output", &self.reduce_output)?,
            name,
            mappers: self.mappers,
            reducers: self.reducers,
            map_cycles_per_byte: self.map_cycles_per_byte,
            reduce_cycles_per_byte: self.reduce_cycles_per_byte,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_file_is_read_or_refused() {
        ebb_fuzz::run::hold(&ebb_fuzz::Target {
            name: "ebb/apps",
            source: "an operator's TOML file",
            cap: ebb_fuzz::Cap { base: 64 << 10, times: 512 },
            shape: ebb_fuzz::Shape::Text,
            cases: 3_000,
            decode: |bytes| parse(&String::from_utf8_lossy(bytes), Path::new("apps.toml")).is_ok(),
            samples: || {
                let app =
                    "[[app]]\nname = \"scan\"\nmap_input = \"40GiB\"\nmap_output = 77\nmappers = 640\nreducers = 20\n";
                vec![app.into(), format!("{app}map_cycles_per_byte = 160.5\n{app}").into()]
            },
            repair: ebb_fuzz::target::nothing,
        });
    }
}
