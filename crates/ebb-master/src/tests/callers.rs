//! What a call says of its caller is compared with the caller's certificate.

use std::time::Duration;

use ebb_types::{ErrorKind, Role};
use ebb_wire::{Call, pb};

use super::harness::{Cluster, with_cluster};

const WAIT: Duration = Duration::from_secs(5);

/// Processes of every role on another host than the cluster's clients and nodes.
struct Elsewhere(ebb_rpc::testing::EveryChannel);

impl Elsewhere {
    fn new(cluster: &Cluster) -> Self {
        Self(cluster.channel_from("elsewhere").0)
    }

    async fn is_refused<C: Call>(&self, call: &C) {
        let error = self.0.call(call, WAIT).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{:?}: {error}", C::METHOD);
    }
}

#[test]
fn a_session_is_used_and_ended_by_its_own_host_alone() {
    with_cluster(1, 1, |cluster| async move {
        let client = cluster.client().await;
        let elsewhere = Elsewhere::new(&cluster);
        let session = client.session;
        elsewhere.is_refused(&pb::Poll { session, ..Default::default() }).await;
        elsewhere.is_refused(&pb::MetaRequest { session, ..Default::default() }).await;
        elsewhere.is_refused(&pb::Acquire { session, ..Default::default() }).await;
        elsewhere.is_refused(&pb::Reclaim { session, ..Default::default() }).await;
        elsewhere.is_refused(&pb::Release { session, ..Default::default() }).await;
        elsewhere.is_refused(&pb::Forget { session, ..Default::default() }).await;
        elsewhere.is_refused(&pb::ChooseReplacement { session, ..Default::default() }).await;
        elsewhere.is_refused(&pb::VouchSessions { proxy: session, ..Default::default() }).await;
        elsewhere.is_refused(&pb::RegisterProxy { session, ..Default::default() }).await;
        elsewhere.is_refused(&pb::CloseSession { session }).await;
        assert!(client.lookup("nothing").await.is_err_and(|error| error.kind() == ErrorKind::NotFound), "it lives on");
    });
}

#[test]
fn a_session_is_opened_for_the_own_host_and_the_own_role() {
    with_cluster(2, 1, |cluster| async move {
        let elsewhere = Elsewhere::new(&cluster);
        let open =
            |host: &str, role: &str| pb::OpenSession { host: host.into(), role: role.into(), ..Default::default() };
        elsewhere.is_refused(&open("client", "cli")).await;
        // The caller is an operator: what mounts and proxies are spared from is not had by their names.
        for role in [Role::Mount, Role::Proxy] {
            elsewhere.is_refused(&open("elsewhere", role.name())).await;
        }
        elsewhere.0.call(&open("elsewhere", "hadoop"), WAIT).await.unwrap();
    });
}

#[test]
fn a_node_speaks_for_itself_alone() {
    with_cluster(3, 1, |cluster| async move {
        let elsewhere = Elsewhere::new(&cluster);
        elsewhere.is_refused(&pb::Heartbeat { node: 1, ..Default::default() }).await;
        elsewhere.is_refused(&pb::ReplicaReport { node: 1, ..Default::default() }).await;
        let register =
            pb::RegisterNode { host: "h1".into(), rack: "r1".into(), address: "a:1".into(), ..Default::default() };
        elsewhere.is_refused(&register).await;
    });
}
