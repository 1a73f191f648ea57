//! Who a process of a cluster is, and how it proves it.
//!
//! A cluster has an [`Authority`]: a certificate and its key, made with the cluster. It certifies a key of each process for
//! one [`Subject`]: cluster, role, host, user. A process keeps key and certificate as a [`CertifiedKey`], and renews it while
//! it runs ([`Holder`]). Peers check each other's with TLS 1.3 ([`tls`]) and then believe the subject, unless a
//! [`Revocations`] list withdraws it.
//!
//! Certificates are X.509, so that tools of an operator read them. The subject is a URI among their names:
//! `ebb://CLUSTER/ROLE?host=HOST&uid=UID&gid=GID&groups=GID,GID`.
//!
//! What this crate never does: open a connection, read a file, decide whether a subject may do something.
#![forbid(unsafe_code)]

mod authority;
mod certified_key;
mod clock;
mod failure;
mod holder;
mod pem;
mod revocations;
mod subject;
pub mod tls;

pub use authority::{Authority, CLOCK_TOLERANCE, KeyRequest};
pub use certified_key::CertifiedKey;
pub use clock::RuntimeClock;
pub use failure::explain;
pub use holder::Holder;
pub use revocations::{Revocation, Revocations};
pub use subject::{Subject, Validity};
