//! The loop: asks the choosers for steps, those of the highest priority first, and hands each to the executor.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Moment, Plant};

use super::{extras, guests, layout, repair};
use crate::shared::Shared;

/// How often sets that wait (for a lease, for room, for a node) are looked at again.
const PAUSE: Duration = Duration::from_secs(1);
/// Changes that turn up together are looked at together.
const GATHER: Duration = Duration::from_millis(20);
/// After a guest began to move there may be time for more.
const SOON: Duration = Duration::from_millis(200);

/// When each chooser looks again.
struct Times {
    mend: Moment,
    guests: Moment,
    extras: Moment,
}

/// Brings every set towards what it should be, one small step after the other. Runs as long as the master.
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
            // What homes have from before they were switched off is known when they have reported.
            let may_go_home = shared.is_safe_start() && !shared.runtime.has_plant(Plant::StaysAway);
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
