//! How many members of a set have to take a write before it is acknowledged. Master and client count with the same rule
//! (docs/protocol.md, Fewer members).

/// Unless a dataset says otherwise: nothing that fsync acknowledged is lost by any single failure.
const MIN_COPIES_DEFAULT: u32 = 2;

/// The smallest number of copies that a dataset's settings allow. `setting` is the recorded setting; 0: not set. The
/// result is at least one and at most the number of all copies.
#[must_use]
pub fn min_copies(setting: u32, replicas: u32) -> u32 {
    let most = replicas.max(1);
    if setting == 0 { MIN_COPIES_DEFAULT.min(most) } else { setting.min(most) }
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
        assert!(may_lose_by_one_failure(1, 2) && !may_lose_by_one_failure(1, 1) && !may_lose_by_one_failure(0, 2));
    }
}
