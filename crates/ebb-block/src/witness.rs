//! Reports to the master that a client of this host has ended, so that no other client waits for its session to
//! expire.
//!
//! A connection that breaks proves nothing: a client may be cut off, frozen or slow, and still believe in its leases.
//! Only the kernel that ran a process knows for certain that it has ended, and a block server of the same host can
//! ask that kernel. A client names its session on its socket (`ShortCircuitSession`). When the socket ends, the
//! server waits for the process, and once it is gone, reports to the master.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::LocalPeer;
use ebb_types::ErrorKind;
use ebb_wire::pb;
use parking_lot::Mutex;

use crate::node::Node;
use crate::register::Masters;

/// Sessions remembered of one connection: a client has one at a time.
const SESSIONS_MAX: usize = 4;
/// How long a process may take to end after its socket: a session that is older than this has expired.
const PATIENCE: Duration = Duration::from_secs(20);
/// For one call to a master, and between two.
const DEADLINE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(200);

/// The sessions of the process at the other end of a connection.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<VecDeque<u64>>);

impl Sessions {
    /// The process says that it has this session: the ones that it said first are over.
    pub(crate) fn add(&self, session: u64) {
        let mut sessions = self.0.lock();
        if !sessions.contains(&session) {
            sessions.push_back(session);
        }
        if sessions.len() > SESSIONS_MAX {
            sessions.pop_front();
        }
    }
}

/// A connection has ended. If its process ends too, the master hears that its sessions are over. It does no harm to say
/// so late or twice: a session's number is never given again.
pub(crate) async fn report_end(node: &Arc<Node>, sessions: &Sessions, peer: &LocalPeer) {
    let sessions = std::mem::take(&mut *sessions.0.lock());
    if sessions.is_empty() {
        return;
    }
    let ended = node.runtime.timeout(PATIENCE, "the end of a client's process", async {
        peer.ended().await;
        Ok(())
    });
    if ended.await.is_err() {
        return;
    }
    let mut masters = Masters::new(node.clone());
    for session in sessions {
        let telling = async {
            while let Err(error) = masters.call(&pb::SessionEnded { session }, DEADLINE).await {
                if error.kind() == ErrorKind::Invalid {
                    tracing::warn!(session, %error, "a client said that it was of this host");
                    break;
                }
                tracing::debug!(session, %error, "telling that a client of this host has ended");
                node.runtime.sleep(PAUSE).await;
            }
            Ok(())
        };
        // If no master can be reached, the session expires by itself.
        let _ = node.runtime.timeout(PATIENCE, "a master that hears of a client's end", telling).await;
    }
}
