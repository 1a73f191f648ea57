//! A client that meets no fault looks at the cluster while faults go on.

use std::time::Duration;

use ebb_client::Client;
use ebb_types::Result;
use ebb_wire::pb;
use parking_lot::Mutex;

use crate::cluster::Cluster;
use crate::invariants::{Violation, synced};

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(3);

/// How long a look may take: a master that is down or cut off is asked again later.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// The look-out.
pub struct Watch<'a> {
    cluster: &'a Cluster,
    client: &'a Client,
    found: Mutex<Vec<Violation>>,
}

impl<'a> Watch<'a> {
    /// Looks through this client.
    #[must_use]
    pub fn new(cluster: &'a Cluster, client: &'a Client) -> Self {
        Self { cluster, client, found: Mutex::default() }
    }

    /// Looks every now and then, for ever.
    pub async fn run(&self) {
        let mut dice = self.cluster.world().dice("watch");
        loop {
            self.cluster.world().sleep(PAUSE).await;
            // Reading everything costs time: now and then, and always where something may be damaged.
            let scrub = self.cluster.budget().is_marred() || dice.chance(0.3);
            self.is_complete(scrub).await;
        }
    }

    /// Whether every set has all its copies, all of them readable. Records violations.
    pub async fn is_complete(&self, scrub: bool) -> bool {
        let Ok((status, report)) = self.inspect_cluster(scrub).await else { return false };
        self.cluster.note_gray(&status);
        let host = |node: u64| status.nodes.iter().find(|known| known.id == node).map(|known| known.host.clone());
        let found = {
            let budget = self.cluster.budget();
            synced::check(&report, |node| host(node).is_none_or(|host| budget.was_marred(&host)))
        };
        self.found.lock().extend(found);
        let counts = [report.missing, report.under_replicated, report.corrupt, report.unseen, status.under_replicated];
        let complete = status.serving && status.safe_start && report.findings.is_empty();
        let complete = complete && counts.iter().all(|count| *count == 0);
        // The record has nothing of writes that a holder has not committed yet: a loss there is not over.
        if complete && scrub && report.unsettled == 0 {
            self.cluster.budget().found_complete();
        }
        complete
    }

    /// The violations found so far.
    pub fn take_violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.found.lock())
    }

    async fn inspect_cluster(&self, scrub: bool) -> Result<(pb::ClusterStatusReply, pb::FsckReply)> {
        let report = self.cluster.fsck(scrub, LOOK_MAX).await?;
        Ok((self.cluster.status(self.client, LOOK_MAX).await?, report))
    }
}
