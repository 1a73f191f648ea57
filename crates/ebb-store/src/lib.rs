//! Replicas on volumes: journal, checksums, versions.
