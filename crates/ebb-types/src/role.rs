//! What a process is in its cluster.

use std::fmt;
use std::str::FromStr;

/// What a process is. Its certificate says so, and calls are allowed by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Role {
    /// Keeps names, the map and leases.
    Master,
    /// Keeps replicas.
    Block,
    /// Holds leases of files that several clients write, and relays calls.
    Proxy,
    /// Publishes power plans.
    PowerManager,
    /// Puts nodes to sleep and wakes them.
    PowerClient,
    /// Does shipped work at its node's data.
    Worker,
    /// A mount: it speaks for the users of its host.
    Mount,
    /// A program of one user.
    Program,
    /// An operator's command: it speaks for any user, and changes the cluster.
    Operator,
    /// A host with a token: it asks for its certificates, and for nothing else.
    Joiner,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 10] = [
        Self::Master,
        Self::Block,
        Self::Proxy,
        Self::PowerManager,
        Self::PowerClient,
        Self::Worker,
        Self::Mount,
        Self::Program,
        Self::Operator,
        Self::Joiner,
    ];

    /// Its name in certificates, messages and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Block => "block",
            Self::Proxy => "proxy",
            Self::PowerManager => "power-manager",
            Self::PowerClient => "power-client",
            Self::Worker => "worker",
            Self::Mount => "mount",
            Self::Program => "program",
            Self::Operator => "operator",
            Self::Joiner => "joiner",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|role| role.name()).collect();
            format!("{name:?} is no role: the roles are {}", known.join(", "))
        })
    }
}

/// A set of roles.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Roles(u16);

impl Roles {
    /// Every role.
    pub const ALL: Self = Self::of(&Role::ALL);
    /// The roles of those that are part of the cluster already.
    pub const MEMBERS: Self = Self(Self::ALL.0 & !(1 << Role::Joiner as u16));

    /// These.
    #[must_use]
    pub const fn of(roles: &[Role]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < roles.len() {
            set |= 1 << roles[at] as u16;
            at += 1;
        }
        Self(set)
    }

    /// Those of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has this one.
    #[must_use]
    pub const fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u16 != 0
    }

    /// Its members.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.has(*role))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Role::name).collect();
        f.write_str(&names.join(", "))
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roles({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_role() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        assert!("cli".parse::<Role>().unwrap_err().contains("master, block"));
    }

    #[test]
    fn a_set_has_its_members_alone() {
        let set = Roles::of(&[Role::Block]).and(Roles::of(&[Role::Operator]));
        assert_eq!(set.iter().collect::<Vec<_>>(), [Role::Block, Role::Operator]);
        assert_eq!(set.to_string(), "block, operator");
        assert!(Role::ALL.into_iter().all(|role| Roles::ALL.has(role) && !Roles::of(&[]).has(role)));
    }
}
