//! A client that sets up and looks, and meets no fault.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_client::Client;
use ebb_types::{Credentials, Error, InodeId, Result};
use ebb_wire::pb;

use crate::cluster::Cluster;
use crate::datasets;
use crate::files::{ClientFiles, Files};
use crate::invariants::{Violation, disks, healthy, locks, names, replicas};
use crate::snapshots::LookAtRest;
use crate::survey::Survey;
use crate::workload::{Board, TOKENS, Worker};

/// The number of the observer among the clients.
const OBSERVER: usize = usize::MAX;

/// The longest call to the master without faults.
const CALL_MAX: Duration = Duration::from_secs(10);

/// The longest read of everything on all disks.
const SCRUB_MAX: Duration = Duration::from_secs(120);

/// Before the first look at rest: longer than a silent node takes to be dead, so that the consequences have begun.
const SETTLE: Duration = Duration::from_secs(32);

/// The observer.
pub struct Observer<'a> {
    cluster: &'a Cluster,
    board: &'a Board,
    client: Client,
}

impl<'a> Observer<'a> {
    /// Waits for a session.
    pub async fn new(cluster: &'a Cluster, board: &'a Board) -> Result<Self, Violation> {
        let runtime = board.world.process("observer").runtime();
        for _ in 0..60 {
            if let Ok(client) = cluster.connect(&runtime, "observer").await {
                return Ok(Self { cluster, board, client });
            }
            runtime.sleep(Duration::from_secs(1)).await;
        }
        Err(Violation::new("healthy", "no session within a minute of the start, without any fault"))
    }

    /// Its session.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Waits for all block servers, makes the directories and the files that are only renamed; returns their inodes.
    pub async fn set_up(&self, block_servers: usize) -> Result<Vec<u64>, Violation> {
        self.wait(Duration::from_secs(60), "all block servers to register", |status| {
            status.safe_start && status.nodes.len() == block_servers
        })
        .await?;
        let made = async {
            datasets::make(&self.client, self.cluster.options()).await?;
            let files = self.open_files().await?;
            let mut made = Vec::new();
            for token in 0..TOKENS {
                made.push(files.make(&format!("t{token}")).await?);
            }
            Ok(made)
        };
        let failed = |error: Error| Violation::new("healthy", format!("set-up, without any fault: {error}"));
        made.await.map_err(failed)
    }

    async fn open_files(&self) -> Result<ClientFiles> {
        ClientFiles::open_all(self.client.clone(), self.cluster.options().clients, false).await
    }

    /// Faults are over: waits until clients have ended their work, and the system has come to rest.
    pub async fn wait_for_rest(&self, longest: Duration) -> Result<(), Violation> {
        let world = &self.board.world;
        let end = world.now() + longest;
        // A process that is away comes back by itself, within a bounded time.
        while !self.cluster.is_finished() || self.cluster.is_any_away() {
            if world.now() >= end {
                let detail = format!("a client has not ended its work {} s after the last fault", longest.as_secs());
                return Err(Violation::new("converge", detail));
            }
            world.sleep(Duration::from_secs(1)).await;
        }
        world.sleep(SETTLE).await;
        self.wait(longest, "repair to end", |status| {
            status.serving && status.safe_start && status.under_replicated == 0 && status.repairs_running == 0
        })
        .await
    }

    async fn wait(
        &self,
        longest: Duration,
        event: &str,
        is_good: impl Fn(&pb::ClusterStatusReply) -> bool,
    ) -> Result<(), Violation> {
        let world = &self.board.world;
        let end = world.now() + longest;
        let mut last = String::from("no answer");
        while world.now() < end {
            match self.cluster.status(&self.client, CALL_MAX).await {
                Ok(status) if is_good(&status) => return Ok(()),
                Ok(status) => last = format!("{status:?}"),
                Err(error) => last = error.to_string(),
            }
            world.sleep(Duration::from_secs(1)).await;
        }
        Err(Violation::new("converge", format!("waited {} s for {event}; at last: {last}", longest.as_secs())))
    }

    /// Reads all files, all names and the state of all replicas, through a session that has no caches yet.
    pub async fn look_at_everything(&self, made: &[u64], rest_max: Duration) -> Result<Vec<Violation>, Violation> {
        let failed = |error: Error| Violation::new("healthy", format!("at rest: {error}"));
        let runtime = self.board.world.process("observer").runtime();
        let session = async { Ok(self.cluster.files(&runtime, "observer").await) };
        let files = Arc::new(runtime.timeout(rest_max, "a session", session).await.map_err(failed)?);
        let worker = Worker { board: self.board.clone(), client: OBSERVER, files: files.clone() };
        let mut violations: Vec<Violation> = worker.read_everything().await.map_err(failed).err().into_iter().collect();
        if self.cluster.options().snapshots {
            let (client, runtime, clients) = (files.client().clone(), runtime.clone(), self.cluster.options().clients);
            let look = LookAtRest { board: self.board, client, runtime, tokens: made, clients };
            violations.extend(look.run(rest_max).await.map_err(failed)?);
        }
        let listing = files.list().await.map_err(failed)?;
        violations.extend(names::check(made, &listing));
        violations.extend(names::check_own(&self.board.history.lock(), &listing));
        violations.extend(names::check_links(&links(files.client(), &listing).await.map_err(failed)?, &listing));
        violations.extend(locks::check_rest(&*files).await.map_err(failed)?);
        violations.extend(datasets::check_quotas(files.client()).await.map_err(failed)?);
        // Leases in the way of the last repairs go back.
        files.disconnect().await.map_err(failed)?;
        violations.extend(self.wait_for_clean_disks(&listing, rest_max).await);
        Ok(violations)
    }

    async fn look_at_disks(&self, listing: &[(String, u64)]) -> Result<Vec<Violation>> {
        let mut found = healthy::check_fsck(&self.cluster.fsck(true, SCRUB_MAX).await?);
        // One with several names counts once.
        let inodes: BTreeSet<u64> = listing.iter().map(|(_, inode)| *inode).collect();
        let survey = Survey::collect_replicas(self.cluster, &self.client, inodes.into_iter()).await?;
        found.extend(disks::check(&survey));
        // A host whose disk was replaced is another node by now, which has not been drained.
        let drained = self.cluster.drained().filter(|host| !self.cluster.budget().was_marred(host));
        found.extend(disks::check_drained(&survey, drained.as_deref()));
        found.extend(replicas::check(&survey));
        Ok(found)
    }

    /// Excess replicas go last and in the background: only a finding that stays is a violation.
    async fn wait_for_clean_disks(&self, listing: &[(String, u64)], longest: Duration) -> Vec<Violation> {
        let (start, world) = (self.board.world.now(), &self.board.world);
        loop {
            // The first call on a connection whose other end was started anew fails, and is made again.
            let found = self.look_at_disks(listing).await;
            let found = found.unwrap_or_else(|error| vec![Violation::new("healthy", format!("at rest: {error}"))]);
            if found.is_empty() || world.now() >= start + longest {
                return found;
            }
            world.sleep(Duration::from_secs(10)).await;
        }
    }
}

/// How many names each inode of a listing has, says the master.
async fn links(client: &Client, listing: &[(String, u64)]) -> Result<BTreeMap<u64, u32>> {
    let mut links = BTreeMap::new();
    for (_, inode) in listing {
        links.insert(*inode, client.get_attr(&Credentials::root(), InodeId::new(*inode)).await?.links);
    }
    Ok(links)
}
