//! RAID across replicated storage: a code's cost in space, and its losses (DiskReduce).

pub mod overhead;
pub mod reliability;
pub mod sizes;

use std::fmt;
use std::str::FromStr;

use ebb_types::{Error, Result, bail, err};

/// Copies, or data and check blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scheme {
    /// So many copies of each block.
    Copies(u32),
    /// `data` blocks with `check` check blocks: any `check` of them may be lost.
    Code {
        /// Data blocks in a set.
        data: u32,
        /// Check blocks in a set.
        check: u32,
    },
}

/// Most members of a set.
pub const MAX_MEMBERS: u32 = 256;

impl Scheme {
    /// Members of a set, on as many nodes.
    #[must_use]
    pub const fn members(self) -> u32 {
        match self {
            Self::Copies(copies) => copies,
            Self::Code { data, check } => data + check,
        }
    }

    /// Members that carry data of their own.
    #[must_use]
    pub const fn data(self) -> u32 {
        match self {
            Self::Copies(_) => 1,
            Self::Code { data, .. } => data,
        }
    }

    /// Members that may be lost.
    #[must_use]
    pub const fn tolerates(self) -> u32 {
        self.members() - self.data()
    }

    /// Space beyond the data, as a share of it, when all sets are full.
    #[must_use]
    pub fn ideal_overhead(self) -> f64 {
        f64::from(self.tolerates()) / f64::from(self.data())
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copies(1) => f.write_str("1 copy"),
            Self::Copies(copies) => write!(f, "{copies} copies"),
            Self::Code { data, check } => write!(f, "{data}+{check}"),
        }
    }
}

impl FromStr for Scheme {
    type Err = Error;

    /// `3` is three copies, `8+2` eight data and two check blocks. Errors: `Invalid`, with the nearest possible scheme.
    fn from_str(text: &str) -> Result<Self> {
        let number = |digits: &str| {
            digits.trim().parse::<u32>().map_err(|_| err!(Invalid, "{text:?} is no scheme: give 3 (copies) or 8+2"))
        };
        let scheme = match text.split_once('+') {
            Some((data, check)) => Self::Code { data: number(data)?, check: number(check)? },
            None => Self::Copies(number(text.trim_end_matches("copies").trim_end_matches("copy"))?),
        };
        match scheme {
            Self::Copies(0) => bail!(Invalid, "0 copies keep nothing; the nearest possible scheme is 1"),
            Self::Code { data: 0, check } => {
                bail!(Invalid, "0+{check} keeps no data; the nearest possible scheme is 1+{check}")
            }
            Self::Copies(members) if members > MAX_MEMBERS => too_many(text),
            Self::Code { data, check } if data.saturating_add(check) > MAX_MEMBERS => too_many(text),
            _ => Ok(scheme),
        }
    }
}

fn too_many(text: &str) -> Result<Scheme> {
    bail!(
        Invalid,
        "{text} has more than {MAX_MEMBERS} members, which is all that a byte-wise code can distinguish; the \
        nearest possible number of members is {MAX_MEMBERS}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_read_as_they_are_said() {
        assert_eq!("3".parse::<Scheme>().unwrap(), Scheme::Copies(3));
        assert_eq!("3 copies".parse::<Scheme>().unwrap().to_string(), "3 copies");
        let code: Scheme = "8+2".parse().unwrap();
        assert_eq!((code.members(), code.data(), code.tolerates(), code.ideal_overhead()), (10, 8, 2, 0.25));
        for bad in ["", "x", "8+", "0", "0+2", "300+2", "4294967295+4294967295", "-1", "257", "255+2"] {
            assert!(bad.parse::<Scheme>().is_err(), "{bad:?}");
        }
    }
}
