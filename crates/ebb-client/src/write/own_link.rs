//! How much to send ahead where links are slow.
//!
//! Writes in front of a slow link help nobody: an earlier write would be through sooner with fewer behind it, and what has waited
//! for too long is sent again to another node (docs/protocol.md, Slow links). So a client sends less ahead until a long write
//! has gone through, and again when one was held up, until that is some time ago. Plain values: moments come in as arguments.

use std::time::Duration;

use ebb_runtime::Moment;
use parking_lot::Mutex;

use crate::write::channel::WINDOW;

/// A write that waits for longer in front of a link has too many before it.
const LONG: Duration = Duration::from_secs(1);
/// For so long less is sent ahead.
const CALM: Duration = Duration::from_secs(10);
/// One is on its way while the other one's answer is.
const WINDOW_MIN: usize = 2;

/// Shorter writes say nothing of a link.
const BYTES_MIN: usize = 256 << 10;

/// From when on much may be sent ahead.
#[derive(Debug, Default)]
pub(crate) struct OwnLink(Mutex<Option<Moment>>);

impl OwnLink {
    /// A write of so many bytes, with an answer or without, has spent `held_up` in front of links.
    pub fn on_write(&self, bytes: usize, held_up: Duration, now: Moment) {
        let mut calm = self.0.lock();
        if held_up > LONG {
            *calm = Some(now.after(CALM));
        } else if bytes >= BYTES_MIN {
            calm.get_or_insert(now);
        }
    }

    /// Most writes in flight of one metablock.
    pub fn window(&self, now: Moment) -> usize {
        match *self.0.lock() {
            Some(calm) if calm <= now => WINDOW,
            _ => WINDOW_MIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_sent_ahead_at_first_and_for_some_time_after_a_write_was_held_up() {
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let link = OwnLink::default();
        assert_eq!(link.window(at(0)), WINDOW_MIN);
        link.on_write(4096, Duration::ZERO, at(1));
        assert_eq!(link.window(at(1)), WINDOW_MIN, "a short write goes through on any link");
        link.on_write(1 << 20, Duration::from_millis(900), at(5));
        assert_eq!(link.window(at(5)), WINDOW, "that is no long time");
        link.on_write(1 << 20, Duration::from_millis(1100), at(7));
        link.on_write(1 << 20, Duration::ZERO, at(8));
        assert_eq!(link.window(at(16)), WINDOW_MIN);
        link.on_write(4096, Duration::from_secs(3), at(16));
        assert_eq!(link.window(at(25)), WINDOW_MIN);
        assert_eq!(link.window(at(26)), WINDOW);
    }
}
