//! Errors of background work. Each open file reports an error once, as with Linux's errseq (lib/errseq.c).

use ebb_types::{Error, Result};

/// The last background error of a file, and whether a handle has reported it.
#[derive(Debug, Default)]
pub(crate) struct Sticky {
    count: u64,
    seen: bool,
    error: Option<Error>,
}

impl Sticky {
    /// Keeps an error. Every handle reports it once.
    pub fn set(&mut self, error: Error) {
        self.count += 1;
        self.seen = false;
        self.error = Some(error);
    }

    /// Start of a new handle: after an error that a handle has reported, before an error that no handle has reported.
    pub fn sample(&self) -> u64 {
        if self.seen || self.count == 0 { self.count } else { self.count - 1 }
    }

    /// The position after all errors so far.
    pub fn latest(&self) -> u64 {
        self.count
    }

    /// The error that came after `since`. `since` moves up, so that the error is reported once.
    pub fn check(&mut self, since: &mut u64) -> Result<()> {
        if *since >= self.count {
            return Ok(());
        }
        *since = self.count;
        self.seen = true;
        match &self.error {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::err;

    use super::*;

    #[test]
    fn each_handle_gets_an_error_once_and_a_late_opener_gets_one_that_none_got() {
        let mut sticky = Sticky::default();
        let (mut first, mut second) = (sticky.sample(), sticky.sample());
        assert!(sticky.check(&mut first).is_ok());
        sticky.set(err!(Io, "lost"));
        let mut late = sticky.sample();
        assert!(sticky.check(&mut late).is_err());
        assert!(sticky.check(&mut first).is_err());
        assert!(sticky.check(&mut first).is_ok());
        assert!(sticky.check(&mut second).is_err());
        let mut later = sticky.sample();
        assert!(sticky.check(&mut later).is_ok());
    }
}
