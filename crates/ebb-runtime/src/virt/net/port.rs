//! The port by which a host receives: one segment at a time, in the order in which they reach it.
//!
//! When a segment is sent, it is known when it will reach the port, and how long it takes to pass. So it reserves that
//! time. One that is sent later over a faster link passes before it, in the time that is left.
//!
//! A port that is faster than its peers' gets the segments of several peers at once. Some microseconds between them would leave
//! gaps in which no whole segment fits, and the port would never be full. There a segment passes in parts, as packets do.

use std::collections::BTreeMap;

/// Times at which a port is busy, by their beginnings, in nanoseconds. They do not touch.
#[derive(Debug, Default)]
pub(super) struct Port(BTreeMap<u64, u64>);

impl Port {
    /// Reserves the first `flow_ns` that are free from `from_ns` on; their end. Reservations that ended before `now_ns`
    /// are forgotten.
    pub fn reserve(&mut self, now_ns: u64, from_ns: u64, flow_ns: u64) -> u64 {
        self.forget_before(now_ns);
        let mut start = from_ns;
        if let Some((_, end)) = self.0.range(..=from_ns).next_back() {
            start = start.max(*end);
        }
        while let Some((begin, end)) = self.0.range(start..).next().filter(|(begin, _)| **begin < start + flow_ns) {
            debug_assert!(begin < end);
            start = *end;
        }
        let end = start + flow_ns;
        if flow_ns > 0 {
            self.insert(start, end);
        }
        end
    }

    /// Reserves as much as `flow_ns` of what is free from `from_ns` on, wherever it is; the end of the last part.
    pub fn reserve_parts(&mut self, now_ns: u64, from_ns: u64, flow_ns: u64) -> u64 {
        self.forget_before(now_ns);
        let (mut at, mut left) = (from_ns, flow_ns);
        loop {
            if let Some((_, end)) = self.0.range(..=at).next_back() {
                at = at.max(*end);
            }
            let free = self.0.range(at..).next().map_or(u64::MAX, |(begin, _)| begin - at);
            let part = left.min(free);
            if part > 0 {
                self.insert(at, at + part);
                at += part;
                left -= part;
            }
            if left == 0 {
                return at;
            }
        }
    }

    fn forget_before(&mut self, now_ns: u64) {
        while let Some(first) = self.0.first_entry().filter(|first| *first.get() <= now_ns) {
            first.remove();
        }
    }

    /// One reservation more, made one with those that it touches.
    fn insert(&mut self, start: u64, end: u64) {
        let end = self.0.remove(&end).unwrap_or(end);
        match self.0.range_mut(..start).next_back().filter(|(_, before)| **before == start) {
            Some((_, before)) => *before = end,
            None => {
                self.0.insert(start, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Port;

    #[test]
    fn segments_pass_one_by_one() {
        let mut port = Port::default();
        assert_eq!(port.reserve(0, 10, 5), 15);
        assert_eq!(port.reserve(0, 10, 5), 20);
        assert_eq!(port.reserve(0, 12, 0), 20);
        assert_eq!(port.0.len(), 1, "they touch");
        assert_eq!(port.reserve(20, 20, 5), 25);
        assert_eq!(port.0.len(), 1, "the past is forgotten");
    }

    #[test]
    fn a_packet_that_arrives_earlier_passes_first() {
        let mut port = Port::default();
        assert_eq!(port.reserve(0, 200, 10), 210);
        assert_eq!(port.reserve(1, 5, 10), 15);
        assert_eq!(port.reserve(2, 195, 10), 220, "no room before the first one");
        assert_eq!(port.reserve(3, 190, 10), 200, "as much room as it needs");
        assert_eq!(port.0.iter().map(|(begin, end)| (*begin, *end)).collect::<Vec<_>>(), [(5, 15), (190, 220)]);
    }

    #[test]
    fn in_parts_a_segment_passes_in_the_gaps_that_others_leave() {
        let mut port = Port::default();
        assert_eq!((port.reserve_parts(0, 10, 10), port.reserve_parts(0, 25, 10)), (20, 35));
        assert_eq!(port.reserve_parts(0, 12, 10), 40, "five between the two, five behind them");
        assert_eq!(port.reserve_parts(0, 0, 10), 10, "before all");
        assert_eq!(port.reserve_parts(0, 15, 0), 40, "without a byte it comes behind what it meets");
        assert_eq!(port.0.iter().map(|(begin, end)| (*begin, *end)).collect::<Vec<_>>(), [(0, 40)]);
    }
}
