//! The mount: it answers the kernel's FUSE requests through Ebb's client library.
//!
//! It never does the following:
//! - decide about data or names: the client and the master do;
//! - keep state that outlives the process;
//! - answer a request twice, or leave one unanswered.
//!
//! It has three layers. Each can be replaced without the others:
//!
//! 1. [`abi`] and `device` implement the FUSE protocol on `/dev/fuse`: bytes in, plain requests out, and back.
//! 2. `server` decides what each request means: caching, append, directory offsets, and which locks end when.
//! 3. [`vfs`] is the interface to the file system below. `client_vfs` implements it for a cluster.
//!
//! The first layer is written here because no library had everything that a network file system needs:
//! - interrupts: a process that waits for a lock must be killable;
//! - the difference between the locks of fcntl and flock;
//! - birth times;
//! - the rules for set-user-id bits;
//! - a way to add requests over io_uring.
//!
//! Around the layers:
//! - `session` runs the requests.
//! - `kernel_cache` tracks what the kernel caches (`pages`) and makes the kernel drop it in time (`invalidate`).
//! - `kernel` calls mount(2), and `mountinfo` reads the mount table.
//! - [`mount()`] connects all of them.
//!
//! **Caching.** The kernel caches pages, names and attributes for as long as the client may, by its leases and watches.
//! - A descriptor that is opened for writing bypasses the page cache. So does one that is opened for reading meanwhile.
//!   A kernel that cannot map such files caches their pages as usual.
//! - Before another client changes a file, its cached pages are recalled. Threads that hold no lock write these
//!   invalidations.
//! - There is no write-back: when a write returns, the client has the bytes.
//!
//! Reading order: [`vfs`], `abi/request`, `server`, `session`, `mount`.

// This crate is the border to the real machine. It opens /dev/fuse and reads /proc and /sys, and
// its threads block in the kernel, outside any virtual world. Its use of time and tasks still
// goes through the runtime.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod abi;
mod client_vfs;
mod credentials;
mod device;
mod interrupt;
mod invalidate;
mod kernel;
mod kernel_cache;
mod mount;
mod mountinfo;
mod pages;
mod server;
mod session;
pub mod vfs;

pub use client_vfs::ClientVfs;
pub use kernel_cache::KernelCache;
pub use mount::{Mount, MountOptions, mount, mount_vfs, unmount, unmount_lazily};
pub use mountinfo::users_of;
pub use server::PID_XATTR;

#[cfg(test)]
mod tests;
