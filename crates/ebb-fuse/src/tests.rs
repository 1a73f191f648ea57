//! The crate on real mounts, over a file system in memory.

mod access;
mod data;
mod directories;
mod fixture;
mod life;
mod locks;
mod memory;
mod memory_data;
mod memory_state;
mod names;
