//! How long a client, and a kernel behind it, believe in a session, and all in a certificate. Both sides count with the same
//! numbers (docs/protocol.md, Sessions; docs/identities.md).

use std::time::Duration;

/// A client stops believing in its session so long before the session can end, for clocks that drift and answers that linger.
pub const SESSION_MARGIN: Duration = Duration::from_secs(2);

/// The longest time for which a mount lets its kernel trust cached state, however long the session lives. The kernel
/// continues to trust it when the mount has died, so the master waits for that long.
pub const KERNEL_TRUST_MAX: Duration = Duration::from_secs(8);

/// The longest time of a certificate. A revocation is kept for as long.
pub const CERTIFICATE_MAX: Duration = Duration::from_secs(400 * 24 * 3600);
