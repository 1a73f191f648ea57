//! The block server.
