//! Hosts that join, certificates that are renewed or withdrawn, and addresses that are tried from here.

use std::time::Duration;

use ebb_identity::{Authority, CLOCK_TOLERANCE, Subject};
use ebb_rpc::{Connector, Counters, LIFETIME, PeerInfo, Proof, revocation, revocations};
use ebb_types::{HostName, Result, Role, Roles, WallTime, bail, err};
use ebb_wire::{Message, pb};
use pb::command::Command as Op;
use sha2::{Digest, Sha256};

use crate::shared::Shared;
use crate::view::nodes;

/// Longest time for which a token holds.
const TOKEN_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time for a caller's address to answer. A connection that is refused is known at once; one that a firewall drops is not.
const CALL_BACK: Duration = Duration::from_secs(5);
/// How exactly a certificate says when it was issued.
const ISSUE_UNIT: Duration = Duration::from_secs(1);

/// Roles that a host can be invited for. A master joins its group in another way, and a program is no host's.
const INVITED: Roles = Roles::of(&[
    Role::Block,
    Role::Proxy,
    Role::PowerManager,
    Role::PowerClient,
    Role::Worker,
    Role::Mount,
    Role::Operator,
]);

fn authority(shared: &Shared) -> Result<&Authority> {
    shared.options.authority.as_deref().ok_or_else(|| {
        err!(
            Unsupported,
            "the cluster's authority is not in the master's directory: use `ebb identity issue` where it is"
        )
    })
}

/// Answers `InviteHost`.
///
/// # Errors
/// `Invalid` for roles that no host joins with; those of the log.
pub(crate) async fn invite(shared: &Shared, call: pb::InviteHost) -> Result<pb::InviteHostReply> {
    let authority = authority(shared)?;
    let roles = call.roles.iter().map(|name| name.parse::<Role>().map_err(|error| err!(Invalid, "{error}")));
    let roles = roles.collect::<Result<Vec<Role>>>()?;
    if let Some(role) = roles.iter().find(|role| !INVITED.has(**role)) {
        bail!(Invalid, "no host joins as {role}: the roles are {INVITED}");
    }
    let lifetime = Duration::from_secs(call.lifetime_s.into());
    if roles.is_empty() || lifetime.is_zero() || lifetime > TOKEN_MAX {
        let days = TOKEN_MAX.as_secs() / 86_400;
        bail!(Invalid, "a token has at least one role, and holds for at most {days} days");
    }
    let host = (!call.host.is_empty()).then(|| HostName::new(call.host.clone()));
    let subject = Subject { cluster: authority.cluster(), role: Role::Joiner, host, user: None };
    let key = authority.issue(&subject, shared.runtime.wall(), lifetime)?;
    let until_ns = key.validity().until.0;
    let invitation = pb::Invitation {
        serial: key.serial().to_vec(),
        roles: call.roles,
        host: call.host,
        until_ns,
        used_for: Vec::new(),
    };
    // Ordering: a token that is out is known to every later master.
    shared.group.propose(Op::Invite(invitation)).await?;
    Ok(pb::InviteHostReply { certified_key: key.to_pem().to_owned(), until_ns })
}

/// Refuses a host whose clock is wrong. Its certificates would seem to be too new or too old to others.
fn check_clock(own: WallTime, of_host: WallTime) -> Result<()> {
    let apart = Duration::from_nanos(own.0.abs_diff(of_host.0));
    if of_host.0 == 0 || apart <= CLOCK_TOLERANCE {
        return Ok(());
    }
    let side = if of_host.0 > own.0 { "ahead of" } else { "behind" };
    let minutes = (apart.as_secs() + 30) / 60;
    bail!(
        Invalid,
        "this host's clock is {} h {} min {side} the master's: set the one that is wrong, and join again",
        minutes / 60,
        minutes % 60
    )
}

/// Answers `JoinCluster`.
///
/// # Errors
/// `Invalid` if the host's clock is wrong; `Unauthorized` if the token is used up, or for another host; `Exists` if another host has the name.
pub(crate) async fn join(shared: &Shared, mut call: pb::JoinCluster, peer: &PeerInfo) -> Result<pb::JoinClusterReply> {
    let authority = authority(shared)?;
    let Some(serial) = peer.serial() else { bail!(Unauthorized, "a host joins with a token") };
    check_clock(shared.runtime.wall(), WallTime(std::mem::take(&mut call.now_ns)))?;
    let subjects = subjects(shared, &call, serial)?;
    let admit = pb::AdmitHost {
        serial: serial.to_vec(),
        host: call.host.clone(),
        request: Sha256::digest(call.encode_to_vec()).to_vec(),
    };
    // Ordering: the token is used up before there is anything that it was used for.
    shared.group.propose(Op::AdmitHost(admit)).await?;
    let now = shared.runtime.wall();
    let certify =
        |(request, subject): (&pb::KeyRequest, Subject)| authority.certify(&request.request, &subject, now, LIFETIME);
    let certificates = call.requests.iter().zip(subjects).map(certify).collect::<Result<_>>()?;
    tracing::info!(host = call.host, address = peer.address, "a host has joined");
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Ok(pb::JoinClusterReply {
        certificates,
        session_ttl_ms: ms(shared.options.session_ttl),
        dead_after_ms: ms(shared.options.dead_time),
        replicas: shared.options.default_replicas,
    })
}

/// Whom the requests ask to be.
fn subjects(shared: &Shared, call: &pb::JoinCluster, serial: &[u8]) -> Result<Vec<Subject>> {
    let machine = shared.group.machine();
    let unknown = || err!(Unauthorized, "the token has expired, or was withdrawn: make one with `ebb node token`");
    let invitation = machine.invitation(serial).ok_or_else(unknown)?;
    if call.requests.is_empty() || call.requests.len() > Role::ALL.len() {
        bail!(Invalid, "a host asks for one certificate for each of its roles");
    }
    // A name that the operator did not write into the token is taken by no second host.
    let is_new = invitation.host.is_empty();
    if is_new && let Some(node) = nodes(&machine).find(|node| node.host == call.host) {
        bail!(
            Exists,
            "host {} is in the cluster (node n{}): choose another name, or make a token for it with --host {}",
            call.host,
            node.id,
            call.host
        );
    }
    let cluster = shared.options.identity.cluster;
    let subject = |request: &pb::KeyRequest| {
        if !invitation.roles.contains(&request.role) {
            bail!(Unauthorized, "the token is for {}, not for {}", invitation.roles.join(", "), request.role);
        }
        let role: Role = request.role.parse().map_err(|error| err!(Invalid, "{error}"))?;
        let host = (role != Role::Operator).then(|| HostName::new(call.host.clone()));
        let subject = Subject { cluster, role, host, user: None };
        subject.check().map(|()| subject)
    };
    call.requests.iter().map(subject).collect()
}

/// Answers `RenewIdentity`. A program's certificate is that of a user, lent for a time: it is not renewed by its holder.
///
/// # Errors
/// `NotPermitted` for a program.
pub(crate) fn renew(shared: &Shared, call: &pb::RenewIdentity, peer: &PeerInfo) -> Result<pb::RenewIdentityReply> {
    let authority = authority(shared)?;
    let Some(subject) = peer.subject() else { bail!(Unauthorized, "there is no certificate to renew") };
    if subject.role == Role::Program {
        bail!(NotPermitted, "the certificate of a program is not renewed: its user gets another one");
    }
    let certificate = authority.certify(&call.request, subject, shared.runtime.wall(), LIFETIME)?;
    tracing::info!(%subject, address = peer.address, "a certificate was renewed");
    Ok(pb::RenewIdentityReply { certificate })
}

/// Answers `RevokeIdentities`. The master believes what it revoked no more when this returns, others within the interval
/// in which they ask.
///
/// # Errors
/// `Invalid` if it names nothing, or nothing that there can be.
pub(crate) async fn revoke(shared: &Shared, call: pb::RevokeIdentities) -> Result<()> {
    let withdrawn = call.revocation.unwrap_or_default();
    if withdrawn == pb::Revocation::default() {
        bail!(Invalid, "all certificates would be withdrawn: name a role, a host, a user or one certificate");
    }
    revocation(&withdrawn)?;
    shared.group.propose(Op::Revoke(withdrawn)).await?;
    learn(shared);
    // A certificate names the second of its issue. What is issued after the answer is not of a second that was withdrawn.
    shared.runtime.sleep(ISSUE_UNIT).await;
    Ok(())
}

/// Has this process follow the list in its log.
pub(crate) fn learn(shared: &Shared) {
    let Proof::Certificate(holder) = &shared.options.identity.proof else { return };
    let machine = shared.group.machine();
    let (version, list) = machine.revocations();
    match revocations(version, list) {
        Ok(list) => holder.learn(list),
        Err(error) => tracing::error!(%error, "the list of revocations cannot be followed"),
    }
}

/// Answers `DescribeTrust`.
pub(crate) fn describe(shared: &Shared) -> pb::DescribeTrustReply {
    let machine = shared.group.machine();
    let (_, revocations) = machine.revocations();
    pb::DescribeTrustReply { revocations: revocations.to_vec(), invitations: machine.invitations().cloned().collect() }
}

/// Answers `Announce`.
pub(crate) fn announce(shared: &Shared, call: pb::Announce, peer: &PeerInfo) -> pb::AnnounceReply {
    if !call.address.is_empty() {
        let now = shared.runtime.now();
        shared.soft().attendance.on_announced(now, peer.role, &peer.host, call.address);
    }
    let machine = shared.group.machine();
    let (trust, list) = machine.revocations();
    let revocations = if trust == call.trust { Vec::new() } else { list.to_vec() };
    pb::AnnounceReply { trust, revocations }
}

/// Answers `CallBack`: connects to the address that the caller tells others.
///
/// # Errors
/// `Unreachable` if it cannot be reached from here, or another process answers.
pub(crate) async fn call_back(shared: &Shared, call: pb::CallBack, peer: &PeerInfo) -> Result<()> {
    if call.address.is_empty() {
        bail!(Invalid, "a caller that is called back says where");
    }
    // A connection of its own: one that stands from before proves nothing about the address now.
    let connector = Connector::new(shared.runtime.clone(), shared.options.identity.clone(), Counters::default());
    let channel = connector.channel(&call.address);
    let met = shared.runtime.timeout(CALL_BACK, "calling back", channel.meet()).await;
    let met = met.map_err(|error| err!(Unreachable, "{}: {}", call.address, error.detail()))?;
    if (met.role, &met.host) != (peer.role, &peer.host) {
        let (role, host, address) = (peer.role, &peer.host, &call.address);
        bail!(Unreachable, "at {address} the {} of host {} answers, not the {role} of {host}", met.role, met.host);
    }
    Ok(())
}
