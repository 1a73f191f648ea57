//! For tests of services: identities, and callers of every role.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use ebb_identity::tls::Wire;
use ebb_identity::{Authority, Subject};
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, Credentials, HostName, Result, Role};
use ebb_wire::Call;

use crate::{Channel, Connector, Counters, Identity, Response};

/// The cluster of these identities.
pub const CLUSTER: ClusterId = ClusterId::new(7);

/// The authority of their cluster, made by this test program.
///
/// # Panics
/// If the system has no random bytes.
pub fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| Authority::create(CLUSTER, Runtime::real().wall()).expect("random bytes"))
}

/// A process with a certificate. It is checked by the real clock, in virtual worlds, too.
///
/// # Panics
/// If the host cannot be certified.
#[must_use]
pub fn certified(host: &str, role: Role) -> Identity {
    let user = (role == Role::Program).then(Credentials::root);
    let subject = Subject { user, ..Subject::process(CLUSTER, role, HostName::new(host)) };
    Identity::issued(authority(), &Runtime::real(), &subject, Wire::Encrypted).expect("a plain host")
}

/// A process with a certificate on Linux, and without one in a virtual world.
#[must_use]
pub fn identity(runtime: &Runtime, host: &str, role: Role) -> Identity {
    if runtime.is_virtual() { Identity::by_word(CLUSTER, host, role) } else { certified(host, role) }
}

/// Processes of every role on one host.
#[derive(Clone, Debug)]
pub struct Everyone(BTreeMap<Role, Connector>);

impl Everyone {
    /// Their identities are made by `identity`.
    pub fn new(runtime: &Runtime, identity: impl Fn(Role) -> Identity) -> Self {
        let connector = |role| Connector::new(runtime.clone(), identity(role), Counters::default());
        Self(Role::ALL.into_iter().map(|role| (role, connector(role))).collect())
    }

    /// Calls to a server, each by a process that may make it.
    #[must_use]
    pub fn channel(&self, address: &str) -> EveryChannel {
        EveryChannel(self.0.iter().map(|(role, connector)| (*role, connector.channel(address))).collect())
    }
}

/// See [`Everyone::channel`].
#[derive(Clone, Debug)]
pub struct EveryChannel(BTreeMap<Role, Channel>);

impl EveryChannel {
    fn channel<C: Call>(&self) -> &Channel {
        // Of those that may, the operator goes first: most tests are one, and then each has one connection.
        let mut callers = C::METHOD.callers().iter().collect::<Vec<_>>();
        callers.reverse();
        &self.0[callers.first().expect("every call is made by some role")]
    }

    /// See [`Channel::call`].
    ///
    /// # Errors
    /// As there.
    pub async fn call<C: Call>(&self, message: &C, deadline: Duration) -> Result<C::Reply> {
        self.channel::<C>().call(message, deadline).await
    }

    /// See [`Channel::call_with`].
    ///
    /// # Errors
    /// As there.
    pub async fn call_with<C: Call>(
        &self,
        message: &C,
        payload: Vec<Bytes>,
        deadline: Duration,
    ) -> Result<Response<C::Reply>> {
        self.channel::<C>().call_with(message, payload, deadline).await
    }
}
