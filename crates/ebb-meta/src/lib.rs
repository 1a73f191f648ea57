//! The namespace as a deterministic state machine: apply(command) -> reply.
