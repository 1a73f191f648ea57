//! Bytes that volumes have been given to write and have not written yet, as long as they are expected.
//!
//! An old reservation that is neither used nor given back means an open file without a writer. A reservation is
//! therefore expected only in the span of time of its grant or its file's last write, and in the next span.

use std::time::Duration;

use ebb_runtime::Moment;

/// Length of a span. A reservation is expected for one to two spans.
const SPAN: Duration = Duration::from_secs(5);

/// The current span, counted by the moments passed to [`Spans::at`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spans {
    ends: Option<Moment>,
    number: u64,
}

impl Spans {
    /// Number of the span at `now`. Numbers start at 2, so that anything counted before the first call is too old to
    /// matter.
    pub(super) fn at(&mut self, now: Moment) -> u64 {
        match self.ends {
            None => (self.ends, self.number) = (Some(now.after(SPAN)), 2),
            Some(ends) if now >= ends => {
                // After a pause the spans continue from now, and everything counted before is at least two spans old.
                let is_next = now < ends.after(SPAN);
                self.number += if is_next { 1 } else { 2 };
                self.ends = Some(if is_next { ends.after(SPAN) } else { now.after(SPAN) });
            }
            Some(_) => {}
        }
        self.number
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }
}

/// Bytes expected at one volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Waiting {
    span: u64,
    /// Bytes of that span, and of the one before.
    bytes: [u64; 2],
}

impl Waiting {
    /// Adds bytes of `span`, as seen from the span `now`.
    pub(super) fn add(&mut self, bytes: u64, span: u64, now: u64) {
        self.turn(now);
        if let Some(sum) = self.sum_of(span, now) {
            *sum += bytes;
        }
    }

    /// Removes bytes that were added for `span`.
    pub(super) fn subtract(&mut self, bytes: u64, span: u64, now: u64) {
        self.turn(now);
        if let Some(sum) = self.sum_of(span, now) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    /// Bytes expected in the span `now`.
    pub(super) fn bytes(&self, now: u64) -> u64 {
        let mut turned = *self;
        turned.turn(now);
        turned.bytes.iter().sum()
    }

    fn turn(&mut self, now: u64) {
        self.bytes = match now.saturating_sub(self.span) {
            0 => self.bytes,
            1 => [0, self.bytes[0]],
            _ => [0, 0],
        };
        self.span = self.span.max(now);
    }

    fn sum_of(&mut self, span: u64, now: u64) -> Option<&mut u64> {
        self.bytes.get_mut(usize::try_from(now.checked_sub(span)?).ok()?)
    }
}

/// Part of a metablock's open room that is likely to be written soon.
///
/// It is the whole room until the first commit, and then at most the growth by the last commit. A small file that was
/// written whole, or a log that grows by lines, has as much room as a file that grows by gigabytes. Yet nearly nothing
/// waits for them.
pub(super) fn expected(open_bytes: u64, grew_bytes: Option<u64>) -> u64 {
    grew_bytes.map_or(open_bytes, |grew| grew.min(open_bytes))
}
