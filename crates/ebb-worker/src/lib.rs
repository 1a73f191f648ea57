//! Runs tasks on metablocks of its own host.
