//! The virtual world.
