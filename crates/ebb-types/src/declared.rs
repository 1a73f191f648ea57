//! What a node says of its place.

use crate::NodeId;

/// What a node declares of its place when it registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Declared<'a> {
    /// The node; none before its first registration.
    pub node: Option<NodeId>,
    /// Its host.
    pub host: &'a str,
    /// The rack of its host.
    pub rack: &'a str,
    /// The hosts of its sub-rack; none of a node that is no localized storage node.
    pub serves: &'a [String],
}
