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
mod stand_ins;
pub(crate) mod status;
pub(crate) mod step;
pub(crate) mod thaws;
pub(crate) mod wishes;

use std::sync::Arc;
use std::time::Duration;

use ebb_types::DatasetId;
use ebb_wire::pb;

use crate::shared::Shared;

/// Shortest and longest time between two rounds of one dataset.
const ROUND_MIN: Duration = Duration::from_secs(1);
const ROUND_MAX: Duration = Duration::from_secs(60);

/// Makes RAID sets of what is due. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        let mut next = Next::WhenDue;
        for (dataset, _) in encoding(&shared) {
            next = next.max(make_due(&shared, dataset).await);
        }
        status::forget_done(&shared);
        let began = shared.runtime.now();
        // Neither what an operator asks for nor a dataset with a shorter delay waits for a pause that began before it.
        while next == Next::WhenDue
            && shared.runtime.now() < began.after(pause(&shared))
            && !shared.soft().encoding.is_any_encode_asked()
        {
            shared.runtime.sleep(ROUND_MIN).await;
        }
        shared.runtime.sleep(ROUND_MIN).await;
    }
}

/// The datasets that encode, with their delays.
fn encoding(shared: &Shared) -> Vec<(DatasetId, Duration)> {
    let machine = shared.group.machine();
    let coded = |dataset: &pb::Dataset| Some((DatasetId::new(dataset.id), choose::code_of(dataset)?.1));
    machine.datasets().filter_map(coded).collect()
}

/// Time between two rounds, by the shortest delay.
fn pause(shared: &Shared) -> Duration {
    let pauses = encoding(shared).into_iter().map(|(_, delay)| (delay / 4).clamp(ROUND_MIN, ROUND_MAX));
    pauses.min().unwrap_or(ROUND_MAX)
}

/// When to look at a dataset again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// When something may have become due.
    WhenDue,
    /// As soon as an attempt has ended: more is due than may be encoded at a time.
    Soon,
}

/// Starts attempts for what is due of a dataset, as many as may run.
async fn make_due(shared: &Arc<Shared>, dataset: DatasetId) -> Next {
    if !shared.is_safe_start() {
        return Next::WhenDue;
    }
    if shared.soft().encoding.free_places(&shared.options) == 0 {
        return Next::Soon;
    }
    let Some(batch) = choose::choose(shared, dataset).await else { return Next::WhenDue };
    let batch = Arc::new(batch);
    let (mut begun, mut waits) = (0, None);
    for plan in &batch.plans.sets {
        if shared.soft().encoding.free_places(&shared.options) == 0 {
            break;
        }
        match attempt::begin_attempt(shared, &batch, plan.clone()).await {
            Ok(()) => begun += 1,
            Err(error) => {
                tracing::debug!(%dataset, %error, "a RAID set waits");
                waits.get_or_insert(error);
            }
        }
    }
    let why = waits
        .map(|error| error.detail().to_owned())
        .or_else(|| batch.plans.most_left().map(|reason| reason.to_string()));
    let waits = why.filter(|_| begun == 0);
    let mut soft = shared.soft();
    soft.encoding.note_waits(dataset, waits);
    // A node encodes one RAID set at a time.
    let is_rest_next = begun < batch.plans.sets.len() && soft.encoding.nodes().next().is_some();
    if is_rest_next { Next::Soon } else { Next::WhenDue }
}
