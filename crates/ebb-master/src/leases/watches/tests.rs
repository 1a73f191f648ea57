use proptest::prelude::*;

use super::*;

const INODE: InodeId = InodeId::new(7);

fn session(number: u64) -> SessionId {
    SessionId::new(number)
}

fn requests(watches: &mut Watches, number: u64) -> Vec<u64> {
    let mut reply = pb::PollReply::default();
    watches.take_news(session(number), Moment::default(), &mut reply);
    reply.forget.iter().map(|one| one.number).collect()
}

#[test]
fn a_change_waits_until_the_others_have_forgotten() {
    let mut watches = Watches::default();
    assert!(watches.watch(session(1), INODE) && watches.watch(session(2), INODE));
    watches.raise(session(1), INODE);
    assert_eq!(watches.recall(session(1), INODE), [session(2)]);
    assert!(!watches.is_clear(session(1), INODE));
    assert!(watches.is_watching(session(1), INODE), "the session that changes it knows of the change");
    let numbers = requests(&mut watches, 2);
    watches.on_forgotten(session(2), numbers[0] + 1);
    assert!(!watches.is_clear(session(1), INODE), "another number is about something else");
    watches.on_forgotten(session(2), numbers[0]);
    assert!(watches.is_clear(session(1), INODE));
    assert!(!watches.watch(session(2), INODE), "the change is still under way");
    watches.lower(session(1), INODE);
    assert!(watches.watch(session(2), INODE));
}

#[test]
fn a_freed_inode_has_no_watchers() {
    let mut watches = Watches::default();
    watches.watch(session(1), INODE);
    watches.watch(session(2), INODE);
    watches.raise(session(1), INODE);
    watches.recall(session(1), INODE);
    let numbers = requests(&mut watches, 2);
    watches.drop_inode(INODE);
    assert!(!watches.is_watching(session(1), INODE));
    assert!(!watches.is_clear(session(1), INODE), "a request to forget it is confirmed all the same");
    watches.on_forgotten(session(2), numbers[0]);
    watches.lower(session(1), INODE);
    assert!(watches.inodes.is_empty() && watches.sessions.values().all(|watcher| watcher.inodes.is_empty()));
}

#[test]
fn a_repeated_confirmation_does_not_end_a_later_watch() {
    let mut watches = Watches::default();
    watches.watch(session(2), INODE);
    watches.raise(session(1), INODE);
    watches.recall(session(1), INODE);
    let numbers = requests(&mut watches, 2);
    watches.on_forgotten(session(2), numbers[0]);
    watches.lower(session(1), INODE);
    assert!(watches.watch(session(2), INODE));
    watches.on_forgotten(session(2), numbers[0]);
    assert!(watches.is_watching(session(2), INODE));
}

#[test]
fn a_session_that_must_forget_starts_no_watch_before_it_has() {
    let mut watches = Watches::default();
    watches.watch(session(2), INODE);
    watches.raise(session(1), INODE);
    watches.recall(session(1), INODE);
    // The change is given up; the request to forget is still on its way.
    watches.lower(session(1), INODE);
    assert!(!watches.watch(session(2), INODE));
    watches.drop_session(session(2));
    assert!(watches.is_clear(session(1), INODE));
}

#[test]
fn an_unconfirmed_request_is_repeated() {
    let mut watches = Watches::default();
    watches.watch(session(2), INODE);
    watches.recall(session(1), INODE);
    let first = requests(&mut watches, 2);
    assert!(requests(&mut watches, 2).is_empty());
    let later = Moment::default().after(REPEAT_AFTER);
    assert_eq!(watches.next_repeat(session(2)), Some(later));
    let mut reply = pb::PollReply::default();
    assert!(watches.take_news(session(2), later, &mut reply));
    assert_eq!(reply.forget[0].number, first[0]);
}

fn requests_for_all(watches: &mut Watches, number: u64) -> Vec<u64> {
    let mut reply = pb::PollReply::default();
    watches.take_news(session(number), Moment::default(), &mut reply);
    reply.forget_all
}

#[test]
fn a_session_that_rests_forgets_everything_under_one_number() {
    let other = InodeId::new(8);
    let mut watches = Watches::default();
    watches.recall_all(session(2));
    assert!(requests_for_all(&mut watches, 2).is_empty(), "it watches nothing");
    watches.watch(session(2), INODE);
    watches.watch(session(2), other);
    watches.watch(session(1), other);
    watches.recall_all(session(2));
    let numbers = requests_for_all(&mut watches, 2);
    assert_eq!((numbers.len(), watches.is_watching(session(2), INODE)), (1, false));
    assert!(!watches.is_clear(session(1), INODE), "it has not confirmed");
    assert!(!watches.watch(session(2), INODE), "and starts no watch before");
    watches.on_forgotten(session(2), numbers[0]);
    assert!(watches.is_clear(session(1), INODE) && watches.is_watching(session(1), other));
    assert!(watches.watch(session(2), INODE));
    watches.on_forgotten(session(2), numbers[0]);
    assert!(watches.is_watching(session(2), INODE), "a repeated confirmation is not about a later watch");
}

#[derive(Clone, Debug)]
enum Act {
    Watch(u64),
    Rest(u64),
    Begin(u64),
    End(u64),
    Forget(u64),
    Gone(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let by = 1u64..4;
    let act = prop_oneof![
        by.clone().prop_map(Act::Watch),
        by.clone().prop_map(Act::Rest),
        by.clone().prop_map(Act::Begin),
        by.clone().prop_map(Act::End),
        by.clone().prop_map(Act::Forget),
        by.prop_map(Act::Gone),
    ];
    prop::collection::vec(act, 0..60)
}

proptest! {
    /// A change is carried out only when no other session watches its inode, and no state is left in the end.
    #[test]
    fn a_changed_name_is_kept_by_no_other_client(acts in acts()) {
        let mut watches = Watches::default();
        let mut changing: BTreeSet<u64> = BTreeSet::new();
        // The value that each session has cached.
        let mut believed: BTreeMap<u64, u64> = BTreeMap::new();
        let mut value = 0u64;
        for act in acts {
            match act {
                Act::Watch(by) => {
                    if watches.watch(session(by), INODE) {
                        believed.insert(by, value);
                    }
                }
                Act::Rest(by) => watches.recall_all(session(by)),
                Act::Begin(by) if !changing.contains(&by) => {
                    changing.insert(by);
                    watches.raise(session(by), INODE);
                    watches.recall(session(by), INODE);
                }
                Act::End(by) if changing.contains(&by) => {
                    if watches.is_clear(session(by), INODE) {
                        value += 1;
                        // The session that changes it knows the new value.
                        if let Some(own) = believed.get_mut(&by) { *own = value; }
                        changing.remove(&by);
                        watches.lower(session(by), INODE);
                    }
                }
                Act::Forget(by) => {
                    let mut reply = pb::PollReply::default();
                    watches.take_news(session(by), Moment::default().after(REPEAT_AFTER * 1000), &mut reply);
                    let all = reply.forget_all.into_iter();
                    for number in reply.forget.iter().map(|one| one.number).chain(all) {
                        believed.remove(&by);
                        watches.on_forgotten(session(by), number);
                    }
                }
                Act::Gone(by) => {
                    believed.remove(&by);
                    watches.drop_session(session(by));
                }
                Act::Begin(_) | Act::End(_) => {}
            }
            for (by, known) in &believed {
                prop_assert_eq!(*known, value, "s{} has an old value in its cache", by);
            }
        }
        for by in 1..4 {
            if changing.remove(&by) { watches.lower(session(by), INODE); }
            watches.drop_session(session(by));
        }
        prop_assert!(watches.inodes.is_empty() && watches.sessions.is_empty());
    }
}
