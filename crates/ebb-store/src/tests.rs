//! Tests of whole volumes.
