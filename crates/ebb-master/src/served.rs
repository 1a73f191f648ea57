//! Bytes that programs were served, summed over all clients of this master process.
//!
//! The sum is in memory only. A client's counter continues across master processes and sessions. Each master process
//! counts from the client's last report to its predecessor, so no byte counts twice. Bytes that were reported to a
//! process, and not fetched by the power manager before the process died, are not counted.

use std::collections::BTreeMap;

use ebb_wire::pb;

/// Maximum number of clients in the table. A forgotten client that returns counts from its own last report, as after a
/// change of the master process.
const CLIENTS_MAX: usize = 8192;

/// Sum of served bytes, with the state that keeps it exact.
#[derive(Debug, Default)]
pub struct Served {
    bytes: u64,
    /// Clients by boot id.
    clients: BTreeMap<u64, Counted>,
    /// Number of reports so far.
    turn: u64,
}

/// Part of the sum that came from one client.
#[derive(Debug)]
struct Counted {
    /// Highest count heard.
    bytes: u64,
    /// Turn of its last report.
    turn: u64,
}
impl Served {
    /// Records a client's report of the bytes served since its start. Late and repeated reports change nothing.
    pub fn on_report(&mut self, report: &pb::Served) {
        self.turn += 1;
        if !self.clients.contains_key(&report.boot) && self.clients.len() >= CLIENTS_MAX {
            let oldest = self.clients.iter().min_by_key(|(_, client)| client.turn).map(|(boot, _)| *boot);
            oldest.map(|boot| self.clients.remove(&boot));
        }
        let client = self.clients.entry(report.boot).or_insert(Counted { bytes: report.told_bytes, turn: 0 });
        client.turn = self.turn;
        self.bytes = self.bytes.saturating_add(report.bytes.saturating_sub(client.bytes));
        client.bytes = report.bytes.max(client.bytes);
    }

    /// Bytes served by all clients since this master process started.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(boot: u64, told_bytes: u64, bytes: u64) -> pb::Served {
        pb::Served { boot, bytes, told_bytes }
    }

    #[test]
    fn every_byte_counts_once_whatever_is_lost_late_or_repeated() {
        let mut served = Served::default();
        served.on_report(&report(1, 0, 100));
        served.on_report(&report(1, 0, 100));
        assert_eq!(served.bytes(), 100);
        // The report of 150 was lost on its way; the next one includes its bytes.
        served.on_report(&report(1, 150, 170));
        served.on_report(&report(1, 100, 150));
        assert_eq!(served.bytes(), 170);
        served.on_report(&report(2, 0, 5));
        assert_eq!(served.bytes(), 175);
        // Another master process does not count again what the first one may have counted.
        let mut next = Served::default();
        next.on_report(&report(1, 170, 180));
        next.on_report(&report(2, 5, 5));
        assert_eq!(next.bytes(), 10);
    }

    #[test]
    fn memory_is_bounded_and_a_forgotten_client_is_not_counted_twice() {
        let mut served = Served::default();
        for boot in 1..=CLIENTS_MAX as u64 + 1 {
            served.on_report(&report(boot, 0, 1));
        }
        assert_eq!(served.clients.len(), CLIENTS_MAX);
        assert!(!served.clients.contains_key(&1));
        served.on_report(&report(1, 1, 3));
        assert_eq!(served.bytes(), CLIENTS_MAX as u64 + 3);
    }
}
