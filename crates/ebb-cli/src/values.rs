//! Options whose value is one of a few names: help and completions list them.

use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// A parser of a value that has one of these names.
pub fn one_of<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: ToString> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>().map_err(|error| error.to_string()))
}
