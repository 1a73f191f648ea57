//! What a proxy in a process of its own believes of sessions, from the master's answers. Pure.
//!
//! "It lives" is believed for a while, from the moment of the question. The master ends a session only when no proxy
//! can believe that any more. "It is over" is final: ids of sessions are never used again.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::SessionId;

/// A session that was used within this time is asked about again before its time is up.
const USED_WITHIN: Duration = Duration::from_secs(10);
/// A session that was unused for so long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// One part in so many of the vouched time is not used, as clocks differ in speed.
const MARGIN_PART: u32 = 10;

/// What is believed of one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It lives. No other session gets its locks before this answer is too old.
    Lives,
    /// It is over.
    Over,
    /// Not known: the master has to be asked.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Belief {
    until: Moment,
    is_over: bool,
    used: Moment,
}

/// Beliefs of all sessions that were asked about.
#[derive(Debug, Default)]
pub struct Beliefs {
    sessions: BTreeMap<SessionId, Belief>,
}

impl Beliefs {
    /// Whether a session lives. The session counts as used now.
    pub fn verdict_on(&mut self, session: SessionId, now: Moment) -> Verdict {
        let belief = self.sessions.entry(session).or_insert(Belief { until: now, is_over: false, used: now });
        belief.used = now;
        match belief {
            Belief { is_over: true, .. } => Verdict::Over,
            Belief { until, .. } if now < *until => Verdict::Lives,
            _ => Verdict::Unknown,
        }
    }

    /// Whether the session is known to be over.
    #[must_use]
    pub fn is_over(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|belief| belief.is_over)
    }

    /// Takes the master's answer to a question about the sessions `asked`, sent at `sent`. The sessions `over` are
    /// over. The master vouches for the others for `span`.
    pub fn on_vouched(&mut self, asked: &[SessionId], over: &[SessionId], sent: Moment, span: Duration) {
        // From the moment of asking: the answer may have been on its way for long, and the master counts from before
        // it.
        let until = sent.after(span - span / MARGIN_PART);
        for session in asked {
            if let Some(belief) = self.sessions.get_mut(session) {
                // The end of a session is final, and a late answer never shortens what a newer one has promised.
                belief.is_over |= over.contains(session);
                belief.until = belief.until.max(until);
            }
        }
    }

    /// Sessions in use whose belief ends within `ahead`.
    #[must_use]
    pub fn due(&self, now: Moment, ahead: Duration) -> Vec<SessionId> {
        let is_due = |belief: &Belief| {
            !belief.is_over && belief.until <= now.after(ahead) && now.since(belief.used) < USED_WITHIN
        };
        self.sessions.iter().filter(|(_, belief)| is_due(belief)).map(|(session, _)| *session).collect()
    }

    /// Forgets sessions that were unused for long.
    pub fn sweep(&mut self, now: Moment) {
        self.sessions.retain(|_, belief| now.since(belief.used) < FORGET_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId::new(1);
    const TWO: SessionId = SessionId::new(2);
    const SPAN: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn it_is_believed_from_asking_on_and_less_long_than_the_master_waits() {
        let mut beliefs = Beliefs::default();
        assert_eq!(beliefs.verdict_on(ONE, at(0)), Verdict::Unknown);
        beliefs.on_vouched(&[ONE], &[], at(100), SPAN);
        assert_eq!(beliefs.verdict_on(ONE, at(2_799)), Verdict::Lives);
        assert_eq!(beliefs.verdict_on(ONE, at(2_800)), Verdict::Unknown, "2.7 s after it was asked");
        // An answer that was overtaken by a later one takes nothing back.
        beliefs.on_vouched(&[ONE], &[], at(3_000), SPAN);
        beliefs.on_vouched(&[ONE], &[], at(200), SPAN);
        assert_eq!(beliefs.verdict_on(ONE, at(5_000)), Verdict::Lives);
    }

    #[test]
    fn an_ended_session_stays_ended() {
        let mut beliefs = Beliefs::default();
        beliefs.verdict_on(ONE, at(0));
        beliefs.verdict_on(TWO, at(0));
        beliefs.on_vouched(&[ONE, TWO], &[ONE], at(0), SPAN);
        assert_eq!((beliefs.verdict_on(ONE, at(1)), beliefs.verdict_on(TWO, at(1))), (Verdict::Over, Verdict::Lives));
        beliefs.on_vouched(&[ONE], &[], at(10), SPAN);
        assert_eq!(beliefs.verdict_on(ONE, at(20)), Verdict::Over, "what was on its way says nothing of now");
        assert!(beliefs.is_over(ONE) && !beliefs.is_over(TWO));
    }

    #[test]
    fn sessions_in_use_are_asked_about_in_time_and_others_are_forgotten() {
        let mut beliefs = Beliefs::default();
        beliefs.verdict_on(ONE, at(0));
        beliefs.on_vouched(&[ONE], &[], at(0), SPAN);
        assert_eq!(beliefs.due(at(1_000), Duration::from_secs(1)), []);
        assert_eq!(beliefs.due(at(2_000), Duration::from_secs(1)), [ONE]);
        assert_eq!(beliefs.due(at(10_000), Duration::from_secs(1)), [], "nobody has used it for long");
        beliefs.sweep(at(30_000));
        assert_eq!(beliefs.sessions.len(), 1);
        beliefs.sweep(at(60_000));
        assert!(beliefs.sessions.is_empty());
    }
}
