//! The trash of datasets: `rm` moves there, and `ebb fs trash` shows it, brings things back and empties it.
//!
//! [`ebb_types::trash`] has the layout. The master removes what has been there for its time.

mod bin;
mod command;

pub use bin::Bins;
pub use command::TrashCommand;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ebb_cli::units::Span;

/// How long a dataset keeps what is removed: a span of time, or `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptFor(pub u32);

impl FromStr for KeptFor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(0));
        }
        let span = text.parse::<Span>().map_err(|why| format!("{why}; `off` keeps nothing"))?;
        match u32::try_from(span.0.as_secs()) {
            Ok(0) => Err(format!("{text} is too short: at least 1s, or `off`")),
            Ok(seconds) => Ok(Self(seconds)),
            Err(_) => Err(format!("{text} is too long: at most {}", Self(u32::MAX))),
        }
    }
}

impl fmt::Display for KeptFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(f, "off"),
            seconds => write!(f, "{}", humantime::format_duration(Duration::from_secs(seconds.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_or_off() {
        assert_eq!("7d".parse(), Ok(KeptFor(604_800)));
        assert_eq!("off".parse(), Ok(KeptFor(0)));
        assert!("0s".parse::<KeptFor>().unwrap_err().contains("at least 1s"));
        assert!("1000000d".parse::<KeptFor>().unwrap_err().contains("at most 136years"));
        assert!("7".parse::<KeptFor>().unwrap_err().contains("no unit"));
        assert_eq!((KeptFor(90_000).to_string(), KeptFor(0).to_string()), ("1day 1h".to_owned(), "off".to_owned()));
    }
}
