//! The checker, as the tests of every model here use it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// A model that can be explored: its states can be compared and may go from thread to thread.
pub(crate) trait Explored:
    Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
        Action: Clone + Debug + PartialEq + Send + Sync + 'static,
    > + Send
    + Sync
    + 'static
{
}

impl<M> Explored for M where
    M: Model<
            State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
            Action: Clone + Debug + PartialEq + Send + Sync + 'static,
        > + Send
        + Sync
        + 'static
{
}

/// Names of the model's properties of one kind.
fn names<M: Explored>(model: &M, kind: &Expectation) -> BTreeSet<&'static str> {
    model
        .properties()
        .into_iter()
        .filter(|property| property.expectation == *kind)
        .map(|property| property.name)
        .collect()
}

/// Explores the whole model, whose `always` properties must hold; then exactly those of its `sometimes` properties
/// must have been reached that have none of `absent` in their names.
pub(crate) fn holds_and_reaches<M: Explored>(name: &str, model: M, absent: &[&str]) {
    let sometimes = names(&model, &Expectation::Sometimes);
    let expected: BTreeSet<_> =
        sometimes.into_iter().filter(|name| !absent.iter().any(|part| name.contains(part))).collect();
    assert_eq!(holds_in_every_state(name, model), expected, "{name}");
}

/// Explores the whole model, whose `always` properties must hold; the names of the `sometimes` properties that were
/// reached.
pub(crate) fn holds_in_every_state<M: Explored>(name: &str, model: M) -> BTreeSet<&'static str> {
    let always = names(&model, &Expectation::Always);
    let checker = model.checker().spawn_bfs().join();
    println!(
        "{name}: {} steps, {} states, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    assert!(checker.is_done(), "{name} was not explored to its end");
    for property in always {
        checker.assert_no_discovery(property);
    }
    checker.discoveries().into_keys().collect()
}

/// A model with a mistake in it breaks one of its `always` properties.
pub(crate) fn is_found<M: Explored>(mistake: &str, model: M) {
    let always = names(&model, &Expectation::Always);
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found: Vec<_> = always.into_iter().filter_map(|name| Some((name, checker.discovery(name)?))).collect();
    assert!(!found.is_empty(), "{mistake} was not found in {} states", checker.unique_state_count());
    for (name, path) in found {
        println!("{mistake}: broke \"{name}\" in {} steps", path.into_actions().len());
    }
}

/// Number by which a state is known.
pub(crate) fn print_of(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Every state that can be reached, each once. A plain search, so that the reductions are not judged by the library
/// that they were made for.
pub(crate) fn visit_all<M: Explored>(model: &M, mut visit: impl FnMut(&M::State)) {
    let mut waiting = model.init_states();
    let mut known: BTreeSet<u64> = waiting.iter().map(print_of).collect();
    while let Some(state) = waiting.pop() {
        visit(&state);
        waiting.extend(model.next_states(&state).into_iter().filter(|next| known.insert(print_of(next))));
    }
}

/// The values of `print` for all reachable states, and the number of states.
pub(crate) fn prints<M: Explored>(model: &M, mut print: impl FnMut(&M::State) -> u64) -> (BTreeSet<u64>, usize) {
    let mut seen = BTreeSet::new();
    let mut count = 0;
    visit_all(model, |state| {
        count += 1;
        seen.insert(print(state));
    });
    (seen, count)
}

/// Explores the case of each of these bounds once; all must hold.
pub(crate) fn each_case_holds<M: Explored, B: Copy + Debug + PartialEq>(
    cases: impl Iterator<Item = B>,
    model: impl Fn(B) -> M,
) {
    let mut done = Vec::new();
    for bounds in cases {
        if !done.contains(&bounds) {
            holds_in_every_state(&format!("{bounds:?}"), model(bounds));
            done.push(bounds);
        }
    }
}
