//! RAID sets: cold metablocks get check metablocks.
//!
//! ```text
//!  [`choose`] ──► [`attempt`]: ids, encode, freeze the rows, turns of the files, Seal
//!     │ what is due, where slots stay and rows go (`ebb_layout::raid`)      └─► refused: the rows are strays
//!     └─ once a round, over a snapshot
//! ```
//! [`keep`] then freezes what stays, lets the other copies leave, and makes lost members again.
//!
//! An attempt leaves nothing behind that anybody counts on until its Seal is in the log. [`attempts`] has what runs.

pub(crate) mod attempt;
pub(crate) mod attempts;
pub(crate) mod choose;
pub(crate) mod keep;
pub(crate) mod old;
pub(crate) mod status;
pub(crate) mod step;
pub(crate) mod thaws;
pub(crate) mod wishes;

use std::sync::Arc;
use std::time::Duration;

use ebb_types::DatasetId;

use crate::shared::Shared;

/// Shortest and longest time between two rounds of one dataset.
const ROUND_MIN: Duration = Duration::from_secs(1);
const ROUND_MAX: Duration = Duration::from_secs(60);

/// Makes RAID sets of what is due. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        let datasets: Vec<(DatasetId, Duration)> = {
            let machine = shared.group.machine();
            machine
                .datasets()
                .filter_map(|dataset| Some((DatasetId::new(dataset.id), choose::code_of(dataset)?.1)))
                .collect()
        };
        let mut pause = ROUND_MAX;
        for (dataset, delay) in datasets {
            pause = pause.min((delay / 4).clamp(ROUND_MIN, ROUND_MAX));
            make_due(&shared, dataset).await;
        }
        status::forget_done(&shared);
        let until = shared.runtime.now().after(pause);
        // What an operator asks for does not wait for the next round.
        while shared.runtime.now() < until && !shared.soft().encoding.is_any_encode_asked() {
            shared.runtime.sleep(ROUND_MIN).await;
        }
        shared.runtime.sleep(ROUND_MIN).await;
    }
}

/// Starts attempts for what is due of a dataset, as many as may run.
async fn make_due(shared: &Arc<Shared>, dataset: DatasetId) {
    if !shared.is_safe_start() || shared.soft().encoding.free_places(&shared.options) == 0 {
        return;
    }
    let Some(batch) = choose::choose(shared, dataset).await else { return };
    let batch = Arc::new(batch);
    let (mut begun, mut waits) = (false, None);
    for plan in &batch.plans.sets {
        if shared.soft().encoding.free_places(&shared.options) == 0 {
            break;
        }
        match attempt::begin_attempt(shared, &batch, plan.clone()).await {
            Ok(()) => begun = true,
            Err(error) => {
                tracing::debug!(%dataset, %error, "a RAID set waits");
                waits.get_or_insert(error);
            }
        }
    }
    let why = waits
        .map(|error| error.detail().to_owned())
        .or_else(|| batch.plans.most_left().map(|reason| reason.to_string()));
    let waits = why.filter(|_| !begun);
    shared.soft().encoding.note_waits(dataset, waits);
}
