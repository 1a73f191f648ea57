//! The logs that writes go to, and the calls to them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::deadlines::WRITE_DEADLINE;
use ebb_types::{Error, ErrorKind, InodeId, NodeId, Result, err};
use ebb_wire::{convert, pb};
use tokio::sync::oneshot;

use super::lack::LogCall;
use crate::nodes::Hop;
use crate::shared::Shared;
use crate::write::members;

/// A node that stays awake for less than this is not asked, in milliseconds.
const LEAST_AWAKE_MS: u64 = 100;

/// Results of the attempts so far.
#[derive(Default)]
pub(super) struct Tried {
    /// Nodes that refused the writes, or did not answer.
    refused: BTreeSet<u64>,
    /// The always-on node's log was full, or members that sleep could not take more.
    pub is_full: bool,
    /// A node could not pass the writes on to the always-on node.
    is_direct: bool,
}

/// Outcomes of a call.
#[derive(Default)]
struct Logged {
    /// The node's. None: it was not asked, or has logged the writes.
    here: Option<Error>,
    /// The always-on node's.
    always_on: Option<Error>,
    /// The node cannot pass calls on.
    cannot_pass: bool,
}

impl Shared {
    /// Logs on the always-on node, and on the nodes that are awake soonest.
    ///
    /// The first of them passes the writes on to the always-on node, so that they leave this host once. It does not do so
    /// if it sleeps, or if the always-on node has refused writes. That one is then asked first, so that the other disks
    /// are not filled in vain.
    pub(super) async fn log_on_nodes(
        self: &Arc<Self>,
        calls: Vec<LogCall>,
        copies: usize,
        keepers: Option<&BTreeSet<u64>>,
        tried: &mut Tried,
    ) -> Result<()> {
        let inode = calls.first().map_or(0, |call| call.message.inode);
        let nodes = self.logs_for(inode, copies.saturating_sub(1), keepers, tried);
        let Some((wait, first)) = nodes.first() else {
            tried.refused.clear();
            return Err(err!(Unavailable, "no node with a handoff log is awake, and none wakes"));
        };
        let (logs, writes) = (nodes.len() as u64 + 1, calls.iter().map(|call| call.message.writes.len() as u64).sum());
        let passes_on = self.passes_on(*wait, first, tried);
        // A keeper may have fallen asleep since it was looked at. The always-on node has not got the bytes that a call names.
        if keepers.is_some() && !passes_on {
            return Err(err!(Unavailable, "n{} cannot pass the bytes of a direct write on now", first.id));
        }
        if tried.is_full {
            for call in &calls {
                let answer = self.log_always_on(call.clone()).await;
                tried.is_full = answer.as_ref().is_err_and(is_full);
                answer?;
            }
        }
        let asks_always_on = !passes_on && !tried.is_full;
        let mut tasks = Vec::new();
        // Ordering: calls are handed to the connections here, in their order. A log takes a write only behind the one before.
        for call in calls {
            for (place, (_, node)) in nodes.iter().enumerate() {
                let (own, node, call) = (Arc::clone(self), node.clone(), call.clone());
                let passes_on = passes_on && place == 0;
                let work = async move { (Some(node.id), own.log_on(&node, call, passes_on).await) };
                tasks.push(self.start("log writes on a node", work));
            }
            if asks_always_on {
                let own = Arc::clone(self);
                let work = async move {
                    let always_on = own.log_always_on(call).await.err();
                    (None, Logged { always_on, ..Logged::default() })
                };
                tasks.push(self.start("log writes on the always-on node", work));
            }
        }
        let mut worst = None;
        for task in tasks {
            let (node, logged) = task.await.map_err(|_| err!(ShuttingDown, "the client ends"))?;
            tried.is_direct |= logged.cannot_pass;
            tried.is_full |= logged.always_on.as_ref().is_some_and(is_full);
            if logged.here.is_some() {
                tried.refused.extend(node);
            }
            worst = logged.always_on.or(logged.here).or(worst);
        }
        match worst {
            None => {
                self.metrics.logged_writes.add(writes);
                self.metrics.log_copies.add(writes * logs);
                Ok(())
            }
            Some(error) => Err(error),
        }
    }

    /// Whether the first of the nodes is to pass the writes on to the always-on node.
    fn passes_on(&self, wait: Duration, first: &pb::Node, tried: &Tried) -> bool {
        !tried.is_full && !tried.is_direct && wait.is_zero() && !self.nodes.is_late(first.id)
    }

    /// Whether as many nodes as have to log the writes of a file are awake and keep the bytes that the calls name, and
    /// one of them passes these on.
    pub(super) fn can_log_by_name(
        &self,
        inode: InodeId,
        keepers: &BTreeSet<u64>,
        copies: usize,
        tried: &Tried,
    ) -> bool {
        let wanted = copies.saturating_sub(1);
        let nodes = self.logs_for(inode.raw(), wanted, Some(keepers), tried);
        let are_awake = nodes.iter().all(|(wait, _)| wait.is_zero());
        nodes.len() == wanted
            && are_awake
            && nodes.first().is_some_and(|(wait, first)| self.passes_on(*wait, first, tried))
    }

    /// Does work here up to its first waiting point, and the rest as a task.
    fn start<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (send, result) = oneshot::channel();
        self.runtime.run_or_spawn(name, async move {
            // The caller may have given up.
            let _ = send.send(work.await);
        });
        result
    }

    /// So many nodes, first those that are awake, and of these the ones that did not wake lately. Files are spread over
    /// them. Where there are fewer, each has a log. `among`: only these.
    fn logs_for(
        &self,
        inode: u64,
        count: usize,
        among: Option<&BTreeSet<u64>>,
        tried: &Tried,
    ) -> Vec<(Duration, pb::Node)> {
        let mut nodes: Vec<(Duration, pb::Node)> = self
            .nodes
            .all()
            .into_iter()
            .filter(|node| !tried.refused.contains(&node.id) && !self.nodes.is_lost(node.id))
            .filter(|node| among.is_none_or(|among| among.contains(&node.id)))
            // A host without volumes is no place for data.
            .filter(|node| !node.volumes.is_empty())
            // A node that is about to sleep refuses.
            .filter(|node| {
                let awake = self.awake_for(NodeId::new(node.id));
                awake.is_asleep() || awake.serves_for(LEAST_AWAKE_MS)
            })
            .filter_map(|node| Some((self.wakes_in(node.id)?, node)))
            .collect();
        let order = |node: u64| (self.nodes.is_late(node), self.woke_lately(node), ebb_layout::hash(&[inode, node]));
        nodes.sort_by_key(|(wait, node)| (*wait, order(node.id)));
        nodes.truncate(count);
        nodes
    }

    async fn log_always_on(&self, call: LogCall) -> Result<()> {
        self.session.masters.call_with(&call.message, call.payload, WRITE_DEADLINE).await.map(drop)
    }

    async fn log_on(self: &Arc<Self>, node: &pb::Node, call: LogCall, pass_on: bool) -> Logged {
        let LogCall { mut message, payload } = call;
        message.pass_on = pass_on;
        if !pass_on {
            message.lacks.clear();
        }
        match self.ask_log(node, &message, payload).await {
            Err(error) => Logged { here: Some(error), ..Logged::default() },
            Ok(_) if !pass_on => Logged::default(),
            Ok(reply) => {
                let refused = convert::failure(reply.failure).err();
                let passed = if reply.passed_on { refused } else { Some(err!(Unsupported, "it passes nothing on")) };
                // The always-on node refuses the holder itself as well for these.
                let is_its_own = |error: &Error| is_full(error) || error.kind() == ErrorKind::StaleEpoch;
                let cannot_pass = passed.as_ref().is_some_and(|error| !is_its_own(error));
                Logged { here: None, always_on: passed, cannot_pass }
            }
        }
    }

    async fn ask_log(
        self: &Arc<Self>,
        node: &pb::Node,
        message: &pb::LogWrites,
        payload: Vec<Bytes>,
    ) -> Result<pb::LogWritesReply> {
        let member = pb::Member { node: node.id, ..pb::Member::default() };
        let hop = Hop::new(member, node);
        members::ask_awake(self, &hop, message, payload, WRITE_DEADLINE).await.map(|answer| answer.message)
    }
}

fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::Overloaded
}
