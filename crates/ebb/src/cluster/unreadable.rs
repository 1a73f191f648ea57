//! Metablocks that cannot be read, by cause: the same words, verdicts and JSON in `cluster status` and `fsck`. Pure.

use ebb_cli::output::counted;
use ebb_cli::verdict::Verdict;
use ebb_wire::pb;
use serde_json::json;

/// Numbers of metablocks that cannot be read now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unreadable {
    /// No replica is left.
    pub missing: u64,
    /// Every replica that is left is damaged.
    pub damaged: u64,
    /// None of their nodes answers, or only some whose replicas are no good.
    pub by_failure: u64,
    /// A power plan keeps off a node with a replica that may serve.
    pub by_plan: u64,
}

impl Unreadable {
    /// As far as the master knows without asking the nodes. Replicas that are known to be missing count as damaged.
    pub const fn of_status(reply: &pb::ClusterStatusReply) -> Self {
        Self {
            missing: 0,
            damaged: reply.without_good_copy,
            by_failure: reply.out_of_reach_by_failure,
            by_plan: reply.out_of_reach_by_plan,
        }
    }

    /// As found on the nodes.
    pub const fn of_fsck(reply: &pb::FsckReply) -> Self {
        Self { missing: reply.missing, damaged: reply.damaged, by_failure: reply.unreachable, by_plan: reply.asleep }
    }

    /// The verdict on a cluster; `is_healthy`: nothing else is wrong.
    pub fn verdict(&self, is_healthy: bool) -> Verdict {
        let causes = [
            (self.missing, Verdict::Missing),
            (self.damaged, Verdict::Damaged),
            (self.by_failure, Verdict::OutOfReachByFailure),
            (self.by_plan, Verdict::OutOfReachByPlan),
        ];
        causes.into_iter().find(|(count, _)| *count > 0).map_or_else(|| is_healthy.into(), |(_, verdict)| verdict)
    }

    /// A sentence with the next step for each cause.
    pub fn lines(&self) -> Vec<String> {
        let causes = [
            (
                self.missing,
                "missing: no replica is left on any node; `ebb fsck --repair` asks what to do about each file",
            ),
            (
                self.damaged,
                "without a good copy: every replica that is left is damaged; `ebb fsck` names the files, and with \
                 --repair asks what to do about each",
            ),
            (
                self.by_failure,
                "out of reach by failure: no node with a good copy answers; `ebb node list` shows the nodes that are \
                 missed, `ebb cluster up` starts those whose processes have died",
            ),
            (
                self.by_plan,
                "out of reach by plan: the power plan keeps their nodes off; `ebb power status` shows until when, \
                 `ebb power set --fraction 1` turns all of them on",
            ),
        ];
        let shown = causes.into_iter().filter(|(count, _)| *count > 0);
        shown.map(|(count, text)| format!("{} {text}", counted(count, "metablock"))).collect()
    }

    /// The counts under their names.
    pub fn to_json(self) -> serde_json::Value {
        json!({
            "missing": self.missing, "damaged": self.damaged, "out_of_reach_by_failure": self.by_failure,
            "out_of_reach_by_plan": self.by_plan,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_cause_is_the_verdict_and_each_has_a_sentence() {
        let mut found = Unreadable::default();
        assert_eq!((found.verdict(true), found.verdict(false)), (Verdict::Good, Verdict::Unhealthy));
        assert!(found.lines().is_empty());
        found.by_plan = 338;
        assert_eq!(found.verdict(false), Verdict::OutOfReachByPlan);
        found.by_failure = 1;
        assert_eq!(found.verdict(true).code(), 5);
        (found.damaged, found.missing) = (2, 3);
        assert_eq!(found.verdict(true), Verdict::Missing);
        let lines = found.lines();
        assert!(
            lines[0].starts_with("3 metablocks missing") && lines[3].starts_with("338 metablocks out of reach by plan")
        );
        assert_eq!(found.to_json()["damaged"], 2);
    }
}
