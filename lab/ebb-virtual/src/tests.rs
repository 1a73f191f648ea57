//! The oracle on stand-ins that keep and break promises, and the cluster itself on a few seeds.

mod cluster;
mod debt;
mod departures;
mod extras;
mod failures;
mod gray;
mod hostile;
mod hosts;
mod lineage;
mod master_disk;
mod memory;
mod names;
mod oracle;
mod power;
mod power_runs;
mod read_load;
mod relay;
mod replicas;
mod rest;
mod returns;
mod sharing;
mod single;
mod standins;
mod stopovers;
mod turns;
mod two_masters;
