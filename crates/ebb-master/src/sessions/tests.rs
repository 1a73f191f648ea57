use super::*;

const S1: SessionId = SessionId::new(1);
const S2: SessionId = SessionId::new(2);
const FILE: InodeId = InodeId::new(5);

fn at(millis: u64) -> Moment {
    Moment(Duration::from_millis(millis))
}

fn sessions() -> Sessions {
    let mut sessions = Sessions::new(Duration::from_secs(10));
    sessions.insert(S1, HostName::new("h1"), Reclaim::Done, at(0));
    sessions.insert(S2, HostName::new("h2"), Reclaim::Done, at(0));
    sessions
}

/// The answer of one poll that is answered at once.
fn poll(sessions: &mut Sessions, session: SessionId, now: Moment) -> (bool, pb::PollReply) {
    sessions.begin_poll(session, &[], now).unwrap();
    let mut reply = pb::PollReply::default();
    let news = sessions.take_news(session, now, &mut reply);
    sessions.finish_poll(session, now, &mut reply);
    (news, reply)
}

fn view(size: u64) -> HolderView {
    HolderView { size, mtime_ns: 9 }
}

#[test]
fn a_session_whose_host_sleeps_lives_on_if_this_process_has_heard_of_it() {
    let mut sessions = sessions();
    poll(&mut sessions, S1, at(4000));
    assert_eq!(sessions.expired(at(20_000), |_, _| false), [S2], "what it holds is not known");
    assert_eq!(sessions.expired(at(20_000), |_, silent| silent >= Duration::from_secs(16)), [S1, S2]);
}

#[test]
fn a_session_ends_when_it_has_not_polled_for_its_time() {
    let mut sessions = sessions();
    poll(&mut sessions, S1, at(4000));
    assert_eq!(sessions.expired(at(9999), |_, _| true), []);
    assert_eq!(sessions.expired(at(10_000), |_, _| true), [S2]);
    assert_eq!(sessions.expired(at(14_000), |_, _| true), [S1, S2]);
    sessions.remove(S2);
    assert!(sessions.begin_poll(S2, &[], at(10_001)).is_none());
}

#[test]
fn a_session_whose_end_has_begun_gets_no_word_that_it_lives() {
    let mut sessions = sessions();
    poll(&mut sessions, S1, at(2000));
    assert_eq!(sessions.expired(at(12_000), |_, _| true), [S1, S2]);
    let late = sessions.begin_poll(S2, &[], at(11_999)).expect("it lives until its end begins");
    sessions.begin_end(S1);
    assert!(sessions.begin_poll(S1, &[], at(12_001)).is_none(), "an answer would be believed for another time to live");
    assert!(sessions.contains(S1) && !sessions.goes_on(S1), "what it holds is nobody else's yet");
    sessions.begin_end(S2);
    assert!(!sessions.goes_on(S2), "a poll that waits hears it, too");
    assert_eq!(sessions.is_newest(S2, late.0), Some(true));
    assert_eq!(sessions.expired(at(22_000), |_, _| true), [S1, S2], "its end is tried until it is in the log");
}

#[test]
fn a_recall_is_repeated_until_it_is_dealt_with() {
    let mut sessions = sessions();
    sessions.recall(S1, FILE, Mode::Read);
    let (news, reply) = poll(&mut sessions, S1, at(100));
    assert!(news);
    assert_eq!(reply.recalls, [pb::Recall { inode: 5, keep: Mode::Read.raw(), ..Default::default() }]);
    assert!(!poll(&mut sessions, S1, at(500)).0, "it was told a moment ago");
    assert_eq!(sessions.next_repeat(S1), Some(at(1100)));
    assert!(poll(&mut sessions, S1, at(1100)).0);
    // A recall that leaves less goes out at once.
    sessions.recall(S1, FILE, Mode::None);
    assert_eq!(poll(&mut sessions, S1, at(1200)).1.recalls[0].keep, Mode::None.raw());
    sessions.recall(S1, FILE, Mode::Read);
    assert_eq!(sessions.recalled(S1, FILE), Some(Mode::None), "a milder recall does not take a stricter one back");
    sessions.on_held(S1, FILE, Mode::Read, view(0), 0);
    assert_eq!(sessions.recalled(S1, FILE), Some(Mode::None), "it keeps too much");
    sessions.on_held(S1, FILE, Mode::None, view(0), 0);
    assert_eq!(sessions.recalled(S1, FILE), None);
    assert!(!poll(&mut sessions, S1, at(9000)).0);
}

#[test]
fn an_older_poll_knows_that_it_is_not_the_newest() {
    let mut sessions = sessions();
    let (first, ..) = sessions.begin_poll(S1, &[], at(1)).unwrap();
    let (second, ..) = sessions.begin_poll(S1, &[], at(2)).unwrap();
    assert_eq!(sessions.is_newest(S1, first), Some(false));
    assert_eq!(sessions.is_newest(S1, second), Some(true));
}

/// A stat must see every write that returned before it: an answer to an earlier question is not enough.
#[test]
fn an_answer_counts_only_for_questions_sent_before_it() {
    let mut sessions = sessions();
    let first = sessions.ask(S1, FILE).unwrap();
    assert_eq!(sessions.ask(S1, FILE), Some(first), "not told yet: one question for both");
    assert_eq!(
        poll(&mut sessions, S1, at(10)).1.recalls,
        [pb::Recall { inode: 5, keep: Mode::Write.raw(), question: first, ..Default::default() }]
    );
    let second = sessions.ask(S1, FILE).unwrap();
    assert!(second > first);
    assert!(!poll(&mut sessions, S1, at(20)).0, "one at a time");
    sessions.on_held(S1, FILE, Mode::Write, view(7), 0);
    assert_eq!(sessions.answer(S1, FILE, first), None, "words about something else");
    sessions.on_held(S1, FILE, Mode::Write, view(100), first);
    assert_eq!(sessions.answer(S1, FILE, first), Some(Some(view(100))));
    assert_eq!(sessions.answer(S1, FILE, second), None);
    assert!(poll(&mut sessions, S1, at(30)).0);
    sessions.on_held(S1, FILE, Mode::Write, view(100), first);
    assert_eq!(sessions.answer(S1, FILE, second), None, "an answer that comes twice is about the first question");
    sessions.on_held(S1, FILE, Mode::Write, view(200), second);
    assert_eq!(sessions.answer(S1, FILE, second), Some(Some(view(200))));
    for _ in 0..3 {
        sessions.end_question(S1, FILE);
    }
    assert!(sessions.sessions[&S1].questions.is_empty());
    assert_eq!(sessions.answer(S2, FILE, 1), Some(None), "nobody was asked");
    // Numbers go on when a question is forgotten and asked anew.
    let third = sessions.ask(S1, FILE).unwrap();
    assert!(third > second);
    assert!(poll(&mut sessions, S1, at(40)).0);
    sessions.on_held(S1, FILE, Mode::Write, view(200), second);
    assert_eq!(sessions.answer(S1, FILE, third), None);
}

#[test]
fn a_lost_question_is_repeated_and_a_client_that_gave_the_file_up_says_so() {
    let mut sessions = sessions();
    let number = sessions.ask(S1, FILE).unwrap();
    assert!(poll(&mut sessions, S1, at(0)).0);
    assert!(poll(&mut sessions, S1, at(1000)).0);
    sessions.on_held(S1, FILE, Mode::Read, view(1), number);
    assert_eq!(sessions.answer(S1, FILE, number), Some(None));
}

#[test]
fn grants_and_changes_come_again_in_later_answers_but_are_news_once() {
    let mut sessions = sessions();
    let lock = pb::LockGranted { inode: 5, owner: 77, flock: false, deadlock: false };
    sessions.grant_lock(S1, lock);
    sessions.announce_change([S1, S2].into(), FILE, S2);
    let (news, reply) = poll(&mut sessions, S1, at(100));
    assert!(news);
    assert_eq!((reply.locks, reply.changed), (vec![lock], vec![5]));
    let (news, reply) = poll(&mut sessions, S1, at(2000));
    assert!(!news);
    assert_eq!((reply.locks.len(), reply.changed.len()), (1, 1), "the first answer may have been lost");
    let (_, reply) = poll(&mut sessions, S1, at(3200));
    assert!(reply.locks.is_empty() && reply.changed.is_empty());
    assert!(!poll(&mut sessions, S2, at(100)).0, "it made the change itself");
}

#[test]
fn a_grant_is_not_repeated_once_its_owner_went_on() {
    let mut sessions = sessions();
    assert!(sessions.note_request(S1, 4));
    assert!(!sessions.note_request(S1, 4), "a repetition");
    sessions.grant_lock(S1, pb::LockGranted { inode: 5, owner: 77, flock: true, deadlock: false });
    poll(&mut sessions, S1, at(0));
    sessions.forget_lock(S1, FILE, 77, false);
    assert_eq!(poll(&mut sessions, S1, at(10)).1.locks.len(), 1, "another kind of lock");
    sessions.forget_lock(S1, FILE, 77, true);
    assert_eq!(poll(&mut sessions, S1, at(20)).1.locks.len(), 0);
}

#[test]
fn the_time_for_reclaiming_ends_by_word_or_by_clock() {
    let mut sessions = Sessions::new(Duration::from_secs(10));
    sessions.insert(S1, HostName::new("h1"), Reclaim::Pending, at(0));
    assert!(!sessions.any_unclaimed(S1) && sessions.any_unclaimed(S2));
    sessions.insert(S2, HostName::new("h2"), Reclaim::Done, at(5));
    assert!(sessions.any_unclaimed(S2));
    sessions.set_reclaimed(S1);
    assert!(!sessions.any_unclaimed(S2));
    sessions.insert(SessionId::new(3), HostName::new("h2"), Reclaim::Pending, at(5));
    sessions.end_reclaim();
    assert!(!sessions.any_unclaimed(S2));
}

#[test]
fn a_session_is_asked_again_and_again_about_a_nameless_file_that_stays_open() {
    let mut sessions = sessions();
    let ask = |sessions: &mut Sessions, now: u64, stays: bool| {
        let mut reply = pb::PollReply::default();
        sessions.ask_nameless(S1, at(now), |_| stays, &mut reply);
        reply.nameless
    };
    for now in [1000, 3000, 5000] {
        // The reaper meets it with each of its rounds.
        sessions.on_nameless(S1, FILE, at(now));
        assert_eq!(ask(&mut sessions, now, true), [0; 0], "most are closed soon");
    }
    assert_eq!(ask(&mut sessions, 11_000, true), [5]);
    assert_eq!(ask(&mut sessions, 12_000, true), [0; 0]);
    assert_eq!(ask(&mut sessions, 21_000, true), [5], "the answer may have been lost");
    assert_eq!(ask(&mut sessions, 40_000, false), [0; 0], "it is closed, or has a name again");
    assert_eq!(ask(&mut sessions, 60_000, true), [0; 0]);
    let mut other = pb::PollReply::default();
    sessions.ask_nameless(S2, at(60_000), |_| true, &mut other);
    assert!(other.nameless.is_empty());
}

#[test]
fn a_client_with_very_many_nameless_files_is_asked_about_all_in_turn() {
    let mut sessions = sessions();
    let files = 3 * ASKED_MAX as u64;
    (1..=files).for_each(|file| sessions.on_nameless(S1, InodeId::new(file), at(0)));
    let mut asked = BTreeSet::new();
    for round in 0..3 {
        let mut reply = pb::PollReply::default();
        // Each round is so late that those of the round before are due again.
        sessions.ask_nameless(S1, at(10_000 * (round + 1)), |_| true, &mut reply);
        assert_eq!(reply.nameless.len(), ASKED_MAX);
        asked.extend(reply.nameless);
    }
    assert_eq!(asked.len() as u64, files);
}

#[test]
fn a_host_has_at_most_as_many_sessions_as_are_left_for_all_others() {
    let mut sessions = Sessions::new(Duration::from_secs(10));
    let mut next = 0;
    let mut opened = |sessions: &mut Sessions, host: &str| {
        let (host, before) = (HostName::new(host), next);
        while sessions.check_room(&host, 100).is_ok() {
            next += 1;
            sessions.insert(SessionId::new(next), host.clone(), Reclaim::Done, at(0));
        }
        next - before
    };
    let counts = ["h1", "h2", "h3", "h4", "h5"].map(|host| opened(&mut sessions, host));
    assert_eq!(counts, [50, 25, 16, 9, 0], "what is guaranteed to each is there as long as anything is");
    let refusal = sessions.check_room(&HostName::new("h1"), 100).unwrap_err();
    assert!(refusal.detail().contains("host h1 has 50 of 100 open sessions"), "{refusal}");
    for session in 1..=40 {
        sessions.remove(SessionId::new(session));
        sessions.remove(SessionId::new(session));
    }
    assert_eq!((opened(&mut sessions, "h1"), opened(&mut sessions, "h6")), (15, 16));
}

#[test]
fn a_client_that_polls_and_returns_nothing_is_overdue_and_one_that_sleeps_or_works_is_not() {
    let mut sessions = Sessions::new(Duration::from_secs(10));
    for session in [S1, S2] {
        sessions.insert(session, HostName::new("h"), Reclaim::Done, at(0));
        sessions.recall(session, InodeId::new(7), Mode::None);
        sessions.take_news(session, at(1), &mut pb::PollReply::default());
    }
    for second in 1..60 {
        sessions.begin_poll(S1, &[], at(second * 1000)).unwrap();
        sessions.begin_poll(S2, &[7], at(second * 1000)).unwrap();
        assert_eq!(sessions.overdue().count(), 0, "{second} s");
    }
    sessions.begin_poll(S1, &[], at(60_000)).unwrap();
    sessions.begin_poll(S2, &[7], at(60_000)).unwrap();
    assert_eq!(sessions.overdue().collect::<Vec<_>>(), [(S1, InodeId::new(7))]);
    // A day without a poll is no day of owing.
    sessions.begin_poll(S2, &[], at(86_400_000)).unwrap();
    assert_eq!(sessions.overdue().count(), 1);
    sessions.on_held(S1, InodeId::new(7), Mode::None, HolderView { size: 0, mtime_ns: 0 }, 0);
    assert_eq!(sessions.overdue().count(), 0);
}

#[test]
fn a_pause_of_the_master_is_nobodys_silence() {
    let mut sessions = Sessions::new(Duration::from_secs(10));
    sessions.insert(S1, HostName::new("h"), Reclaim::Done, at(0));
    sessions.begin_poll(S1, &[], at(1000)).unwrap();
    sessions.on_pause(Duration::from_secs(12), at(14_000));
    assert_eq!(sessions.expired(at(22_999), |_, _| true), []);
    assert_eq!(sessions.expired(at(23_000), |_, _| true), [S1]);
    sessions.begin_poll(S1, &[], at(22_000)).unwrap();
    sessions.on_pause(Duration::from_secs(12), at(22_000));
    assert_eq!(sessions.expired(at(32_000), |_, _| true), [S1], "never later than if it were heard now");
}
