//! What volumes have been given to write and have not yet, as far as it is still believed.
//!
//! Room that was handed out and neither used nor given back says nothing after a while: the file is open, and nobody
//! writes. So it counts in the span of time in which it was handed out, or its file was last written to, and the next.

use std::time::Duration;

use ebb_runtime::Moment;

/// How long one span is: what was handed out is believed for one to two of them.
const SPAN: Duration = Duration::from_secs(5);

/// Spans, counted by the moments that are told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spans {
    ends: Option<Moment>,
    number: u64,
}

impl Spans {
    /// The number of the span at `now`. Numbers begin at 2: what was counted before any is told is too old to matter.
    pub(super) fn at(&mut self, now: Moment) -> u64 {
        match self.ends {
            None => (self.ends, self.number) = (Some(now.after(SPAN)), 2),
            Some(ends) if now >= ends => {
                // After a pause the spans go on from now: all that was is two spans old at least.
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

/// Bytes that wait for one volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Waiting {
    span: u64,
    /// Of that span, and of the one before.
    bytes: [u64; 2],
}

impl Waiting {
    /// Counts what belongs to `span`, as seen from the span `now`.
    pub(super) fn add(&mut self, bytes: u64, span: u64, now: u64) {
        self.turn(now);
        if let Some(sum) = self.sum_of(span, now) {
            *sum += bytes;
        }
    }

    /// Takes back what was counted for `span`.
    pub(super) fn subtract(&mut self, bytes: u64, span: u64, now: u64) {
        self.turn(now);
        if let Some(sum) = self.sum_of(span, now) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    /// Bytes that wait in the span `now`.
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

/// How much of the room that a file has been given on a metablock is likely to be written soon: all, until something has
/// been committed; then no more than the last commit brought. A small file that was written whole, and a log that grows
/// by lines, have as much room as one that grows by gigabytes, and nearly nothing waits for them.
pub(super) fn expected(open_bytes: u64, grew_bytes: Option<u64>) -> u64 {
    grew_bytes.map_or(open_bytes, |grew| grew.min(open_bytes))
}
