//! The reconciler's loop: it asks the choosers for steps in the order of priorities, and hands each step to the
//! executor.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Moment, SeededBug};

use super::{extras, guests, layout, repair};
use crate::shared::Shared;

/// Interval at which waiting sets (for a lease, for room, for a node) are examined again.
const PAUSE: Duration = Duration::from_secs(1);
/// Time for which changes are gathered, so that one round examines them.
const GATHER: Duration = Duration::from_millis(20);
/// Pause after a guest's move started, because there may be time for more.
const SOON: Duration = Duration::from_millis(200);

/// Next round of each chooser.
struct Times {
    mend: Moment,
    guests: Moment,
    extras: Moment,
}

/// Brings every set towards its wanted state in small steps. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let begun = shared.runtime.now();
    let mut times = Times { mend: begun, guests: begun, extras: begun.after(PAUSE) };
    let mut mend = repair::look::Round::default();
    let mut away = guests::look::Round::default();
    let mut moves = layout::Round::default();
    let mut spare = extras::look::Round::new(begun);
    while !shared.is_stopped() {
        if times.mend <= shared.runtime.now() {
            mend.look_around(&shared).await;
            times.mend = shared.runtime.now().after(PAUSE);
        }
        if times.guests <= shared.runtime.now() {
            // The replicas that a home has from before its sleep are known only when it has reported.
            let may_go_home = shared.is_safe_start() && !shared.runtime.has_bug(SeededBug::StaysAway);
            let begun = if may_go_home { away.look_around(&shared).await } else { 0 };
            times.guests = shared.runtime.now().after(if begun > 0 { SOON } else { PAUSE });
        }
        let misplaced = shared.soft().work.misplaced.take();
        if let Some(misplaced) = misplaced {
            let begun = moves.look_around(&shared, &misplaced).await;
            shared.soft().work.moved = Some(begun);
        }
        if times.extras <= shared.runtime.now() {
            spare.look_around(&shared).await;
            times.extras = shared.runtime.now().after(PAUSE);
        }
        let next = times.mend.min(times.guests).min(times.extras);
        tokio::select! {
            biased;
            () = shared.state.wake.repair.notified() => {
                shared.runtime.sleep(GATHER).await;
                times.mend = shared.runtime.now();
            }
            () = shared.runtime.sleep(next.since(shared.runtime.now())) => {}
        }
    }
}
