//! What a call says of its caller, against what the caller's certificate says.
//!
//! A session belongs to the host that opened it, a node to the host where it registered last. So a process of another host can
//! neither use, poll nor end a session, even if it learns the session's id, nor speak for another host's node.

use ebb_rpc::{PeerInfo, Request};
use ebb_types::{NodeId, Result, Role, SessionId, bail};
use ebb_wire::{Call, pb};

use crate::shared::Shared;

/// All that a call says of its caller.
#[derive(Default)]
pub(crate) struct Claim<'a> {
    /// A session of the caller.
    session: Option<u64>,
    /// The host that it runs on.
    host: Option<&'a str>,
    /// The node that it is. One that there is not yet has no host.
    node: Option<u64>,
    /// The kind of its session.
    kind: Option<&'a str>,
    /// The user for whom it acts.
    user: Option<&'a mut Option<pb::Credentials>>,
}

/// A call that says who makes it.
pub(crate) trait Claims: Call {
    /// What it says.
    fn claim(&mut self) -> Claim<'_>;
}

macro_rules! claims {
    ($($call:ident($own:ident) $claim:tt)*) => {
        $(impl Claims for pb::$call {
            fn claim(&mut self) -> Claim<'_> {
                let $own = self;
                claims!(@ $claim)
            }
        })*
    };
    (@ { $($field:ident: $value:expr),* }) => {
        Claim { $($field: Some($value),)* ..Claim::default() }
    };
}

claims! {
    OpenSession(call) { host: &call.host, kind: &call.role }
    MetaRequest(call) { session: call.session, user: &mut call.credentials }
    Acquire(call) { session: call.session, user: &mut call.credentials }
    CloseSession(call) { session: call.session }
    Poll(call) { session: call.session }
    Reclaim(call) { session: call.session }
    Forget(call) { session: call.session }
    Release(call) { session: call.session }
    ChooseReplacement(call) { session: call.session }
    RegisterProxy(call) { session: call.session }
    VouchSessions(call) { session: call.proxy }
    // A node may have moved to another host with its disks.
    RegisterNode(call) { host: &call.host }
    Heartbeat(call) { node: call.node }
    ReplicaReport(call) { node: call.node }
}

/// Decodes a call, and refuses it with `Unauthorized` if its caller is another one than it says. A program's user has the
/// groups of its certificate.
pub(crate) fn decode<C: Claims>(shared: &Shared, request: &Request) -> Result<C> {
    let mut call: C = request.decode()?;
    let refusal = check(shared, &request.peer, call.claim());
    refusal.map_err(|error| error.context(format_args!("{:?} from {}", C::METHOD, request.peer.address)))?;
    Ok(call)
}

fn check(shared: &Shared, peer: &PeerInfo, claim: Claim<'_>) -> Result<()> {
    let own = &peer.host;
    let Claim { session, host, node, kind, user } = claim;
    // The handlers refuse what is missing, and sessions and nodes that there are not.
    if let Some(host) = host.filter(|host| !host.is_empty() && *host != own.as_str()) {
        bail!(Unauthorized, "the caller on {own} says that it is on {host:?}");
    }
    if let Some(session) = session.map(SessionId::new)
        && let Some(host) = shared.soft().sessions.host(session).filter(|host| host != own)
    {
        bail!(Unauthorized, "session {session} is of host {host}, the caller is on {own}");
    }
    if let Some(node) = node.map(NodeId::new)
        && let Some(record) = shared.group.machine().node(node).and_then(|record| record.node.as_ref())
        && record.host != own.as_str()
    {
        bail!(Unauthorized, "{node} is on {}, the caller on {own}", record.host);
    }
    // What only mounts and proxies are granted must not be had by a name.
    if let Some(role) = kind.and_then(|kind| kind.parse::<Role>().ok())
        && matches!(role, Role::Mount | Role::Proxy)
        && role != peer.role
    {
        bail!(Unauthorized, "a {} opens a session of a {role}", peer.role);
    }
    if let (Some(claimed), Some(certified)) = (user, peer.user()) {
        if let Some(other) = claimed.as_ref().filter(|claimed| claimed.uid != certified.uid) {
            bail!(Unauthorized, "a program of user {} acts for user {}", certified.uid, other.uid);
        }
        *claimed = Some(certified.into());
    }
    Ok(())
}
