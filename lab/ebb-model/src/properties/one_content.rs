//! A version names one content: a seq once sent never carries other bytes.

use crate::names::Version;
use crate::{Protocol, State};

/// Its name in reports.
pub const NAME: &str = "one version, one content";

/// Replicas at the same version, in memory or on disk, member or not, include the same writes.
pub fn holds(_protocol: &Protocol, state: &State) -> bool {
    let copies = || state.replicas.iter().flat_map(|replica| [replica.received, replica.synced]);
    copies().all(|left| {
        left.version == Version::ZERO
            || copies().all(|right| left.version != right.version || left.writes == right.writes)
    })
}
