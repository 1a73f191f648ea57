//! A client's hold on one file: its lease, or its stay at a proxy. Pure.
//!
//! | state \ event | `grant` | `close`, `reopen` | `lower` | `give_back` | `lose` | `join` | `end_stay` |
//! |---|---|---|---|---|---|---|---|
//! | nothing, last lease over | read, write | - | ✗ | ✗ | - | shared | - |
//! | nothing, last lease lost | read, write | - | ✗ | ✗ | - | shared | - |
//! | read | read, write | read | ✗ | nothing, over | nothing, over | ✗ | - |
//! | write | read, write | write | read | nothing, over | nothing, lost | ✗ | - |
//! | shared | ✗ | - | ✗ | ✗ | - | ✗ | nothing |
//!
//! A dash means that nothing changes, and a cross that the event cannot come. `lose` and `close` come in any state: an
//! error or a batch concerns a file whatever is held of it.
//!
//! A file may be shared after its write lease was lost. Both are remembered then: how the last lease ended stays part
//! of the states without a lease, until the next grant.

use ebb_types::Epoch;
use ebb_wire::pb;

use crate::shared_file::sharing::{End, Sharing, Stay};

/// A client's hold on a file, with its memory of earlier holds.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    state: State,
    /// Epoch of the last write lease that went back in order. It belongs to no state: a flush asks what became of its
    /// epoch after the next lease was granted or lost.
    given_back: Option<Epoch>,
    /// The last stay of which it is known that it ended with everything synced. It belongs to no state: an answer of
    /// the proxy may come after the next lease or the next stay began.
    kept: Option<Stay>,
}

#[derive(Debug)]
enum State {
    /// Neither a lease nor a part in a shared file: the master is asked.
    Nothing(Last),
    /// Data and attributes may be cached.
    Read(Term),
    /// The only writer.
    Write(Term),
    /// The proxy holds the file, and carries out operations on it.
    Shared(Sharing, Last),
}

impl Default for State {
    fn default() -> Self {
        Self::Nothing(Last::Over(Epoch::default()))
    }
}

/// A lease, from its grant to its end.
#[derive(Clone, Copy, Debug)]
struct Term {
    /// Fencing epoch.
    epoch: Epoch,
    /// The session that holds it.
    generation: u64,
    /// It is on its way back, or down: nothing is served from memory any more.
    is_closed: bool,
}

/// How the last lease ended, with its epoch.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// Nothing that was written under it is in doubt. Epoch 0: there was none.
    Over(Epoch),
    /// A write lease that was lost. Its writes may be on some members, so it is not taken up again: only a higher
    /// epoch is valid.
    Lost(Epoch),
}

impl Last {
    fn epoch(self) -> Epoch {
        match self {
            Self::Over(epoch) | Self::Lost(epoch) => epoch,
        }
    }

    fn lost(self) -> Option<Epoch> {
        match self {
            Self::Over(_) => None,
            Self::Lost(epoch) => Some(epoch),
        }
    }
}

impl Hold {
    /// The lease that is held, whether it may be believed or not.
    pub fn lease(&self) -> Lease {
        match &self.state {
            State::Nothing(_) | State::Shared(..) => Lease::None,
            State::Read(_) => Lease::Read,
            State::Write(_) => Lease::Write,
        }
    }

    /// The lease that this session holds.
    pub fn lease_of(&self, generation: u64) -> Lease {
        if self.term().is_some_and(|term| term.generation == generation) { self.lease() } else { Lease::None }
    }

    /// Whether this session may serve what `lease` allows, as long as it is trusted.
    pub fn serves(&self, lease: Lease, generation: u64) -> bool {
        self.lease_of(generation) >= lease && self.term().is_some_and(|term| !term.is_closed)
    }

    /// Whether it is the write lease of this epoch.
    pub fn is_write_of(&self, epoch: Epoch) -> bool {
        matches!(&self.state, State::Write(term) if term.epoch == epoch)
    }

    /// Epoch of the lease that is held, or of the last one; 0: there was none.
    pub fn epoch(&self) -> Epoch {
        match &self.state {
            State::Read(term) | State::Write(term) => term.epoch,
            State::Nothing(last) | State::Shared(_, last) => last.epoch(),
        }
    }

    /// Whether the lease is on its way back or down.
    pub fn is_closed(&self) -> bool {
        self.term().is_some_and(|term| term.is_closed)
    }

    /// Epoch of the last lease, if it was a write lease and was lost.
    pub fn lost(&self) -> Option<Epoch> {
        match &self.state {
            State::Nothing(last) | State::Shared(_, last) => last.lost(),
            State::Read(_) | State::Write(_) => None,
        }
    }

    /// Whether the last write lease that went back in order had this epoch.
    pub fn was_given_back(&self, epoch: Epoch) -> bool {
        self.given_back == Some(epoch)
    }

    /// The part in a shared file.
    pub fn sharing(&self) -> Option<&Sharing> {
        match &self.state {
            State::Shared(sharing, _) => Some(sharing),
            _ => None,
        }
    }

    /// The part in a shared file, if it is still this stay.
    pub fn during(&mut self, stay: &Stay) -> Option<&mut Sharing> {
        match &mut self.state {
            State::Shared(sharing, _) if sharing.stay == *stay => Some(sharing),
            _ => None,
        }
    }

    /// Whether the file is shared, and something was written to it that is not known to be synced.
    pub fn is_unsynced(&self) -> bool {
        self.sharing().is_some_and(Sharing::is_unsynced)
    }

    /// Whether the last stay that is known to have ended with everything synced was this one.
    pub fn was_kept(&self, stay: &Stay) -> bool {
        self.kept.as_ref() == Some(stay)
    }

    /// Whether no lease is held, and the file is not shared.
    pub fn is_nothing(&self) -> bool {
        matches!(self.state, State::Nothing(_))
    }

    /// Whether something goes wrong if this is forgotten: others count on a lease, or the outcome of some write is
    /// open.
    pub fn is_needed(&self) -> bool {
        self.lease() != Lease::None || self.lost().is_some() || self.is_unsynced()
    }

    /// The master granted a lease. The record of the last one is not needed any more.
    ///
    /// # Panics
    /// If the file is shared, or if it would be a write lease that was lost already.
    pub fn grant(&mut self, lease: Lease, epoch: Epoch, generation: u64) {
        assert!(self.sharing().is_none(), "a stay at a proxy ends before a lease is granted");
        let term = Term { epoch, generation, is_closed: false };
        self.state = match lease {
            Lease::None => panic!("a grant is of a lease"),
            Lease::Read => State::Read(term),
            Lease::Write => {
                assert!(self.lost().is_none_or(|lost| epoch > lost), "a lost write lease is not taken up again");
                State::Write(term)
            }
        };
    }

    /// Nothing is served under the lease any more, if there is one.
    pub fn close(&mut self) {
        self.set_closed(true);
    }

    /// The lease, if it is still there, serves again.
    pub fn reopen(&mut self) {
        self.set_closed(false);
    }

    /// The write lease is a read lease from now on.
    ///
    /// # Panics
    /// If there is no write lease.
    pub fn lower(&mut self) {
        let State::Write(term) = self.state else { panic!("only a write lease is lowered: {self:?}") };
        self.given_back = Some(term.epoch);
        self.state = State::Read(term);
    }

    /// The lease goes back with everything committed.
    ///
    /// # Panics
    /// If there is none.
    pub fn give_back(&mut self) {
        let term = *self.term().expect("what goes back is held");
        if self.lease() == Lease::Write {
            self.given_back = Some(term.epoch);
        }
        self.state = State::Nothing(Last::Over(term.epoch));
    }

    /// The lease, if there is one, is gone without having been given back.
    pub fn lose(&mut self) {
        match self.state {
            State::Nothing(_) | State::Shared(..) => {}
            State::Read(term) => self.state = State::Nothing(Last::Over(term.epoch)),
            State::Write(term) => self.state = State::Nothing(Last::Lost(term.epoch)),
        }
    }

    /// The file is gone, and its number is never given again: no later lease can be mistaken for a lost one.
    ///
    /// # Panics
    /// If a lease is held.
    pub fn forget_lost(&mut self) {
        match &mut self.state {
            State::Nothing(last) | State::Shared(_, last) => *last = Last::Over(last.epoch()),
            State::Read(_) | State::Write(_) => panic!("the lease goes before the loss of one is forgotten: {self:?}"),
        }
    }

    /// A stay at a proxy begins.
    ///
    /// # Panics
    /// If a lease is held, or another stay goes on.
    pub fn join(&mut self, stay: Stay, address: String, takeovers: u64) {
        let State::Nothing(last) = self.state else { panic!("of a file that is shared nothing is held: {self:?}") };
        self.state = State::Shared(Sharing::new(stay, address, takeovers), last);
    }

    /// Ends the stay at a proxy, if there is one. Returns its record.
    pub fn end_stay(&mut self, end: End) -> Option<Sharing> {
        let State::Shared(_, last) = self.state else { return None };
        let State::Shared(sharing, _) = std::mem::replace(&mut self.state, State::Nothing(last)) else { return None };
        if end == End::Kept {
            self.kept = Some(sharing.stay);
        }
        Some(sharing)
    }

    fn term(&self) -> Option<&Term> {
        match &self.state {
            State::Nothing(_) | State::Shared(..) => None,
            State::Read(term) | State::Write(term) => Some(term),
        }
    }

    fn set_closed(&mut self, is_closed: bool) {
        if let State::Read(term) | State::Write(term) = &mut self.state {
            term.is_closed = is_closed;
        }
    }
}

/// Kinds of leases, from the weakest to the strongest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Lease {
    /// Nothing: the master is asked.
    #[default]
    None,
    /// Data and attributes may be cached.
    Read,
    /// The only writer.
    Write,
}

impl Lease {
    /// As messages say it.
    pub fn mode(self) -> pb::LeaseMode {
        match self {
            Self::None => pb::LeaseMode::LeaseNone,
            Self::Read => pb::LeaseMode::LeaseRead,
            Self::Write => pb::LeaseMode::LeaseWrite,
        }
    }

    /// From a message.
    pub fn from_mode(mode: pb::LeaseMode) -> Self {
        match mode {
            pb::LeaseMode::LeaseNone => Self::None,
            pb::LeaseMode::LeaseRead => Self::Read,
            pb::LeaseMode::LeaseWrite => Self::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAY: Stay = Stay { boot: 3, epoch: 8 };

    fn epoch(raw: u64) -> Epoch {
        Epoch::new(raw)
    }

    fn granted(lease: Lease, raw: u64) -> Hold {
        let mut hold = Hold::default();
        hold.grant(lease, epoch(raw), 1);
        hold
    }

    fn shared() -> Hold {
        let mut hold = Hold::default();
        hold.join(STAY, "p:1".into(), 0);
        hold
    }

    #[test]
    fn nothing_is_held_at_first_and_nothing_is_remembered() {
        let hold = Hold::default();
        assert!(hold.is_nothing() && !hold.is_needed());
        assert_eq!((hold.lease(), hold.epoch(), hold.lost()), (Lease::None, epoch(0), None));
        assert!(!hold.was_given_back(epoch(0)));
    }

    #[test]
    fn a_lease_serves_what_it_allows_to_the_session_that_has_it() {
        let hold = granted(Lease::Read, 5);
        assert!(hold.serves(Lease::Read, 1) && !hold.serves(Lease::Write, 1) && !hold.serves(Lease::Read, 2));
        assert_eq!((hold.lease_of(1), hold.lease_of(2)), (Lease::Read, Lease::None));
        let hold = granted(Lease::Write, 5);
        assert!(hold.serves(Lease::Read, 1) && hold.serves(Lease::Write, 1));
        assert!(hold.is_write_of(epoch(5)) && !hold.is_write_of(epoch(4)));
        assert!(!granted(Lease::Read, 5).is_write_of(epoch(5)));
    }

    #[test]
    fn a_closed_lease_is_held_and_serves_nothing() {
        let mut hold = granted(Lease::Write, 5);
        hold.close();
        hold.close();
        assert!(hold.is_closed() && hold.is_write_of(epoch(5)) && !hold.serves(Lease::Read, 1));
        hold.lower();
        assert!(hold.is_closed(), "it is closed until its batch is over");
        hold.reopen();
        assert!(hold.serves(Lease::Read, 1));
        hold.close();
        hold.grant(Lease::Write, epoch(6), 1);
        assert!(hold.serves(Lease::Write, 1), "a grant is open");
    }

    #[test]
    fn only_a_lease_is_closed() {
        for mut hold in [Hold::default(), shared()] {
            hold.close();
            assert!(!hold.is_closed());
            hold.end_stay(End::Kept);
            hold.grant(Lease::Read, epoch(9), 1);
            assert!(hold.serves(Lease::Read, 1), "nothing is left of it");
        }
    }

    #[test]
    fn a_write_lease_that_went_back_is_remembered_under_the_next_one() {
        let ways: [fn(&mut Hold); 2] = [Hold::lower, Hold::give_back];
        for (way, left) in ways.into_iter().zip([Lease::Read, Lease::None]) {
            let mut hold = granted(Lease::Write, 5);
            way(&mut hold);
            assert_eq!((hold.lease(), hold.epoch(), hold.lost()), (left, epoch(5), None));
            hold.grant(Lease::Write, epoch(6), 1);
            assert!(hold.was_given_back(epoch(5)) && !hold.was_given_back(epoch(6)));
            hold.lose();
            assert!(hold.was_given_back(epoch(5)) && !hold.was_given_back(epoch(6)));
        }
    }

    #[test]
    fn a_read_lease_leaves_only_its_epoch() {
        let ways: [fn(&mut Hold); 2] = [Hold::give_back, Hold::lose];
        for way in ways {
            let mut hold = granted(Lease::Read, 5);
            way(&mut hold);
            assert!(hold.is_nothing() && !hold.is_needed() && !hold.was_given_back(epoch(5)));
            assert_eq!((hold.epoch(), hold.lost()), (epoch(5), None));
        }
    }

    #[test]
    fn a_lost_write_lease_is_remembered_until_the_next_grant_and_during_a_stay() {
        let mut hold = granted(Lease::Write, 5);
        hold.lose();
        hold.lose();
        assert_eq!((hold.lost(), hold.epoch()), (Some(epoch(5)), epoch(5)));
        assert!(hold.is_nothing() && hold.is_needed());
        hold.join(STAY, "p:1".into(), 0);
        hold.lose();
        assert!(hold.sharing().is_some() && hold.lost().is_some() && hold.is_needed());
        hold.end_stay(End::Lost);
        assert_eq!(hold.lost(), Some(epoch(5)));
        hold.grant(Lease::Read, epoch(5), 1);
        assert_eq!(hold.lost(), None);
    }

    #[test]
    fn the_loss_of_a_file_that_is_gone_is_forgotten() {
        let mut hold = granted(Lease::Write, 5);
        hold.lose();
        hold.forget_lost();
        assert_eq!((hold.lost(), hold.epoch()), (None, epoch(5)));
        assert!(!hold.is_needed());
        let mut hold = shared();
        hold.forget_lost();
        assert!(hold.sharing().is_some());
    }

    #[test]
    fn a_stay_is_known_by_its_name_and_its_good_end_is_remembered() {
        let other = Stay { boot: 4, ..STAY };
        let mut hold = shared();
        assert!(hold.during(&other).is_none() && !hold.is_unsynced() && !hold.is_needed());
        hold.during(&STAY).unwrap().written += 1;
        assert!(hold.is_unsynced() && hold.is_needed());
        assert_eq!(hold.end_stay(End::Kept).map(|sharing| sharing.written), Some(1));
        assert_eq!(hold.end_stay(End::Lost), None, "it is over");
        assert!(hold.is_nothing() && hold.was_kept(&STAY));
        hold.join(other, "p:2".into(), 0);
        hold.end_stay(End::Lost);
        assert!(hold.was_kept(&STAY) && !hold.was_kept(&other));
    }

    #[test]
    fn events_that_cannot_come_are_refused() {
        let read = || granted(Lease::Read, 5);
        let write = || granted(Lease::Write, 5);
        let lost = || {
            let mut hold = write();
            hold.lose();
            hold
        };
        let join = |hold: &mut Hold| hold.join(STAY, "p:1".into(), 0);
        let take_up = |hold: &mut Hold| hold.grant(Lease::Write, epoch(5), 1);
        refuses(Hold::lower, [Hold::default(), read(), lost(), shared()]);
        refuses(Hold::give_back, [Hold::default(), lost(), shared()]);
        refuses(Hold::forget_lost, [read(), write()]);
        refuses(join, [read(), write(), shared()]);
        refuses(take_up, [lost(), shared()]);
        refuses(|hold| hold.grant(Lease::None, epoch(5), 1), [Hold::default()]);
    }

    fn refuses<const COUNT: usize>(event: impl Fn(&mut Hold), holds: [Hold; COUNT]) {
        for mut hold in holds {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| event(&mut hold)));
            assert!(outcome.is_err(), "{hold:?}");
        }
    }
}
