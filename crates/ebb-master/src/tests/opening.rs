//! Sessions that a greedy host opens.

use ebb_types::ErrorKind;
use ebb_wire::pb;

use super::harness::{DEADLINE, options, with_cluster};
use crate::Master;

/// Goal: a host that opens sessions without end keeps no other host from opening one, and has only its share in the
/// log.
#[test]
fn a_host_that_opens_sessions_without_end_leaves_some_for_others() {
    with_cluster(1, 1, async |mut cluster| {
        let runtime = cluster.process.restart();
        let mut options = options();
        (options.listen, options.sessions_max) = (cluster.address(), 64);
        cluster.master = Some(Master::start(runtime, options).await.unwrap());
        let (greedy, modest) = (cluster.channel_from("greedy").0, cluster.channel_from("modest").0);
        let open = async |host: &str| {
            let call = pb::OpenSession { host: host.into(), role: "cli".into(), pid: 1, ..Default::default() };
            let channel = if host == "greedy" { &greedy } else { &modest };
            channel.call(&call, DEADLINE).await
        };
        let mut opened = 0;
        let refused = loop {
            match open("greedy").await {
                Ok(_) => opened += 1,
                Err(error) => break error,
            }
            assert!(opened < 64, "all are gone");
        };
        assert_eq!((refused.kind(), opened <= 32), (ErrorKind::Overloaded, true), "{opened}: {refused}");
        open("modest").await.unwrap();
    });
}
