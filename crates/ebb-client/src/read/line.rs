//! The members that a read has still to ask, in order, each with how much may wait there before it.

use std::collections::VecDeque;

use ebb_power::read::Order;
use ebb_power::read::queue::AfterRefusal;

/// One member that is to be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asking {
    /// Its place in the set.
    pub place: usize,
    /// It refuses the read if more bytes wait there. None: it takes the read in any case.
    pub limit: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Line {
    asking: VecDeque<Asking>,
    /// The second of the two that were drawn, with its edge, until one of them has refused.
    rival: Option<(usize, f64)>,
}

impl Line {
    /// `limit`: of the first, if another one was drawn against it.
    pub fn new(order: &Order<usize>, limit: Option<u64>) -> Self {
        let mut asking: VecDeque<Asking> =
            order.nodes.iter().map(|place| Asking { place: *place, limit: None }).collect();
        let rival = order.nodes.get(1).copied().zip(order.edge);
        if let Some(first) = asking.front_mut().filter(|_| rival.is_some()) {
            first.limit = limit;
        }
        Self { asking, rival }
    }

    /// The member that is asked next.
    pub fn next(&mut self) -> Option<Asking> {
        self.asking.pop_front()
    }

    /// The place of the member that would be asked next.
    pub fn peek(&self) -> Option<usize> {
        self.asking.front().map(|asking| asking.place)
    }

    /// A member has refused the read because too much waits there. It is asked again, without a limit: next, or after
    /// its rival, as `choose` says of the latter.
    pub fn on_refused(&mut self, place: usize, choose: impl FnOnce(usize, f64) -> AfterRefusal) {
        let rival = self.rival.take();
        let again = Asking { place, limit: None };
        let at = match (rival, self.asking.front_mut()) {
            (Some((rival, edge)), Some(next)) if next.place == rival => match choose(rival, edge) {
                AfterRefusal::Second(limit) => {
                    next.limit = limit;
                    1
                }
                AfterRefusal::First => 0,
            },
            // Both have refused: more waits at this one than at the other, which is next.
            (None, Some(_)) => 1,
            _ => 0,
        };
        self.asking.insert(at, again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(mut line: Line) -> Vec<(usize, Option<u64>)> {
        std::iter::from_fn(|| line.next().map(|next| (next.place, next.limit))).collect()
    }

    fn order(edge: Option<f64>) -> Order<usize> {
        Order { nodes: vec![4, 2, 7], edge }
    }

    #[test]
    fn only_one_that_was_drawn_against_another_has_a_limit() {
        assert_eq!(asked(Line::new(&order(Some(0.5)), Some(9))), [(4, Some(9)), (2, None), (7, None)]);
        assert_eq!(asked(Line::new(&order(None), Some(9))), [(4, None), (2, None), (7, None)]);
    }

    #[test]
    fn a_member_that_has_refused_is_asked_again_without_a_limit() {
        let refused = |after| {
            let mut line = Line::new(&order(Some(0.5)), Some(9));
            line.next();
            line.on_refused(4, |rival, edge| {
                assert_eq!((rival, edge), (2, 0.5));
                after
            });
            line
        };
        assert_eq!(asked(refused(AfterRefusal::First)), [(4, None), (2, None), (7, None)]);
        assert_eq!(asked(refused(AfterRefusal::Second(None))), [(2, None), (4, None), (7, None)]);
        let mut line = refused(AfterRefusal::Second(Some(30)));
        assert_eq!(line.next(), Some(Asking { place: 2, limit: Some(30) }));
        line.on_refused(2, |_, _| unreachable!("each is refused once"));
        assert_eq!(asked(line), [(4, None), (2, None), (7, None)]);
    }

    #[test]
    fn a_refusal_after_the_rival_was_asked_loses_no_member() {
        let mut line = Line::new(&order(Some(0.5)), Some(9));
        line.next();
        line.next();
        line.on_refused(4, |_, _| unreachable!("the rival has been asked"));
        assert_eq!(asked(line), [(4, None), (7, None)]);
    }
}
