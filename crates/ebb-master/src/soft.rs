//! What a master finds out again: everything that it knows and does not log. One owner, one lock.
//!
//! [`Soft::rebuild`] makes it from the logged state. From then on every applied command changes it in the same step
//! (`applied`), so that nobody sees the one without the other. Handlers borrow the parts that they need.

mod applied;
mod guard;

use ebb_meta::Machine;
use ebb_power::{Timetable, wall_ms};
use ebb_runtime::{Moment, Runtime};
use ebb_types::{HostName, SessionId};

use crate::chains::Chains;
use crate::failures::Failures;
use crate::gray::Gray;
use crate::handoff::Drain;
use crate::holdings::Holdings;
use crate::leases::Leases;
use crate::leases::sharing::Sharing;
use crate::leases::watches::Watches;
use crate::nameless::Nameless;
use crate::options::Options;
use crate::popular::Popular;
use crate::power::timetable;
use crate::registry::Registry;
use crate::reserve::Reservations;
use crate::served::Served;
use crate::sessions::Sessions;
use crate::vigil::Vigil;
use crate::vouched::Vouched;
use crate::waker::Waker;
use crate::work::Work;

pub(crate) use guard::SoftGuard;

/// See the module.
pub(crate) struct Soft {
    // Sessions, and what they may keep.
    pub sessions: Sessions,
    pub leases: Leases,
    pub watches: Watches,
    pub sharing: Sharing,
    /// Removed files that are kept for a while.
    pub nameless: Nameless,
    /// What proxies in processes of their own were told of sessions; none: the proxy is in this process.
    pub vouched: Option<Vouched>,
    /// Until when sessions of an earlier master process may tell what they hold; `None`: all have, or it is over.
    pub reclaim_until: Option<Moment>,

    // Nodes.
    pub registry: Registry,
    pub gray: Gray,
    /// Room promised to writers.
    pub room: Reservations,
    /// When this process was last seen to run.
    pub vigil: Vigil,

    // Power.
    /// Plans in force and announced.
    pub plans: Timetable,
    /// Version of the newest plan that a mount or the power client said it has.
    pub followed: u64,
    /// What wakes nodes, as it was heard last.
    pub waker: Option<Waker>,
    /// What was logged for nodes that sleep, and they cannot have yet.
    pub drain: Drain,
    pub served: Served,

    // Copies.
    /// What there is to do.
    pub work: Work,
    pub chains: Chains,
    /// What lies where.
    pub holdings: Holdings,
    pub popular: Popular,
    pub failures: Failures,
}

impl Soft {
    /// What follows from the logged state, for a process or a term that begins now.
    pub(crate) fn rebuild(machine: &Machine, runtime: &Runtime, options: &Options) -> Self {
        let now = runtime.now();
        let mut soft = Self {
            sessions: Sessions::new(options.session_ttl).numbered_from(runtime.random_u64() >> 1),
            leases: Leases::default(),
            watches: Watches::new(runtime.random_u64()),
            sharing: Sharing::new(options.sharing),
            nameless: Nameless::default(),
            vouched: (!options.hosts_proxy).then(|| Vouched::new(now)),
            reclaim_until: None,
            // The upper half of the version differs from one process to the next, so that clients notice.
            registry: {
                let first_version = (runtime.random_u64() >> 33 << 32) | 1;
                Registry::new(now, options.dead_time, options.suspect_time, first_version)
            },
            gray: Gray::for_runtime(runtime),
            room: Reservations::of_held(machine),
            vigil: Vigil::new(now),
            plans: timetable(machine, wall_ms(runtime.wall())),
            followed: 0,
            waker: None,
            drain: Drain::default(),
            served: Served::default(),
            work: Work::default(),
            chains: Chains::of(machine),
            holdings: Holdings::of(machine),
            popular: Popular::default(),
            failures: Failures::default(),
        };
        for (session, host, _) in machine.sessions() {
            soft.sessions.insert(session, HostName::new(host.as_str()), false, now);
        }
        // What was written to those that nobody holds may be gone: the process before may have been told so.
        let held = machine.orphans().filter(|inode| machine.holder(*inode).is_some());
        held.for_each(|inode| soft.nameless.add(inode, now));
        // They cannot tell: their clients may not know yet which files they are.
        machine.untold().for_each(|(session, inode)| soft.leases.add_open(session, inode, 0));
        if !soft.sessions.is_empty() {
            soft.reclaim_until = Some(now.after(options.session_ttl));
        }
        soft.work.recoveries.extend(machine.recovering());
        soft
    }

    /// Neither its client nor a proxy is told any more that a session lives. Returns until when a proxy may believe it all
    /// the same.
    pub(crate) fn begin_end(&mut self, session: SessionId) -> Option<Moment> {
        self.sessions.begin_end(session);
        self.vouched.as_mut().map(|vouched| vouched.begin_end(session))
    }
}
