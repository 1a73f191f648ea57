//! Tests of the machine as a whole.
