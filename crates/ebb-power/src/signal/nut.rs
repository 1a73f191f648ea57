//! The network protocol of the Network UPS Tools (developer guide, chapter 9), for reading only: lines out, lines in,
//! no socket.

use std::collections::BTreeMap;

use ebb_types::{Result, bail};

/// Port of upsd.
pub const PORT: u16 = 3493;
/// Longest line that is read.
pub const LINE_MAX: usize = 1_024;
/// Most variables of a UPS.
const VARIABLES_MAX: usize = 1_024;

/// The line that asks for all variables of a UPS. `Invalid` for a name that no UPS has.
pub fn list_variables(ups: &str) -> Result<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if ups.is_empty() || ups.len() > 64 || !ups.bytes().all(fits) {
        bail!(Invalid, "{ups:?} is no name of a UPS: letters, digits, '-', '_' and '.'");
    }
    Ok(format!("LIST VAR {ups}\n"))
}

/// The line that ends a conversation.
pub const LOGOUT: &str = "LOGOUT\n";

/// The answer to [`list_variables`], line by line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    has_begun: bool,
    variables: BTreeMap<String, String>,
}

impl Listing {
    /// Takes a line, without its end. Returns the variables once all are there.
    ///
    /// `Protocol` for a line that is no answer to the question; `NotFound` and `AccessDenied` for refusals of upsd;
    /// `Unavailable` if it has lost its UPS.
    pub fn on_line(&mut self, line: &str) -> Result<Option<BTreeMap<String, String>>> {
        if line.len() > LINE_MAX {
            bail!(Protocol, "upsd: a line of {} bytes", line.len());
        }
        let words = split(line)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["ERR", reason, ..] => refuse(reason),
            ["BEGIN", "LIST", "VAR", _] if !self.has_begun => {
                self.has_begun = true;
                Ok(None)
            }
            ["VAR", _, name, value] if self.has_begun && self.variables.len() < VARIABLES_MAX => {
                self.variables.insert((*name).to_owned(), (*value).to_owned());
                Ok(None)
            }
            ["END", "LIST", "VAR", _] if self.has_begun => Ok(Some(std::mem::take(self).variables)),
            _ => bail!(Protocol, "upsd: {line:?} is no part of a list of variables"),
        }
    }
}

fn refuse<T>(reason: &str) -> Result<T> {
    match reason {
        "UNKNOWN-UPS" => bail!(NotFound, "upsd knows no UPS of this name"),
        "ACCESS-DENIED" | "USERNAME-REQUIRED" | "PASSWORD-REQUIRED" | "INVALID-PASSWORD" => {
            bail!(AccessDenied, "upsd refuses: {reason}")
        }
        "DATA-STALE" | "DRIVER-NOT-CONNECTED" => bail!(Unavailable, "upsd has lost its UPS: {reason}"),
        _ => bail!(Protocol, "upsd: {reason}"),
    }
}

/// Words of a line; quotes hold one together, a backslash takes the next character as it is.
fn split(line: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' => {
                let Some(next) = characters.next() else { bail!(Protocol, "upsd: {line:?} ends in a backslash") };
                word.get_or_insert_default().push(next);
            }
            ' ' if !is_quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if is_quoted {
        bail!(Protocol, "upsd: {line:?} has a quote that does not end");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    fn listed(lines: &[&str]) -> Result<Option<BTreeMap<String, String>>> {
        let mut listing = Listing::default();
        let mut last = Ok(None);
        for line in lines {
            last = listing.on_line(line);
        }
        last
    }

    #[test]
    fn variables_are_read_with_quotes_and_backslashes() {
        let lines = [
            "BEGIN LIST VAR ups",
            "VAR ups ups.status \"OL CHRG\"",
            r#"VAR ups ups.mfr "A \"big\" \\ one""#,
            "END LIST VAR ups",
        ];
        let variables = listed(&lines).unwrap().unwrap();
        assert_eq!(variables["ups.status"], "OL CHRG");
        assert_eq!(variables["ups.mfr"], r#"A "big" \ one"#);
        assert_eq!(list_variables("rack-1.ups").unwrap(), "LIST VAR rack-1.ups\n");
    }

    #[test]
    fn refusals_and_nonsense_have_different_errors() {
        let kind = |line: &str| listed(&[line]).unwrap_err().kind();
        assert_eq!(kind("ERR UNKNOWN-UPS"), ErrorKind::NotFound);
        assert_eq!(kind("ERR ACCESS-DENIED"), ErrorKind::AccessDenied);
        assert_eq!(kind("ERR DATA-STALE"), ErrorKind::Unavailable);
        assert_eq!(kind("END LIST VAR ups"), ErrorKind::Protocol);
        assert_eq!(kind("VAR ups a \"b"), ErrorKind::Protocol);
        assert_eq!(kind(&"x".repeat(2_000)), ErrorKind::Protocol);
        assert!(list_variables("ups\nLOGOUT").is_err() && list_variables("").is_err());
    }

    proptest! {
        #[test]
        fn any_value_comes_through(value in "[ -~]{0,40}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let variable = format!("VAR u v \"{quoted}\"");
            let lines = ["BEGIN LIST VAR u", &variable, "END LIST VAR u"];
            prop_assert_eq!(&listed(&lines).unwrap().unwrap()["v"], &value);
        }

        #[test]
        fn no_line_makes_it_panic(lines in proptest::collection::vec("[ -~äß]{0,30}", 0..5)) {
            let mut listing = Listing::default();
            lines.iter().for_each(|line| drop(listing.on_line(line)));
        }
    }
}
