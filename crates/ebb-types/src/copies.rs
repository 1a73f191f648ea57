//! How many members of a set have to take a write before it is acknowledged, and how many logs stand in for members that
//! sleep. Master and client count with the same rules (docs/protocol.md, Fewer members; docs/power.md, Stand-ins).

/// Unless a dataset says otherwise: nothing that fsync acknowledged is lost by any single failure.
const MIN_COPIES_DEFAULT: u32 = 2;

/// The smallest number of copies that a dataset's settings allow. `setting` is the recorded setting; 0: not set. The
/// result is at least one and at most the number of all copies.
#[must_use]
pub fn min_copies(setting: u32, replicas: u32) -> u32 {
    let most = replicas.max(1);
    if setting == 0 { MIN_COPIES_DEFAULT.min(most) } else { setting.min(most) }
}

/// The fewest logs that stand in for members that sleep: nothing acknowledged is lost by any single failure.
pub const LOG_COPIES_MIN: u32 = 2;

/// Number of logs that must have a synced write in place of members that sleep. `setting` is the recorded setting; 0: not
/// set. If a dataset requires more than two members for a write (`min_copies`, its recorded setting), it also gets as
/// many logs.
#[must_use]
pub fn log_copies(setting: u32, min_copies: u32) -> u32 {
    if setting == 0 { min_copies.max(LOG_COPIES_MIN) } else { setting.max(LOG_COPIES_MIN) }
}

/// Whether a single failure may lose acknowledged data although the dataset keeps several copies.
#[must_use]
pub fn may_lose_by_one_failure(setting: u32, replicas: u32) -> bool {
    replicas > 1 && min_copies(setting, replicas) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_unless_said_and_one_where_there_is_one() {
        assert_eq!([1, 2, 3, 6].map(|replicas| min_copies(0, replicas)), [1, 2, 2, 2]);
        assert_eq!([1, 2, 3, 9].map(|setting| min_copies(setting, 3)), [1, 2, 3, 3]);
        assert_eq!((min_copies(0, 0), min_copies(5, 0)), (1, 1));
        assert_eq!(
            [(0, 0), (0, 1), (0, 3), (4, 0), (2, 3), (1, 0)].map(|(set, min)| log_copies(set, min)),
            [2, 2, 3, 4, 2, 2]
        );
        assert!(may_lose_by_one_failure(1, 2) && !may_lose_by_one_failure(1, 1) && !may_lose_by_one_failure(0, 2));
    }
}
