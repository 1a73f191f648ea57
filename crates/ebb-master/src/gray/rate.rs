//! Rate limit for replacements of copies on gray nodes.

use ebb_runtime::Moment;

/// Maximum number of replacements per second in the whole cluster.
const PER_SECOND: f64 = 16.0;

/// A token bucket of replacements.
#[derive(Debug)]
pub(super) struct Rate {
    left: f64,
    at: Moment,
}

impl Default for Rate {
    fn default() -> Self {
        Self { left: PER_SECOND, at: Moment::default() }
    }
}

impl Rate {
    /// Takes a token. Returns whether there was one.
    pub(super) fn spend_one(&mut self, now: Moment) -> bool {
        self.left = (self.left + now.since(self.at).as_secs_f64() * PER_SECOND).min(PER_SECOND);
        self.at = now.max(self.at);
        let has_one = self.left >= 1.0;
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn so_many_a_second_and_no_more_after_a_rest() {
        let mut rate = Rate::default();
        let at = |ms: u64| Moment::default().after(Duration::from_millis(ms));
        assert_eq!((0..100).filter(|_| rate.spend_one(at(1000))).count(), 16);
        assert_eq!((0..1000).filter(|step| rate.spend_one(at(1000 + step))).count(), 15);
        assert_eq!((0..100).filter(|_| rate.spend_one(at(60_000))).count(), 16);
    }
}
