//! Files that several sessions write: the proxy holds their lease, and this client sends it operations.

pub(crate) mod direct;
pub(crate) mod fetch_back;
pub(crate) mod pinned;
pub(crate) mod proxied;
pub(crate) mod put;
pub(crate) mod sharing;
