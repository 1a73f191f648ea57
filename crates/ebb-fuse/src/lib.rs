//! The mount: what the kernel asks through FUSE, answered by Ebb's client.
//!
//! Three layers, each of which can be replaced without the others:
//!
//! 1. [`abi`] and `device` speak the kernel's language on `/dev/fuse`: bytes in, plain requests out, and back. It is
//!    spoken here directly and not through a library, because what a network file system needs was not to be had:
//!    interrupts (a process that waits for a lock must be killable), the difference between fcntl's and flock's locks,
//!    birth times, the rules for set-user-id bits, and a way on to requests over io_uring.
//! 2. `server` decides what each request means: caching, append, directory offsets, whose locks go when.
//! 3. [`vfs`] is the file system below: `client_vfs` for a cluster.
//!
//! `session` runs requests, `kernel_cache` knows what the kernel keeps (`pages`) and makes it let go in time
//! (`invalidate`), `kernel` and `mountinfo` deal with mount(2) and its
//! table, and [`mount()`] ties it together.
//!
//! Caching: the kernel keeps pages, names and attributes for as long as the client may (its leases and watches). Who
//! opens a file to write goes around the page cache, and so does who reads meanwhile; what another client is about to
//! change is recalled first, from threads that hold no lock. Nothing is written behind: a write that returned is in the
//! client.
//!
//! What it never does: decide what data or names are (the client and the master do), keep state that outlives the
//! process, or answer a request twice or never.
//!
//! Reading order: [`vfs`], `abi/request`, `server`, `session`, `mount`.

// This crate is the machine's rim: it opens /dev/fuse, reads /proc and /sys, and its threads block in the kernel,
// where no virtual world can reach. What it does with time and tasks still goes through the runtime.
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
pub use server::PID_XATTR;

#[cfg(test)]
mod tests;
