use proptest::prelude::*;

use super::*;

const INODE: InodeId = InodeId::new(7);

fn session(number: u64) -> SessionId {
    SessionId::new(number)
}

fn told(watches: &mut Watches, who: u64) -> Vec<u64> {
    let mut reply = pb::PollReply::default();
    watches.take_news(session(who), Moment::default(), &mut reply);
    reply.forget.iter().map(|one| one.number).collect()
}

#[test]
fn a_change_waits_until_the_others_have_forgotten() {
    let mut watches = Watches::default();
    assert!(watches.watch(session(1), INODE) && watches.watch(session(2), INODE));
    watches.raise(session(1), INODE);
    assert_eq!(watches.recall(session(1), INODE), [session(2)]);
    assert!(!watches.is_clear(session(1), INODE));
    assert!(watches.is_watching(session(1), INODE), "who changes it knows of the change");
    let numbers = told(&mut watches, 2);
    watches.on_forgotten(session(2), numbers[0] + 1);
    assert!(!watches.is_clear(session(1), INODE), "another number is about something else");
    watches.on_forgotten(session(2), numbers[0]);
    assert!(watches.is_clear(session(1), INODE));
    assert!(!watches.watch(session(2), INODE), "the change is still under way");
    watches.lower(session(1), INODE);
    assert!(watches.watch(session(2), INODE));
}

#[test]
fn of_an_inode_that_is_freed_nobody_keeps_anything() {
    let mut watches = Watches::default();
    watches.watch(session(1), INODE);
    watches.watch(session(2), INODE);
    watches.raise(session(1), INODE);
    watches.recall(session(1), INODE);
    let numbers = told(&mut watches, 2);
    watches.drop_inode(INODE);
    assert!(!watches.is_watching(session(1), INODE));
    assert!(!watches.is_clear(session(1), INODE), "who was told to forget it says so all the same");
    watches.on_forgotten(session(2), numbers[0]);
    watches.lower(session(1), INODE);
    assert!(watches.inodes.is_empty() && watches.sessions.values().all(|watcher| watcher.inodes.is_empty()));
}

#[test]
fn words_that_come_twice_do_not_end_a_later_watch() {
    let mut watches = Watches::default();
    watches.watch(session(2), INODE);
    watches.raise(session(1), INODE);
    watches.recall(session(1), INODE);
    let numbers = told(&mut watches, 2);
    watches.on_forgotten(session(2), numbers[0]);
    watches.lower(session(1), INODE);
    assert!(watches.watch(session(2), INODE));
    watches.on_forgotten(session(2), numbers[0]);
    assert!(watches.is_watching(session(2), INODE));
}

#[test]
fn who_is_told_to_forget_watches_nothing_anew_before_it_has() {
    let mut watches = Watches::default();
    watches.watch(session(2), INODE);
    watches.raise(session(1), INODE);
    watches.recall(session(1), INODE);
    // The change is given up, the word to forget is still on its way.
    watches.lower(session(1), INODE);
    assert!(!watches.watch(session(2), INODE));
    watches.drop_session(session(2));
    assert!(watches.is_clear(session(1), INODE));
}

#[test]
fn what_is_not_dealt_with_is_told_again() {
    let mut watches = Watches::default();
    watches.watch(session(2), INODE);
    watches.recall(session(1), INODE);
    let first = told(&mut watches, 2);
    assert!(told(&mut watches, 2).is_empty());
    let later = Moment::default().after(REPEAT_AFTER);
    assert_eq!(watches.next_repeat(session(2)), Some(later));
    let mut reply = pb::PollReply::default();
    assert!(watches.take_news(session(2), later, &mut reply));
    assert_eq!(reply.forget[0].number, first[0]);
}

fn told_all(watches: &mut Watches, who: u64) -> Vec<u64> {
    let mut reply = pb::PollReply::default();
    watches.take_news(session(who), Moment::default(), &mut reply);
    reply.forget_all
}

#[test]
fn who_rests_forgets_all_under_one_number() {
    let other = InodeId::new(8);
    let mut watches = Watches::default();
    watches.recall_all(session(2));
    assert!(told_all(&mut watches, 2).is_empty(), "it keeps nothing");
    watches.watch(session(2), INODE);
    watches.watch(session(2), other);
    watches.watch(session(1), other);
    watches.recall_all(session(2));
    let numbers = told_all(&mut watches, 2);
    assert_eq!((numbers.len(), watches.is_watching(session(2), INODE)), (1, false));
    assert!(!watches.is_clear(session(1), INODE), "it has not said that it forgot");
    assert!(!watches.watch(session(2), INODE), "and keeps nothing anew before");
    watches.on_forgotten(session(2), numbers[0]);
    assert!(watches.is_clear(session(1), INODE) && watches.is_watching(session(1), other));
    assert!(watches.watch(session(2), INODE));
    watches.on_forgotten(session(2), numbers[0]);
    assert!(watches.is_watching(session(2), INODE), "a word that comes twice is not about a later watch");
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
    let who = 1u64..4;
    let act = prop_oneof![
        who.clone().prop_map(Act::Watch),
        who.clone().prop_map(Act::Rest),
        who.clone().prop_map(Act::Begin),
        who.clone().prop_map(Act::End),
        who.clone().prop_map(Act::Forget),
        who.prop_map(Act::Gone),
    ];
    prop::collection::vec(act, 0..60)
}

proptest! {
    /// A change is carried out only when nobody else keeps what it changes; and nothing is left over in the end.
    #[test]
    fn nobody_keeps_what_another_has_changed(acts in acts()) {
        let mut watches = Watches::default();
        let mut changing: BTreeSet<u64> = BTreeSet::new();
        // What each session believes: the value when it was told.
        let mut believed: BTreeMap<u64, u64> = BTreeMap::new();
        let mut value = 0u64;
        for act in acts {
            match act {
                Act::Watch(who) => {
                    if watches.watch(session(who), INODE) {
                        believed.insert(who, value);
                    }
                }
                Act::Rest(who) => watches.recall_all(session(who)),
                Act::Begin(who) if !changing.contains(&who) => {
                    changing.insert(who);
                    watches.raise(session(who), INODE);
                    watches.recall(session(who), INODE);
                }
                Act::End(who) if changing.contains(&who) => {
                    if watches.is_clear(session(who), INODE) {
                        value += 1;
                        // Who changes it knows.
                        if let Some(own) = believed.get_mut(&who) { *own = value; }
                        changing.remove(&who);
                        watches.lower(session(who), INODE);
                    }
                }
                Act::Forget(who) => {
                    let mut reply = pb::PollReply::default();
                    watches.take_news(session(who), Moment::default().after(REPEAT_AFTER * 1000), &mut reply);
                    let all = reply.forget_all.into_iter();
                    for number in reply.forget.iter().map(|one| one.number).chain(all) {
                        believed.remove(&who);
                        watches.on_forgotten(session(who), number);
                    }
                }
                Act::Gone(who) => {
                    believed.remove(&who);
                    watches.drop_session(session(who));
                }
                Act::Begin(_) | Act::End(_) => {}
            }
            for (who, known) in &believed {
                prop_assert_eq!(*known, value, "s{} believes what is not so any more", who);
            }
        }
        for who in 1..4 {
            if changing.remove(&who) { watches.lower(session(who), INODE); }
            watches.drop_session(session(who));
        }
        prop_assert!(watches.inodes.is_empty() && watches.sessions.is_empty());
    }
}
