//! Commands about hosts that join, and certificates that are withdrawn.

use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;

use super::Dice;

impl Dice<'_> {
    /// One of them.
    pub(super) fn trust(&mut self, now: i64) -> Change {
        let serial = vec![self.below(4) as u8];
        let host = format!("h{}", self.below(3));
        match self.below(3) {
            0 => {
                let until_ns = now.saturating_add(self.number(4) as i64);
                Change::Invite(pb::Invitation { serial, host, until_ns, ..Default::default() })
            }
            1 => Change::AdmitHost(pb::AdmitHost { serial, host, request: vec![self.below(2) as u8] }),
            _ => Change::Revoke(pb::Revocation { host, ..Default::default() }),
        }
    }
}
