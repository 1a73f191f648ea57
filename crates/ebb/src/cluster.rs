//! A whole cluster of processes on this machine, under one directory.
//!
//! ```text
//! DIR/cluster.toml      cluster id, masters' addresses        DIR/run/NAME.json   one for each running process
//! DIR/authority.pem     certifies every process, 0600         DIR/log/NAME.log    what it printed
//! DIR/identities/       certificates and keys of processes    DIR/power/          settings of the power manager
//! DIR/master/           raft log and checkpoints              DIR/nodes/hN/       a block server's volumes
//! DIR/host.toml         on a host of a cluster on several hosts: its name and addresses
//! ```
//! All of it is for the owner alone: directories have mode 0700, files 0600.

pub mod down;
pub mod health;
pub mod hosts;
pub mod init;
pub mod parts;
mod place;
mod progress;
pub mod raise_version;
pub mod start;
pub mod status;
pub mod unreadable;
pub mod up;
