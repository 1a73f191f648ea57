//! Where the first copies of a new file go.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ebb_types::HostName;
use ebb_wire::pb;

use crate::path::EbbPath;

/// A writer's wish for the first copies of a new file's metablocks. Layouts on chains follow none: there every node's load is to be even.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum FirstCopies {
    /// As the layout has it: on the writer's host, mostly.
    #[default]
    Layout,
    /// On these hosts in turn.
    On(Vec<HostName>),
    /// On the hosts in turn, but not on the writer's.
    Elsewhere,
    /// On the hosts in turn, the writer's like any other.
    Anywhere,
}

impl FirstCopies {
    /// The hosts for the metablocks of a file, in turn; empty: the layout decides. `own`: the writer's host. `nodes` are asked for only
    /// if they matter. Files begin at different hosts: at which one follows from the path.
    pub(crate) fn hosts(self, path: &EbbPath, nodes: impl FnOnce() -> Vec<pb::Node>, own: &HostName) -> Vec<HostName> {
        let left_out = match self {
            Self::Layout => return Vec::new(),
            Self::On(hosts) => return hosts,
            Self::Elsewhere => Some(own.as_str()),
            Self::Anywhere => None,
        };
        let nodes = nodes();
        let live = nodes.iter().filter(|node| node.state() == pb::NodeState::NodeLive);
        let hosts = live.map(|node| node.host.as_str()).filter(|host| Some(*host) != left_out);
        let hosts: BTreeSet<&str> = hosts.collect();
        let mut hosts: Vec<HostName> = hosts.into_iter().map(HostName::new).collect();
        if !hosts.is_empty() {
            let mut hasher = DefaultHasher::new();
            path.as_bytes().hash(&mut hasher);
            let first = hasher.finish() % hosts.len() as u64;
            hosts.rotate_left(first as usize);
        }
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<pb::Node> {
        let node = |(id, host): (u64, &str)| pb::Node {
            id,
            host: host.to_owned(),
            state: if host == "h4" { pb::NodeState::NodeDead } else { pb::NodeState::NodeLive } as i32,
            ..Default::default()
        };
        [(1, "h1"), (2, "h2"), (3, "h3"), (4, "h4"), (5, "h1")].map(node).to_vec()
    }

    fn chosen(wish: FirstCopies, path: &str) -> Vec<String> {
        let path = EbbPath::new(path.as_bytes()).unwrap();
        wish.hosts(&path, nodes, &HostName::new("h2")).iter().map(ToString::to_string).collect()
    }

    fn sorted(mut hosts: Vec<String>) -> Vec<String> {
        hosts.sort_unstable();
        hosts
    }

    #[test]
    fn each_wish_names_live_hosts_once() {
        assert_eq!(chosen(FirstCopies::Layout, "/a"), Vec::<String>::new());
        assert_eq!(chosen(FirstCopies::On(vec![HostName::new("x")]), "/a"), ["x"]);
        assert_eq!(sorted(chosen(FirstCopies::Elsewhere, "/a")), ["h1", "h3"]);
        assert_eq!(sorted(chosen(FirstCopies::Anywhere, "/a")), ["h1", "h2", "h3"]);
    }

    #[test]
    fn files_begin_at_different_hosts() {
        let first = |number: usize| chosen(FirstCopies::Elsewhere, &format!("/f{number}")).remove(0);
        let begun: BTreeSet<String> = (0..20).map(first).collect();
        assert_eq!(begun.len(), 2);
    }

    #[test]
    fn a_writer_on_the_only_host_leaves_it_to_the_layout() {
        let path = EbbPath::new(b"/a").unwrap();
        assert_eq!(FirstCopies::Elsewhere.hosts(&path, || nodes()[1..2].to_vec(), &HostName::new("h2")), []);
    }
}
