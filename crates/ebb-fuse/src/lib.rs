//! The mount: kernel requests to client calls.
