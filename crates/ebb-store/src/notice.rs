//! Log messages about work that waits for room on the disk: once when the wait begins, once a minute while it lasts,
//! and once when it is over. The work is tried again every second, for each metablock. A message each time would fill
//! the disk, too.
//!
//! Plain values: moments come in as arguments.

use std::time::Duration;

use ebb_runtime::Moment;

use crate::volume::Shared;

/// Minimum time between two messages of a wait. A wait that stops for a moment and begins again is not logged again.
const EVERY: Duration = Duration::from_secs(60);

/// Whether work waits, and the messages that were logged.
#[derive(Debug, Default)]
pub(crate) struct Notice {
    since: Option<Moment>,
    logged: Option<Moment>,
    /// The wait was logged, and its end was not.
    open: bool,
}

/// A message to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// Work waits, for so long by now.
    Waits(Duration),
    /// The wait is over, after so long.
    Over(Duration),
}

impl Notice {
    /// Updates the state with whether work waits now. Returns the message to log, if any.
    pub(crate) fn observe(&mut self, waits: bool, now: Moment) -> Option<News> {
        if !waits {
            let lasted = now.since(self.since.take()?);
            return std::mem::take(&mut self.open).then_some(News::Over(lasted));
        }
        let lasted = now.since(*self.since.get_or_insert(now));
        if self.logged.is_some_and(|logged| now.since(logged) < EVERY) {
            return None;
        }
        self.logged = Some(now);
        self.open = true;
        Some(News::Waits(lasted))
    }
}

/// Logs synced data that found no room for its place, when a message is due.
pub(crate) fn log_stuck(shared: &Shared) {
    let (news, replicas) = {
        let mut unsynced = shared.unsynced.lock();
        let replicas = unsynced.stuck.len();
        (unsynced.notice.observe(replicas > 0, shared.runtime.now()), replicas)
    };
    let volume = shared.root.display();
    match news {
        Some(News::Waits(lasted)) => tracing::warn!(
            %volume, metablocks = replicas, bytes = shared.unplaced_bytes(), seconds = lasted.as_secs(),
            "the disk is full: synced data waits in the journal and in memory for its place; make room on the disk"
        ),
        Some(News::Over(lasted)) => {
            tracing::info!(%volume, seconds = lasted.as_secs(), "the disk has room again: synced data is in its place");
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::default().after(Duration::from_secs(secs))
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_wait_is_logged_once_a_minute_and_once_at_its_end() {
        let mut notice = Notice::default();
        let mut logged = Vec::new();
        for second in 10..200 {
            logged.extend(notice.observe(second < 150, at(second)).map(|news| (second, news)));
        }
        let waits = |second| (second, News::Waits(secs(second - 10)));
        assert_eq!(logged, [waits(10), waits(70), waits(130), (150, News::Over(secs(140)))]);
        assert_eq!(notice.observe(true, at(200)), Some(News::Waits(secs(0))), "that is another time");
    }

    #[test]
    fn a_wait_that_comes_and_goes_is_logged_once_a_minute() {
        let mut notice = Notice::default();
        let logged: Vec<_> = (0..120)
            .filter_map(|second| notice.observe(second % 2 == 0, at(second)).map(|news| (second, news)))
            .collect();
        let (waits, over) = (News::Waits(secs(0)), News::Over(secs(1)));
        assert_eq!(logged, [(0, waits), (1, over), (60, waits), (61, over)]);
    }
}
