//! Files that one worker has to itself: made, filled, renamed, linked, replaced, removed. No other client touches them.
//! So their worker knows whether each is there, and an answer to the contrary is wrong.

use ebb_runtime::virt::Dice;
use ebb_types::{Error, ErrorKind, Result};

use crate::files::directory_of;
use crate::history::Whereabouts;
use crate::workload::Worker;

/// Files of a worker at a time.
const OWN_MAX: usize = 6;

/// Cells of an own file.
const CELLS: u64 = 300;

/// One worker's files.
#[derive(Debug, Default)]
pub struct OwnFiles {
    /// Files whose names are certain.
    files: Vec<usize>,
}

impl OwnFiles {
    /// Does something to one of them.
    pub async fn step(&mut self, worker: &Worker, dice: &mut Dice) {
        if self.files.is_empty() || self.files.len() < OWN_MAX && dice.chance(0.3) {
            return self.make(worker, dice).await;
        }
        let at = dice.index(self.files.len());
        let file = self.files[at];
        let still_certain = match dice.below(14) {
            0..3 => rename(worker, file, dice).await,
            3..5 => unlink(worker, file).await,
            5..7 => move_by_link(worker, file, dice).await,
            7..9 if self.files.len() > 1 => {
                let other = self.files.swap_remove((at + 1) % self.files.len());
                let done = replace(worker, file, other, dice).await;
                if done == Replaced::Not {
                    self.files.push(other);
                }
                self.files.retain(|one| *one != file || done != Replaced::Perhaps);
                return;
            }
            9..11 => {
                let _ = worker.read_cells(file, 0, CELLS, false).await;
                true
            }
            _ => {
                fill_some(worker, file, dice).await;
                true
            }
        };
        if !still_certain {
            self.files.swap_remove(at);
        }
    }

    async fn make(&mut self, worker: &Worker, dice: &mut Dice) {
        let name = some_name(worker, dice);
        let file = worker.board.history.lock().begin_own(&name);
        let made = worker.files.make(&name).await;
        if let Ok(inode) = made {
            worker.board.history.lock().settle_own(file, Whereabouts::At(name), Some(inode));
            self.files.push(file);
            fill_some(worker, file, dice).await;
        }
    }
}

async fn fill_some(worker: &Worker, file: usize, dice: &mut Dice) {
    let count = dice.between(1, 40);
    worker.write_cells(file, dice.below(CELLS - count), count).await;
    if dice.coin() {
        worker.fsync(file).await;
    }
}

/// A name that no other file has or will have: in the worker's directory, or beside the shared files.
fn some_name(worker: &Worker, dice: &mut Dice) -> String {
    let name = format!("o{:x}", dice.bits());
    if dice.coin() { name } else { format!("{}/{name}", directory_of(worker.client)) }
}

/// Renames; false if it is not certain any more where the file is.
async fn rename(worker: &Worker, file: usize, dice: &mut Dice) -> bool {
    let target = some_name(worker, dice);
    let Some(source) = worker.board.history.lock().own_name(file) else { return false };
    worker.board.history.lock().settle_own(file, Whereabouts::Either(source.clone(), target.clone()), None);
    let renamed = worker.files.rename(&source, &target).await;
    complain(worker, &format!("rename of {source} to {target}"), &renamed);
    settle_after(worker, file, &renamed, source, target)
}

/// Gives a file a second name and takes the first one away; false if it is not certain any more which it has.
async fn move_by_link(worker: &Worker, file: usize, dice: &mut Dice) -> bool {
    let target = some_name(worker, dice);
    let Some(source) = worker.board.history.lock().own_name(file) else { return false };
    let settle = |place: Whereabouts| worker.board.history.lock().settle_own(file, place, None);
    settle(Whereabouts::Both(source.clone(), target.clone()));
    let linked = worker.files.link(&source, &target).await;
    complain(worker, &format!("link of {source} to {target}"), &linked);
    if linked.is_err() {
        return settle_after(worker, file, &linked, source, target);
    }
    settle(Whereabouts::Both(target.clone(), source.clone()));
    let removed = worker.files.unlink(&source).await;
    complain(worker, &format!("removal of {source}, which {target} is as well"), &removed);
    settle_after(worker, file, &removed, source, target)
}

/// Whether a file has taken another one's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Replaced {
    Certainly,
    /// Refused: both are where they were.
    Not,
    Perhaps,
}

/// Renames a file over another one that is open, and uses that one for a while: its bytes last as long as it is open.
async fn replace(worker: &Worker, file: usize, other: usize, dice: &mut Dice) -> Replaced {
    let names = {
        let history = worker.board.history.lock();
        history.own_name(file).zip(history.own_name(other))
    };
    let Some((source, target)) = names else { return Replaced::Perhaps };
    let kept = format!("~{:x}", dice.bits());
    let settle = |file: usize, place: Whereabouts| worker.board.history.lock().settle_own(file, place, None);
    settle(file, Whereabouts::Either(source.clone(), target.clone()));
    settle(other, Whereabouts::Displaced(target.clone()));
    let replaced = worker.files.replace(&source, &target, &kept).await;
    complain(worker, &format!("rename of {source} over {target}"), &replaced);
    match replaced {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::CrossDevice => {
            settle(file, Whereabouts::At(source));
            settle(other, Whereabouts::At(target));
            return Replaced::Not;
        }
        Err(_) => return Replaced::Perhaps,
    }
    settle(file, Whereabouts::At(target));
    settle(other, Whereabouts::Open(kept.clone()));
    for _ in 0..dice.below(3) {
        fill_some(worker, other, dice).await;
        let _ = worker.read_cells(other, 0, CELLS, false).await;
    }
    let _ = worker.files.close(&kept).await;
    Replaced::Certainly
}

/// Records where a file is after an attempt to move it; false if that is not certain.
fn settle_after(worker: &Worker, file: usize, done: &Result<()>, source: String, target: String) -> bool {
    let place = match done {
        Ok(()) => target,
        // Between datasets it is refused, and nothing is done.
        Err(error) if error.kind() == ErrorKind::CrossDevice => source,
        Err(_) => return false,
    };
    worker.board.history.lock().settle_own(file, Whereabouts::At(place), None);
    true
}

async fn unlink(worker: &Worker, file: usize) -> bool {
    let Some(name) = worker.board.history.lock().own_name(file) else { return false };
    worker.board.history.lock().settle_own(file, Whereabouts::Perhaps(name.clone()), None);
    let removed = worker.files.unlink(&name).await;
    complain(worker, &format!("removal of {name}"), &removed);
    if removed.is_ok() {
        worker.board.history.lock().settle_own(file, Whereabouts::Gone(name), None);
    }
    false
}

/// A call that is repeated because its answer was lost is answered, not done twice: that a name is there already, or
/// not there any more, cannot be the answer.
fn complain(worker: &Worker, action: &str, result: &Result<()>) {
    let is_wrong = |error: &&Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists);
    if let Some(error) = result.as_ref().err().filter(is_wrong) {
        worker.board.history.lock().complain("names", format!("{action} by client {}: {error}", worker.client));
    }
}
