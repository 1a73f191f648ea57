//! Requests that a signal may end early: waits for locks.
//!
//! Other requests are not interrupted. They have a deadline, and programs do not expect `EINTR`
//! from the calls of a file system.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of remembered interrupts that came before their request. Different threads may
/// read the two.
const EARLY_MAX: usize = 256;

/// Requests that wait and can be interrupted.
#[derive(Debug, Default)]
pub struct Interrupts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    early: VecDeque<u64>,
    closed: bool,
}

impl Interrupts {
    /// Makes request `unique` interruptible. An interrupt completes the receiver.
    pub fn enter(&self, unique: u64) -> oneshot::Receiver<()> {
        let (send, receive) = oneshot::channel();
        let mut state = self.state.lock();
        let early = state.early.iter().position(|other| *other == unique);
        match early {
            Some(at) => {
                state.early.remove(at);
                let _ = send.send(());
            }
            // The drop of the sender completes the receiver like an interrupt.
            None if state.closed => {}
            None => {
                state.waiting.insert(unique, send);
            }
        }
        receive
    }

    /// Ends the registration of request `unique`, which is answered.
    pub fn leave(&self, unique: u64) {
        self.state.lock().waiting.remove(&unique);
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Interrupts request `unique`, whose caller got a signal.
    pub fn interrupt(&self, unique: u64) {
        let mut state = self.state.lock();
        match state.waiting.remove(&unique) {
            // A failed send means that the request has just been answered.
            Some(waiter) => drop(waiter.send(())),
            None => {
                state.early.push_back(unique);
                if state.early.len() > EARLY_MAX {
                    state.early.pop_front();
                }
            }
        }
    }

    /// Wakes all waiting requests at the end of the mount. No request waits after that.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_reaches_its_request_in_either_order() {
        let interrupts = Interrupts::default();
        let mut first = interrupts.enter(1);
        assert!(first.try_recv().is_err());
        interrupts.interrupt(1);
        assert_eq!(first.try_recv(), Ok(()));

        interrupts.interrupt(2);
        assert_eq!(interrupts.enter(2).try_recv(), Ok(()));
        assert_eq!(interrupts.waiting(), 0);
    }

    #[test]
    fn stray_interrupts_take_bounded_room() {
        let interrupts = Interrupts::default();
        for unique in 0..10_000 {
            interrupts.interrupt(unique);
        }
        assert_eq!(interrupts.state.lock().early.len(), EARLY_MAX);
    }

    #[test]
    fn closing_wakes_all_and_admits_none() {
        let interrupts = Interrupts::default();
        let mut waiting = interrupts.enter(1);
        interrupts.close();
        assert_eq!(waiting.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(interrupts.enter(2).try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}
