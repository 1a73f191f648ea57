//! Sub-racks: the hosts that share the disks of one localized storage node (Krish et al.: *On the Use of Shared Storage
//! in Shared-Nothing Environments*).
//!
//! A node that declares the hosts that it serves is a localized storage node (LSN). These hosts and its own are its
//! sub-rack, which has the name of the LSN's host. All is declared, and nothing is guessed from addresses: a cluster may
//! have two networks. Two nodes on one host are one LSN.
//!
//! [`check_declared`] refuses what contradicts itself. What it let pass gives each host one sub-rack in one rack, and
//! [`SubRacks`] answers by it who is near whom.

use std::collections::BTreeMap;

use ebb_types::{Declared, HostName, RackName, Result, bail};

/// The last part of the path of a host without a sub-rack.
const NO_SUB_RACK: &str = "none";

/// Distance of a node from a reader or a writer. The nearer is less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Distance {
    /// On the same host.
    Host,
    /// In the same sub-rack.
    SubRack,
    /// In the same rack.
    Rack,
    /// Elsewhere.
    Far,
}

/// The sub-racks of a cluster, as its nodes have declared them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SubRacks {
    /// The LSN's host by each host that it serves, and by itself.
    lsn_of: BTreeMap<HostName, HostName>,
    /// The hosts that an LSN serves, by its own host.
    served: BTreeMap<HostName, Vec<HostName>>,
    /// The racks of hosts with a node, and of those that are served.
    racks: BTreeMap<HostName, RackName>,
}

impl SubRacks {
    /// The sub-racks of these nodes. Of two contradictory declarations the first counts.
    #[must_use]
    pub fn new<'a>(nodes: impl IntoIterator<Item = Declared<'a>>) -> Self {
        let nodes: Vec<Declared<'a>> = nodes.into_iter().collect();
        let mut all = Self::default();
        for node in &nodes {
            all.racks.entry(HostName::new(node.host)).or_insert_with(|| RackName::new(node.rack));
        }
        for node in nodes.into_iter().filter(|node| !node.serves.is_empty()) {
            let lsn = HostName::new(node.host);
            if all.lsn_of.get(node.host).is_some_and(|other| *other != lsn) {
                continue;
            }
            all.lsn_of.insert(lsn.clone(), lsn.clone());
            for host in node.serves.iter().map(|host| HostName::new(host.as_str())) {
                if all.lsn_of.contains_key(&host) {
                    continue;
                }
                all.racks.entry(host.clone()).or_insert_with(|| RackName::new(node.rack));
                all.lsn_of.insert(host.clone(), lsn.clone());
                all.served.entry(lsn.clone()).or_default().push(host);
            }
        }
        all
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.served.is_empty()
    }

    /// Whether a localized storage node is on this host.
    #[must_use]
    pub fn is_lsn(&self, host: &str) -> bool {
        self.served.contains_key(host)
    }

    /// The host of the LSN whose sub-rack this host is in; itself, if it is an LSN's.
    #[must_use]
    pub fn lsn_of(&self, host: &str) -> Option<&HostName> {
        self.lsn_of.get(host)
    }

    /// The hosts that the LSN on this host serves, in the order in which they were declared.
    #[must_use]
    pub fn served_by(&self, lsn: &str) -> &[HostName] {
        self.served.get(lsn).map_or(&[], Vec::as_slice)
    }

    /// The other hosts of this host's sub-rack.
    pub fn neighbours(&self, host: &str) -> impl Iterator<Item = &HostName> {
        let lsn = self.lsn_of(host);
        let served = lsn.map_or(&[][..], |lsn| self.served_by(lsn.as_str()));
        lsn.into_iter().chain(served).filter(move |other| other.as_str() != host)
    }

    /// The hosts of all LSNs.
    pub fn lsns(&self) -> impl Iterator<Item = &HostName> {
        self.served.keys()
    }

    /// The rack of a host: that of a node on it, or of the LSN that serves it.
    #[must_use]
    pub fn rack_of(&self, host: &str) -> Option<&RackName> {
        self.racks.get(host)
    }

    /// All hosts with a node, and all that are served.
    pub fn hosts(&self) -> impl Iterator<Item = &HostName> {
        self.racks.keys()
    }

    /// A host's place for a scheduler: its rack, and in a cluster with sub-racks also its sub-rack, `rack/lsn`. Schedulers
    /// compare such paths as a whole, and some want all of one depth; so hosts without a sub-rack are in one named `none`.
    #[must_use]
    pub fn path_of(&self, host: &str) -> Option<String> {
        let rack = self.rack_of(host)?;
        Some(match self.lsn_of(host) {
            _ if self.is_empty() => rack.to_string(),
            Some(lsn) => format!("{rack}/{lsn}"),
            None => format!("{rack}/{NO_SUB_RACK}"),
        })
    }

    /// Whether both hosts are in one sub-rack.
    #[must_use]
    pub fn is_shared(&self, one: &str, other: &str) -> bool {
        self.lsn_of(one).is_some_and(|lsn| self.lsn_of(other) == Some(lsn))
    }

    /// Distance between two hosts. Hosts that no node has declared are far from all others.
    #[must_use]
    pub fn distance(&self, one: &str, other: &str) -> Distance {
        let racks = (self.rack_of(one), self.rack_of(other));
        match racks {
            _ if one == other => Distance::Host,
            _ if self.is_shared(one, other) => Distance::SubRack,
            (Some(own), Some(rack)) if own == rack => Distance::Rack,
            _ => Distance::Far,
        }
    }
}

/// Refuses a declaration that contradicts itself or those of the other nodes.
///
/// `Invalid` if a host is named twice, is served by two LSNs, serves and is served, or lies in another rack than its LSN.
/// The sentence names both sides, and what to do. `known` may name the node itself as it was: that does not count.
pub fn check_declared<'a>(known: impl IntoIterator<Item = Declared<'a>>, new: &Declared<'_>) -> Result<()> {
    let (title, serves) = (title(new), new.serves);
    for (place, host) in serves.iter().enumerate() {
        if host.is_empty() {
            bail!(Invalid, "{title} serves a host without a name");
        }
        if host == new.host {
            bail!(Invalid, "{title} names {host}, its own host: a sub-rack has that anyway. Leave it out");
        }
        if serves[..place].contains(host) {
            bail!(Invalid, "{title} names {host} twice");
        }
    }
    let others = known.into_iter().filter(|known| known.node.is_none() || known.node != new.node);
    for known in others {
        let other = self::title(&known);
        if known.host != new.host {
            check_served_once(&title, new, &other, &known)?;
        }
        let is_served = serves.iter().any(|host| host == known.host);
        let serves_new = known.serves.iter().any(|host| host == new.host);
        if (is_served || serves_new) && known.rack != new.rack {
            let [(lsn, lsn_rack), (host, rack)] = match is_served {
                true => [(&title, new.rack), (&other, known.rack)],
                false => [(&other, known.rack), (&title, new.rack)],
            };
            bail!(
                Invalid,
                "a sub-rack lies in one rack: {lsn} is in {lsn_rack}, and {host}, which it serves, in {rack}. Start one of \
                 them with the other's rack, or the first without that host"
            );
        }
    }
    Ok(())
}

fn title(declared: &Declared<'_>) -> String {
    match declared.node {
        Some(node) => format!("{node} on {}", declared.host),
        None => format!("the new node on {}", declared.host),
    }
}

/// Between nodes of two hosts.
fn check_served_once(title: &str, new: &Declared<'_>, other: &str, known: &Declared<'_>) -> Result<()> {
    if let Some(host) = new.serves.iter().find(|host| known.serves.contains(host)) {
        bail!(
            Invalid,
            "{host} is served by {other}, and cannot be served by {title} too: a host has one localized storage node. Start \
             {other} without it first, or remove that node"
        );
    }
    let chained = [(title, new, other, known), (other, known, title, new)]
        .into_iter()
        .find(|(_, lsn, _, served)| !served.serves.is_empty() && lsn.serves.iter().any(|host| host == served.host));
    if let Some((lsn, _, served, _)) = chained {
        bail!(
            Invalid,
            "{served} serves hosts, and cannot be served by {lsn}: a host that serves is in its own sub-rack"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ebb_types::{ErrorKind, NodeId};

    use super::*;

    fn names(hosts: &str) -> Vec<String> {
        hosts.split_whitespace().map(str::to_owned).collect()
    }

    /// Nodes as `(id, host, rack, served hosts)`.
    type Nodes<'a> = &'a [(u64, &'a str, &'a str, &'a str)];

    fn with_declared<T>(nodes: Nodes<'_>, work: impl FnOnce(Vec<Declared<'_>>) -> T) -> T {
        let serves: Vec<Vec<String>> = nodes.iter().map(|node| names(node.3)).collect();
        let declared = nodes.iter().zip(&serves).map(|((node, host, rack, _), serves)| Declared {
            node: (*node > 0).then(|| NodeId::new(*node)),
            host,
            rack,
            serves,
        });
        work(declared.collect())
    }

    fn host(name: &str) -> HostName {
        HostName::new(name)
    }

    #[test]
    fn hosts_are_near_by_what_was_declared() {
        let nodes: Nodes<'_> = &[
            (1, "lsn1", "r1", "a1 a2"),
            (2, "lsn2", "r1", "b1"),
            (3, "lsn3", "r2", "c1"),
            (4, "a1", "r1", ""),
            (5, "d", "r2", ""),
        ];
        let all = with_declared(nodes, |nodes| SubRacks::new(nodes));
        let distance = |one: &str, other: &str| all.distance(one, other);
        assert_eq!(distance("a1", "a1"), Distance::Host);
        assert_eq!((distance("a1", "lsn1"), distance("a1", "a2")), (Distance::SubRack, Distance::SubRack));
        assert_eq!((distance("a2", "lsn2"), distance("b1", "a1")), (Distance::Rack, Distance::Rack));
        assert_eq!((distance("c1", "d"), distance("a1", "c1")), (Distance::Rack, Distance::Far));
        assert_eq!((distance("laptop", "a1"), distance("laptop", "laptop")), (Distance::Far, Distance::Host));
        assert_eq!(all.lsn_of("a2"), Some(&host("lsn1")));
        assert_eq!(all.lsn_of("lsn1"), Some(&host("lsn1")));
        assert_eq!(all.lsn_of("d"), None);
        assert_eq!(all.served_by("lsn1"), [host("a1"), host("a2")]);
        assert_eq!(all.rack_of("c1"), Some(&RackName::new("r2")), "it has no node of its own");
        assert!(all.is_lsn("lsn3") && !all.is_lsn("c1") && !all.is_empty());
        assert!(SubRacks::default().is_empty());
        let path = |host: &str| all.path_of(host).unwrap_or_default();
        assert_eq!([path("a2"), path("lsn1"), path("d")], ["r1/lsn1", "r1/lsn1", "r2/none"]);
        assert_eq!((path("laptop"), all.hosts().count()), (String::new(), 8));
        let neighbours = |host: &str| all.neighbours(host).map(HostName::as_str).collect::<Vec<_>>();
        assert_eq!(neighbours("a1"), ["lsn1", "a2"]);
        assert_eq!(neighbours("lsn1"), ["a1", "a2"]);
        assert!(neighbours("d").is_empty() && neighbours("laptop").is_empty());
    }

    #[test]
    fn contradictions_are_refused_with_both_names_and_a_way_out() {
        let known: Nodes<'_> =
            &[(1, "lsn1", "r1", "a1 a2"), (2, "lsn2", "r2", "b1"), (3, "a1", "r1", ""), (4, "b1", "r2", "")];
        let refused = |new: (u64, &str, &str, &str), parts: &[&str]| {
            let serves = names(new.3);
            let node = (new.0 > 0).then(|| NodeId::new(new.0));
            let new = Declared { node, host: new.1, rack: new.2, serves: &serves };
            let error = with_declared(known, |known| check_declared(known, &new)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            parts.iter().for_each(|part| assert!(text.contains(part), "{text:?} lacks {part:?}"));
        };
        refused((0, "lsn3", "r1", "a2"), &["a2 is served by n1 on lsn1", "without it first"]);
        refused((3, "a1", "r2", ""), &["one rack", "n1 on lsn1 is in r1", "n3 on a1"]);
        refused((1, "lsn1", "r1", "a1 b1"), &["b1 is served by n2 on lsn2"]);
        refused((0, "lsn3", "r1", "lsn2"), &["n2 on lsn2 serves hosts"]);
        refused((4, "b1", "r2", "x"), &["n4 on b1 serves hosts", "n2 on lsn2"]);
        refused((0, "lsn3", "r1", "lsn3"), &["its own host", "Leave it out"]);
        refused((0, "lsn3", "r1", "x x"), &["x twice"]);
        let allowed = |new: (u64, &str, &str, &str)| {
            let serves = names(new.3);
            let new = Declared { node: Some(NodeId::new(new.0)), host: new.1, rack: new.2, serves: &serves };
            with_declared(known, |known| check_declared(known, &new)).unwrap();
        };
        allowed((1, "lsn1", "r1", "a1 a3"));
        allowed((5, "lsn1", "r1", "a1"));
        allowed((1, "lsn1", "r7", ""));
    }

    #[test]
    fn of_two_declarations_of_a_host_the_first_counts() {
        // Such logs cannot be written, and must not be a reason to fail.
        let all = with_declared(&[(1, "lsn1", "r1", "a lsn2"), (2, "lsn2", "r1", "a b")], |nodes| SubRacks::new(nodes));
        assert_eq!(all.lsn_of("a"), Some(&host("lsn1")));
        assert_eq!((all.lsn_of("lsn2"), all.lsn_of("b")), (Some(&host("lsn1")), None));
    }
}
