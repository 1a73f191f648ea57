//! A job: walks a tree, ships each split to a worker near its data, adds up.

use ebb_client::Client;
use ebb_layout::SubRacks;
use ebb_rpc::{Connector, Counters};
use ebb_runtime::Runtime;
use ebb_types::{Credentials, HostName, Result, bail};
use ebb_wire::pb;

use crate::coordinator::{Job, Parts};
use crate::plan::{BatchLimits, Locality, Planner};
use crate::report::{Progress, Report};
use crate::task::Task;
use crate::walk::{ClientTree, Tree, Walk};

/// How a job runs.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The task: words or lines.
    pub task: Task,
    /// Whether work goes to its data.
    pub locality: Locality,
    /// Without locations: bytes of one read, as of a program's buffer; none: a block.
    pub buffer_bytes: Option<u64>,
    /// Calls in progress for each worker.
    pub calls_per_worker: usize,
    /// Workers that a split is tried on.
    pub attempts_max: usize,
    /// Bounds of a call.
    pub limits: BatchLimits,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            task: Task::Words,
            locality: Locality::Located,
            buffer_bytes: None,
            calls_per_worker: 2,
            attempts_max: 3,
            limits: BatchLimits::default(),
        }
    }
}

/// Counts the words of all files below `path` with workers at these addresses. `progress` is called now and then.
///
/// Fails if the walk does, or if there is no worker. Splits that fail on several workers are listed in the report.
pub async fn count_words(
    runtime: &Runtime,
    client: &Client,
    credentials: &Credentials,
    path: &[u8],
    workers: &[(HostName, String)],
    options: &JobOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report> {
    let tree = ClientTree { client: client.clone(), credentials: credentials.clone() };
    // A counter of its own: the client's also carry the process's other work.
    let connector = Connector::new(runtime.clone(), client.connector().identity().clone(), Counters::default());
    count_words_in(runtime, &tree, &connector, path, workers, options, progress).await
}

/// Counts as [`count_words`] does, in any namespace. `connector` leads to the workers, and no other traffic is in its
/// counters.
pub async fn count_words_in(
    runtime: &Runtime,
    tree: &impl Tree,
    connector: &Connector,
    path: &[u8],
    workers: &[(HostName, String)],
    options: &JobOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report> {
    if workers.is_empty() {
        bail!(Unavailable, "there is no worker: start one on each host, as `ebb cluster up` does");
    }
    let started = runtime.now();
    let before = tree.carried();
    let nodes = tree.nodes();
    let sub_racks = SubRacks::new(nodes.iter().map(pb::Node::declared));
    connector.counters().set_sub_rack(sub_racks.neighbours(connector.identity().host.as_str()).cloned());
    let hosts: Vec<HostName> = workers.iter().map(|(host, _)| host.clone()).collect();
    let turn = |worker: usize| tree.turn(&hosts[worker]);
    let nodes_now = || tree.nodes();
    let parts = Parts {
        runtime,
        connector,
        addresses: workers.iter().map(|(_, address)| address.as_str()).collect(),
        options,
        planner: Planner::new(options.locality, options.limits, &hosts, &nodes),
        turn: &turn,
        nodes: &nodes_now,
        progress,
    };
    let mut report = Job::run(parts, Walk::start(runtime, tree, path)).await?;
    report.seconds = runtime.now().since(started).as_secs_f64();
    for carried in [connector.counters().read().into(), tree.carried().since(before)] {
        report.add_carried(carried);
    }
    Ok(report)
}

#[cfg(test)]
mod tests;
