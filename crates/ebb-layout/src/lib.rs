//! Placement as pure functions of plain values.
