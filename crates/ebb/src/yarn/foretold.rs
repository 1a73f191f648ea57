//! Absences that the power manager expects, host by host.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ebb_cli::{Context, admin};
use ebb_types::Result;
use ebb_wire::pb;

use super::share::Expected;
use crate::power::status::host_of;

/// Longest time for an answer: rooms are looked after once a second.
const ASK: Duration = Duration::from_secs(1);
/// An absence whose time has come counts for so long still: the plan for it is on its way.
const LATE: Duration = Duration::from_secs(10);

/// What was told last.
#[derive(Debug, Default)]
pub struct Foretold {
    absences: BTreeMap<String, Absence>,
}

#[derive(Clone, Copy, Debug)]
struct Absence {
    leaves: Instant,
    lasts: Option<Duration>,
}

impl Foretold {
    /// Asks the manager. While none answers, what was told before counts.
    pub async fn refresh(&mut self, context: &Context) {
        if let Ok(status) = ask(context).await {
            self.accept_answer(&status, Instant::now());
        }
    }

    /// The expected absence of a host.
    pub fn of(&self, host: &str, now: Instant) -> Option<Expected> {
        let absence = self.absences.get(host).filter(|absence| now < absence.leaves + LATE)?;
        Some(Expected { left: absence.leaves.saturating_duration_since(now), absent: absence.lasts })
    }

    /// Takes a new answer, and keeps what has just come to pass: the answer has it no more.
    fn accept_answer(&mut self, status: &pb::PowerStatusReply, now: Instant) {
        self.absences.retain(|_, absence| absence.leaves <= now && now < absence.leaves + LATE);
        let ms = Duration::from_millis;
        let told = |absence: &pb::ExpectedAbsence| {
            let leaves = now + ms(absence.leaves_in_ms);
            (host_of(status, absence.node), Absence { leaves, lasts: absence.lasts_ms.map(ms) })
        };
        self.absences.extend(status.absences.iter().map(told));
    }
}

async fn ask(context: &Context) -> Result<pb::PowerStatusReply> {
    admin::power_manager(&context.cluster()?).await?.call(&pb::PowerStatus {}, ASK).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn status(leaves_in_ms: Option<u64>) -> pb::PowerStatusReply {
        let node = pb::PowerNode { id: 3, host: "h3".into(), ..Default::default() };
        let absence = |leaves_in_ms| pb::ExpectedAbsence { node: 3, leaves_in_ms, lasts_ms: Some(300_000) };
        pb::PowerStatusReply {
            nodes: vec![node],
            absences: leaves_in_ms.map(absence).into_iter().collect(),
            ..Default::default()
        }
    }

    #[test]
    fn an_absence_counts_until_its_plan_has_come_and_one_that_is_called_off_counts_no_more() {
        let (mut foretold, begin) = (Foretold::default(), Instant::now());
        let left = |foretold: &Foretold, after: u32| foretold.of("h3", begin + after * SECOND).map(|of| of.left);
        foretold.accept_answer(&status(Some(5_000)), begin);
        assert_eq!(left(&foretold, 2), Some(3 * SECOND), "no answer since");
        assert_eq!(foretold.of("h4", begin), None);
        foretold.accept_answer(&status(None), begin + 6 * SECOND);
        assert_eq!(left(&foretold, 7), Some(Duration::ZERO), "it has come to pass");
        assert_eq!(left(&foretold, 15), None);
        foretold.accept_answer(&status(Some(50_000)), begin);
        foretold.accept_answer(&status(None), begin + SECOND);
        assert_eq!(left(&foretold, 1), None, "called off");
    }
}
