//! The mutations of clients, a file for each kind. Each one checks first and changes then.

mod attr;
mod commit;
pub(crate) mod create;
mod dataset;
pub(crate) mod grant;
mod link;
mod lock;
mod rename;
mod take_over;
mod truncate;
mod unlink;
pub(crate) mod xattr;
