//! The cluster's version.

use ebb_types::ErrorKind;
use ebb_wire::pb;
use pb::command::Command as Change;

use crate::machine::Machine;
use crate::version::{NEWEST, OLDEST, check_known};

fn command(change: Change) -> pb::Command {
    pb::Command { now_ns: 1, command: Some(change), ..Default::default() }
}

fn init(version: u32) -> pb::Command {
    command(Change::InitCluster(pb::InitCluster { cluster: 7, default_replicas: 2, version, ..Default::default() }))
}

#[test]
fn what_an_older_release_does_not_know_waits_until_the_version_is_raised() {
    let mut machine = Machine::new();
    machine.apply(&init(0)).reply.unwrap();
    assert_eq!(machine.version(), OLDEST, "the log of an earlier release");
    let revoke = command(Change::Revoke(pb::Revocation { host: "h1".to_owned(), ..Default::default() }));
    assert_eq!(machine.apply(&revoke).reply.unwrap_err().kind(), ErrorKind::Unsupported);
    machine.apply(&command(Change::RaiseVersion(NEWEST))).reply.unwrap();
    machine.apply(&revoke).reply.unwrap();
    let back = machine.apply(&command(Change::RaiseVersion(OLDEST))).reply;
    assert_eq!(back.unwrap_err().kind(), ErrorKind::Invalid, "there is no way back");
    assert_eq!(machine.version(), NEWEST);
}

#[test]
fn a_new_cluster_has_the_newest_version() {
    let mut machine = Machine::new();
    machine.apply(&init(NEWEST)).reply.unwrap();
    assert_eq!(machine.version(), NEWEST);
}

#[test]
fn a_command_of_a_later_release_stops_a_master() {
    for unknown in [pb::Command::default(), command(Change::RaiseVersion(NEWEST + 1))] {
        assert_eq!(check_known(&unknown).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    check_known(&command(Change::RaiseVersion(NEWEST))).unwrap();
}
