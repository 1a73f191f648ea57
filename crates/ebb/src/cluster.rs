//! A whole cluster of processes on this machine, under one directory.
//!
//! ```text
//! DIR/cluster.toml      cluster id, masters' addresses        DIR/run/NAME.json   one for each running process
//! DIR/secret            proved in every handshake, 0600       DIR/log/NAME.log    what it printed
//! DIR/master/           raft log and checkpoints              DIR/nodes/hN/       a block server's volumes
//! ```
//! All of it is for the owner alone: directories have mode 0700, files 0600.

pub mod down;
pub mod health;
pub mod hosts;
pub mod parts;
mod place;
mod progress;
pub mod start;
pub mod status;
pub mod unreadable;
pub mod up;
