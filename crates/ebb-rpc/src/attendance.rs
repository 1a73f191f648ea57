//! What a running process does to stay a trusted part of its cluster: it tells a master where it serves, learns what was
//! revoked, and has its certificate renewed.

use std::time::Duration;

use ebb_identity::{Holder, KeyRequest, Revocation, Revocations};
use ebb_runtime::{Moment, Runtime};
use ebb_types::{Error, ErrorKind, HostName, Result, Role, WallTime, bail, err};
use ebb_wire::pb;

use crate::{Connector, Proof};

/// Pause between two announcements: a revoked peer is believed for so long, and the answer of a master.
pub const ANNOUNCE_EVERY: Duration = Duration::from_secs(10);
/// Time for the answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Pause after a renewal that failed.
const RENEW_AGAIN: Duration = Duration::from_secs(600);
/// Part of a certificate's time, in percent, after which it is made anew.
pub const SPENT: u8 = 67;

/// Announces once that this process serves at `address`, so that whoever learns of it can ask a master for it. A master that
/// does not answer hears of it later, by [`attend`].
pub async fn announce(connector: &Connector, masters: &[String], address: &str) {
    if let Some(mut attendance) = Attendance::new(connector, masters, address) {
        attendance.announce().await;
    }
}

/// Announces this process at one of the masters, over and over, until `is_over`. `address`: where it serves, for those that ask
/// the master for it; empty if nobody does. In a virtual world nothing is certified, and nothing is announced.
pub async fn attend(connector: Connector, masters: Vec<String>, address: String, is_over: impl Fn() -> bool + Send) {
    let Some(mut attendance) = Attendance::new(&connector, &masters, &address) else { return };
    let runtime = connector.runtime();
    // Most commands and many programs have ended before they would use what they learn.
    let is_short = matches!(connector.identity().role, Role::Operator | Role::Program);
    if !is_short {
        attendance.announce().await;
    }
    let mut renewed_at: Option<Moment> = None;
    loop {
        runtime.sleep(ANNOUNCE_EVERY).await;
        if is_over() {
            return;
        }
        attendance.announce().await;
        let rests = renewed_at.is_some_and(|at| runtime.now().since(at) < RENEW_AGAIN);
        if attendance.needs_renewal(runtime) && !rests {
            renewed_at = Some(runtime.now());
            attendance.renew().await;
        }
    }
}

struct Attendance {
    connector: Connector,
    holder: Holder,
    masters: Vec<String>,
    address: String,
}

impl Attendance {
    fn new(connector: &Connector, masters: &[String], address: &str) -> Option<Self> {
        let Proof::Certificate(holder) = connector.identity().proof.clone() else { return None };
        let (connector, masters) = (connector.clone(), masters.to_vec());
        Some(Self { connector, holder, masters, address: address.to_owned() })
    }

    async fn announce(&mut self) {
        let call = pb::Announce { address: self.address.clone(), trust: self.holder.revocations().version };
        match self.ask(&call).await {
            Ok(reply) if reply.trust == call.trust => {}
            Ok(reply) => match revocations(reply.trust, &reply.revocations) {
                Ok(list) => self.holder.learn(list),
                // Not followed in part: the rest would be believed.
                Err(error) => tracing::error!(%error, "the list of revocations cannot be followed"),
            },
            Err(error) if error.kind() == ErrorKind::Unauthorized => {
                tracing::error!(%error, subject = %self.holder.subject(), "the master does not believe this process");
            }
            Err(error) => tracing::debug!(%error, "no master has heard of this process"),
        }
    }

    fn needs_renewal(&self, runtime: &Runtime) -> bool {
        self.holder.can_keep() && self.holder.key().validity().is_spent(runtime.wall(), SPENT)
    }

    async fn renew(&mut self) {
        let renewed = async {
            let request = KeyRequest::new()?;
            let reply = self.ask(&pb::RenewIdentity { request: request.to_der()? }).await?;
            self.holder.replace(request.complete(&reply.certificate)?)
        };
        match renewed.await {
            Ok(()) => tracing::info!(subject = %self.holder.subject(), "the certificate was renewed"),
            Err(error) => {
                let until = self.holder.key().validity().until.0 / 1_000_000_000;
                tracing::warn!(%error, until, "the certificate is not renewed; it ends at this second");
            }
        }
    }

    /// Asks the masters in turn, beginning with the one that answered last.
    async fn ask<C: ebb_wire::Call>(&mut self, call: &C) -> Result<C::Reply> {
        let mut last: Option<Error> = None;
        for _ in 0..self.masters.len() {
            match self.connector.channel(&self.masters[0]).call(call, ANSWER).await {
                Ok(reply) => return Ok(reply),
                Err(error) => last = Some(error),
            }
            self.masters.rotate_left(1);
        }
        Err(last.unwrap_or_else(|| err!(Unreachable, "no master is known")))
    }
}

/// The list as a master sends it.
///
/// # Errors
/// `Invalid` for one that this release cannot follow.
pub fn revocations(version: u64, list: &[pb::Revocation]) -> Result<Revocations> {
    Ok(Revocations { version, list: list.iter().map(revocation).collect::<Result<_>>()? })
}

/// One revocation, as a master sends it.
///
/// # Errors
/// `Invalid` for one that this release cannot follow.
pub fn revocation(message: &pb::Revocation) -> Result<Revocation> {
    let pb::Revocation { role, host, uid, serial, made_ns } = message;
    let named = |text: &String| (!text.is_empty()).then(|| text.clone());
    let role = named(role).map(|role| role.parse::<Role>()).transpose();
    let revocation = Revocation {
        role: role.map_err(|error| err!(Invalid, "{error}"))?,
        host: named(host).map(HostName::new),
        uid: *uid,
        serial: (!serial.is_empty()).then(|| serial.clone()),
        before: WallTime(*made_ns),
    };
    if (Revocation { before: WallTime(0), ..revocation.clone() }) == Revocation::default() {
        bail!(Invalid, "a revocation of everything");
    }
    Ok(revocation)
}
