//! Soft state: everything that a master knows and does not log. One owner, one lock.
//!
//! [`Soft::rebuild`] derives it from the logged state. From then on every applied command changes both in one step
//! (`applied`), so that no task sees them out of step. Handlers borrow the parts that they need.

mod applied;
mod guard;

use ebb_meta::Machine;
use ebb_power::{Timetable, wall_ms};
use ebb_runtime::{Moment, Runtime};
use ebb_types::{HostName, SessionId};

use crate::allotment::Allotting;
use crate::attendance::Attendance;
use crate::chains::Chains;
use crate::failures::Failures;
use crate::gray::Gray;
use crate::handoff::Debts;
use crate::holdings::Holdings;
use crate::leases::Leases;
use crate::leases::sharing::Sharing;
use crate::leases::watches::Watches;
use crate::nameless::Nameless;
use crate::options::Options;
use crate::popular::Popular;
use crate::power::timetable;
use crate::raid::attempts::Encoding;
use crate::raid::choose::longest_row_bytes;
use crate::raid::thaws::Thaws;
use crate::registry::Registry;
use crate::reserve::Reservations;
use crate::served::Served;
use crate::sessions::{Reclaim, Sessions};
use crate::snapshots::Closed;
use crate::vigil::Vigil;
use crate::vouched::Vouched;
use crate::waker::Waker;
use crate::work::Work;

pub(crate) use guard::SoftGuard;

/// The soft state of a master.
pub(crate) struct Soft {
    // Sessions, and their leases and caches.
    pub sessions: Sessions,
    pub leases: Leases,
    pub watches: Watches,
    pub sharing: Sharing,
    /// Datasets of which a snapshot is being taken.
    pub closed: Closed,
    /// Removed files that can still be opened for a while.
    pub nameless: Nameless,
    /// Answers to proxies in processes of their own about sessions. `None` if the proxy is in this process.
    pub vouched: Option<Vouched>,
    /// End of the time in which sessions of an earlier master process may reclaim. `None` if all have, or it is over.
    pub reclaim_until: Option<Moment>,

    // Nodes.
    pub registry: Registry,
    pub gray: Gray,
    /// Room reserved for writers.
    pub room: Reservations,
    /// When this process was last known to run.
    pub vigil: Vigil,
    /// Processes that announced themselves.
    pub attendance: Attendance,

    // Power.
    /// Power plans in force and announced.
    pub plans: Timetable,
    /// Highest version of a power plan that a mount or the power client has reported.
    pub followed: u64,
    /// The power client, as last heard.
    pub waker: Option<Waker>,
    /// Logged writes for sleeping nodes.
    pub debts: Debts,
    pub served: Served,

    // Copies.
    /// Queues of background work.
    pub work: Work,
    pub chains: Chains,
    /// Metablocks by the nodes of their copies.
    pub holdings: Holdings,
    pub popular: Popular,
    pub allotting: Allotting,
    /// RAID sets that are being made.
    pub encoding: Encoding,
    /// What was overwritten of them.
    pub thaws: Thaws,
    pub failures: Failures,
}

impl Soft {
    /// Soft state of a process or term that starts now.
    pub(crate) fn rebuild(machine: &Machine, runtime: &Runtime, options: &Options) -> Self {
        let now = runtime.now();
        let mut soft = Self {
            sessions: Sessions::new(options.session_ttl).numbered_from(runtime.random_u64() >> 1),
            leases: Leases::default(),
            watches: Watches::new(runtime.random_u64()),
            sharing: Sharing::new(options.sharing),
            closed: Closed::default(),
            nameless: Nameless::default(),
            vouched: (!options.hosts_proxy).then(|| Vouched::new(now)),
            reclaim_until: None,
            // The upper half of the version is random, so that clients notice another process.
            registry: {
                let first_version = (runtime.random_u64() >> 33 << 32) | 1;
                Registry::new(now, options.dead_time, options.suspect_time, first_version)
            },
            gray: Gray::for_runtime(runtime),
            room: Reservations::of_held(machine),
            vigil: Vigil::new(now),
            attendance: Attendance::default(),
            plans: timetable(machine, wall_ms(runtime.wall())),
            followed: 0,
            waker: None,
            debts: Debts::default(),
            served: Served::default(),
            work: Work::default(),
            chains: Chains::of(machine),
            holdings: Holdings::of(machine),
            popular: Popular::default(),
            allotting: Allotting::new(options.session_ttl),
            encoding: Encoding::default(),
            thaws: Thaws::default(),
            failures: Failures::default(),
        };
        for (session, host, _) in machine.sessions() {
            soft.sessions.insert(session, HostName::new(host.as_str()), Reclaim::Pending, now);
        }
        // A file with no holder may have lost its unflushed bytes: the earlier process may have recorded that its
        // holder dropped them.
        let held = machine.orphans().filter(|inode| machine.holder(*inode).is_some());
        held.for_each(|inode| soft.nameless.add(inode, now));
        // These sessions cannot reclaim their handles, because their clients may not know yet which files these are.
        machine.unacknowledged_opens().for_each(|(session, inode)| soft.leases.add_open(session, inode, 0));
        if !soft.sessions.is_empty() {
            soft.reclaim_until = Some(now.after(options.session_ttl));
        }
        soft.work.recoveries.extend(machine.recovering());
        soft.registry.set_row_bytes(longest_row_bytes(machine));
        soft
    }

    /// Asserts that the counts that follow the map's changes are those of the map.
    #[cfg(debug_assertions)]
    pub(crate) fn check_counts(&self, machine: &Machine) {
        self.chains.check(machine);
        assert_eq!(self.holdings, Holdings::of(machine), "metablocks on each set of nodes");
    }

    /// Stops all positive answers, to clients and proxies, that a session lives. Returns the moment until which a proxy
    /// may believe in it.
    pub(crate) fn begin_end(&mut self, session: SessionId) -> Option<Moment> {
        self.sessions.begin_end(session);
        self.vouched.as_mut().map(|vouched| vouched.begin_end(session))
    }
}
