//! Bytes that programs were served, summed over all clients that this master process hears of.
//!
//! In memory alone. A client's counter goes on from one master process, and from one session, to the next: each process
//! counts from what the client had told before, so that two never count the same bytes. What a master process was told
//! and the power manager did not fetch before it died is counted by nobody.

use std::collections::BTreeMap;

use ebb_wire::pb;

/// Clients that are remembered. Who is forgotten and comes again counts on from what it told before, as with a new master.
const CLIENTS_MAX: usize = 8192;

/// See the module.
#[derive(Debug, Default)]
pub struct Served {
    bytes: u64,
    /// By each client's boot: the highest count heard, and the turn in which it was heard.
    clients: BTreeMap<u64, (u64, u64)>,
    turn: u64,
}

impl Served {
    /// A client says what it has served since its start. Late and repeated messages change nothing.
    pub fn on_told(&mut self, told: &pb::Served) {
        self.turn += 1;
        if !self.clients.contains_key(&told.boot) && self.clients.len() >= CLIENTS_MAX {
            let oldest = self.clients.iter().min_by_key(|(_, (_, turn))| *turn).map(|(boot, _)| *boot);
            oldest.map(|boot| self.clients.remove(&boot));
        }
        let (counted, turn) = self.clients.entry(told.boot).or_insert((told.told_bytes, 0));
        *turn = self.turn;
        self.bytes = self.bytes.saturating_add(told.bytes.saturating_sub(*counted));
        *counted = told.bytes.max(*counted);
    }

    /// By all clients, since this master process began.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(boot: u64, told_bytes: u64, bytes: u64) -> pb::Served {
        pb::Served { boot, bytes, told_bytes }
    }

    #[test]
    fn every_byte_counts_once_whatever_is_lost_late_or_repeated() {
        let mut served = Served::default();
        served.on_told(&told(1, 0, 100));
        served.on_told(&told(1, 0, 100));
        assert_eq!(served.bytes(), 100);
        // The message with 150 was lost on its way; the next one brings what it said.
        served.on_told(&told(1, 150, 170));
        served.on_told(&told(1, 100, 150));
        assert_eq!(served.bytes(), 170);
        served.on_told(&told(2, 0, 5));
        assert_eq!(served.bytes(), 175);
        // Another master process: what the first one may have counted is not counted again.
        let mut next = Served::default();
        next.on_told(&told(1, 170, 180));
        next.on_told(&told(2, 5, 5));
        assert_eq!(next.bytes(), 10);
    }

    #[test]
    fn memory_is_bounded_and_who_was_forgotten_is_not_counted_twice() {
        let mut served = Served::default();
        for boot in 1..=CLIENTS_MAX as u64 + 1 {
            served.on_told(&told(boot, 0, 1));
        }
        assert_eq!(served.clients.len(), CLIENTS_MAX);
        assert!(!served.clients.contains_key(&1));
        served.on_told(&told(1, 1, 3));
        assert_eq!(served.bytes(), CLIENTS_MAX as u64 + 3);
    }
}
