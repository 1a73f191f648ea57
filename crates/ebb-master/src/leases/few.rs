//! A map for the sessions of one file. Mostly there is one session, and there may be a million such files. One entry
//! takes no memory of its own, where the first node of a tree takes 100 to 200 bytes.

use std::fmt;

use ebb_types::SessionId;
use smallvec::SmallVec;

/// A map from session to `V`, in the order of sessions. Without `V` it is a set.
pub struct FewSessions<V = ()>(SmallVec<[(SessionId, V); 1]>);

impl<V> Default for FewSessions<V> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<V: fmt::Debug> fmt::Debug for FewSessions<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.0.iter().map(|(session, value)| (session, value))).finish()
    }
}

impl<V> FewSessions<V> {
    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the session has an entry.
    #[must_use]
    pub fn contains(&self, session: SessionId) -> bool {
        self.find(session).is_ok()
    }

    /// The session's value.
    #[must_use]
    pub fn get(&self, session: SessionId) -> Option<&V> {
        self.find(session).ok().map(|at| &self.0[at].1)
    }

    /// The session's value, for a change.
    pub fn get_mut(&mut self, session: SessionId) -> Option<&mut V> {
        self.find(session).ok().map(|at| &mut self.0[at].1)
    }

    /// The session's value, for a change, after an insert of `value` if it had none.
    pub fn get_or_insert(&mut self, session: SessionId, value: V) -> &mut V {
        let at = match self.find(session) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (session, value));
                at
            }
        };
        &mut self.0[at].1
    }

    /// Removes the session's entry.
    pub fn remove(&mut self, session: SessionId) -> Option<V> {
        let (_, value) = self.0.remove(self.find(session).ok()?);
        if self.0.len() <= 1 {
            self.0.shrink_to_fit();
        }
        Some(value)
    }

    /// The sessions, in order.
    pub fn iter(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.0.iter().map(|(session, _)| *session)
    }

    fn find(&self, session: SessionId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&session, |(known, _)| *known)
    }
}

impl FewSessions {
    /// Adds it, if it is not there.
    pub fn insert(&mut self, session: SessionId) {
        self.get_or_insert(session, ());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Goal: it is a map. Method: insertions and removals, beside a tree.
        #[test]
        fn it_knows_what_a_tree_knows(steps in prop::collection::vec((0..6_u64, any::<bool>()), 0..60)) {
            let (mut few, mut tree) = (FewSessions::default(), BTreeMap::new());
            for (step, (session, is_removal)) in steps.into_iter().enumerate() {
                let session = SessionId::new(session);
                if is_removal {
                    prop_assert_eq!(few.remove(session), tree.remove(&session));
                } else {
                    prop_assert_eq!(few.get_or_insert(session, step), tree.entry(session).or_insert(step));
                }
                prop_assert!(few.iter().eq(tree.keys().copied()), "{:?} beside {:?}", few, tree);
                prop_assert_eq!((few.is_empty(), few.get(session)), (tree.is_empty(), tree.get(&session)));
                prop_assert_eq!(few.contains(session), tree.contains_key(&session));
                prop_assert!(few.0.len() > 1 || !few.0.spilled(), "one takes no memory of its own");
            }
        }
    }
}
