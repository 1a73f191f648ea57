//! The client against a real master and block servers in memory, in the virtual world.

mod ahead;
mod counts;
mod cut;
mod directed;
mod embedded;
mod ends;
mod fake_block;
mod fewer;
mod frozen;
mod harness;
mod idle;
mod random;
mod removed;
mod room;
mod short_circuit;
mod sizes;
