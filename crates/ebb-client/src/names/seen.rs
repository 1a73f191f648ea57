//! Attributes as programs see them: answers of the master, with this client's newer size and times.
//!
//! The master leaves the size of a file to the client that holds its write lease, also when that client asks. If the lease goes
//! back while the answer is on its way, the answer has a size that the file may never have had for anybody: a kernel that
//! took it would read less than there is. Then the question is asked again, and the file's leases stay as they are meanwhile.

use std::sync::Arc;

use ebb_types::{Attr, Credentials, InodeId, Result, err};
use ebb_wire::pb::meta_op::{GetAttr, Op};

use crate::lease::hold::Lease;
use crate::names::answer::Answer;
use crate::names::kept::Changed;
use crate::names::known::{Asking, Trust};
use crate::shared::Shared;

impl Shared {
    /// Records an answer's attributes, keeps them if allowed, and adds this client's own size and times. `None`: they
    /// may never have been right.
    pub fn see_attr(&self, asking: &Asking<'_>, attr: &Attr, leased: &[InodeId]) -> Option<Attr> {
        let leased = leased.contains(&attr.inode);
        let Some(inode) = self.find(attr.inode) else {
            if leased {
                self.known.put_attr(asking, *attr);
            }
            return (asking.trust(attr) != Trust::Never).then_some(*attr);
        };
        let mut core = inode.core.lock();
        // Ordering: read under the file's lock. A request of the master to forget marks the attributes stale under
        // it.
        let trust = core.trust(asking, attr);
        core.note_answer(attr, leased, trust);
        if leased && trust != Trust::Never && core.hold.lease() != Lease::Write {
            self.known.put_attr(asking, *attr);
        }
        core.show(*attr, trust)
    }

    /// The same for callers that can wait.
    pub async fn settle_attr(
        self: &Arc<Self>,
        credentials: &Credentials,
        asking: &Asking<'_>,
        attr: Attr,
        leased: &[InodeId],
    ) -> Result<Attr> {
        match self.see_attr(asking, &attr, leased) {
            Some(seen) => Ok(seen),
            None => self.ask_again(credentials, attr.inode).await,
        }
    }

    /// A change that is answered with attributes, as programs see them. The caller has not passed the gate.
    pub async fn change_attr(self: &Arc<Self>, credentials: &Credentials, op: Op) -> Result<Attr> {
        let Changed { answer, seen, .. } = self.change_with(credentials, op, |_, _| ()).await?;
        Ok(self.settle_change(credentials, answer.attr()?, seen).await)
    }

    /// The same for a change that is made, whatever becomes of a further query. If the size is not found, the largest
    /// known one is returned: a kernel drops mapped pages beyond it.
    pub async fn settle_change(
        self: &Arc<Self>,
        credentials: &Credentials,
        mut answered: Attr,
        seen: Option<Attr>,
    ) -> Attr {
        if let Some(seen) = seen {
            return seen;
        }
        if let Ok(seen) = self.ask_again(credentials, answered.inode).await {
            return seen;
        }
        if let Some(inode) = self.find(answered.inode) {
            answered.size = answered.size.max(inode.core.lock().size);
        }
        answered
    }

    /// Asks again for attributes that may never have been right. It passes the gate, so that no lease is taken or
    /// given back meanwhile. The caller must not have passed it.
    pub async fn ask_again(self: &Arc<Self>, credentials: &Credentials, id: InodeId) -> Result<Attr> {
        let inode = self.inode(id);
        let started = self.runtime.now();
        loop {
            // Ordering: before the gate, which a client that goes to rest must shut.
            self.serving().await?;
            let gate = inode.gate.read().await;
            if let Some(kept) = self.kept_attr(id) {
                return Ok(kept);
            }
            let asking = self.known.ask();
            let question = Op::GetAttr(GetAttr { inode: id.raw() });
            let reply = self.session.meta_kept(credentials, question, self.options.keep_names).await?;
            let answer = Answer::try_from(reply)?;
            let attr = answer.attr()?;
            if let Some(seen) = self.see_attr(&asking, &attr, &answer.leased) {
                return Ok(seen);
            }
            drop(gate);
            if self.runtime.now().since(started) > self.session.deadline() {
                return Err(err!(Timeout, "the size of {id} changed each time that it was asked for"));
            }
            if inode.core.lock().is_unrecovered(attr.epoch) {
                // A lease that was lost has to be recovered first, as for an open.
                self.enter(&inode, Lease::Read, None).await?;
            }
        }
    }
}
