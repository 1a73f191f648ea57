use super::*;

const ON: Prospect = Prospect { is_off: false, goes_off: false, awake: Awake::Always };
const OFF: Prospect = Prospect { is_off: true, goes_off: false, awake: Awake::Asleep };
const LEAVES: Prospect = Prospect { is_off: false, goes_off: true, awake: Awake::ForMs(5_000) };
const BLINKS: Prospect = Prospect { is_off: false, goes_off: false, awake: Awake::ForMs(5_000) };
const ASLEEP: Prospect = Prospect { is_off: false, goes_off: false, awake: Awake::Asleep };

fn chosen(host: Prospect, home: Prospect) -> Option<Move> {
    choose_move(&GuestView { host, home: Some(home), need_ms: 1_000 })
}

#[test]
fn a_guest_goes_home_when_its_home_serves_for_long_enough() {
    assert_eq!(chosen(ON, ON), Some(Move::Home));
    assert_eq!(chosen(ON, BLINKS), Some(Move::Home));
    assert_eq!(chosen(OFF, ON), Some(Move::Home), "from another member");
    for home in [OFF, ASLEEP, Prospect { awake: Awake::ForMs(900), ..BLINKS }] {
        assert_eq!(chosen(ON, home), None, "{home:?}");
        assert_eq!(chosen(LEAVES, home), None, "{home:?}");
    }
}

#[test]
fn before_its_host_is_switched_off_it_goes_at_once_and_never_for_a_home_that_leaves_alone() {
    assert_eq!(chosen(LEAVES, ON), Some(Move::HomeNow));
    assert_eq!(chosen(LEAVES, LEAVES), None, "the plan was made for where it is");
    assert_eq!(chosen(ON, LEAVES), None);
    assert_eq!(chosen(BLINKS, LEAVES), None);
}

#[test]
fn a_guest_without_its_home_stays_for_good() {
    for host in [ON, OFF, LEAVES] {
        assert_eq!(choose_move(&GuestView { host, home: None, need_ms: 1 }), Some(Move::Adopt));
    }
}
