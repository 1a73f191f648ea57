//! Which of several is responsible for a key, without a shared list: each pair of key and name has a weight, and the
//! heaviest wins (Thaler, Ravishankar: Using name-based mappings to increase hit rates, IEEE/ACM Transactions on
//! Networking, 1998). A name that comes or goes moves its own keys alone.

use crate::rng::hash;

/// The one of `among` that is responsible for `key`, by their names; none if there is none. The order does not matter.
pub fn choose<T>(key: u64, among: impl IntoIterator<Item = T>, name: impl Fn(&T) -> &str) -> Option<T> {
    let mut best: Option<((u64, u64), T)> = None;
    for one in among {
        let named = number_of(name(&one));
        // Names of equal weight are ordered all the same, in the same way everywhere.
        let weight = (hash(&[key, named]), named);
        if best.as_ref().is_none_or(|(most, _)| weight > *most) {
            best = Some((weight, one));
        }
    }
    best.map(|(_, one)| one)
}

/// A number of a name.
fn number_of(name: &str) -> u64 {
    let part = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let mut parts: Vec<u64> = name.as_bytes().chunks(8).map(part).collect();
    parts.push(name.len() as u64);
    hash(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 30_000;

    fn names(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("proxy-{number}")).collect()
    }

    fn chosen(key: u64, names: &[String]) -> &str {
        choose(key, names, |name| name.as_str()).unwrap()
    }

    #[test]
    fn everybody_gets_its_part_and_the_order_does_not_matter() {
        let mut all = names(5);
        let mut parts = std::collections::BTreeMap::new();
        for key in 0..KEYS {
            *parts.entry(chosen(key, &all).to_owned()).or_insert(0_u64) += 1;
        }
        // Six standard deviations of a binomial distribution: sqrt(30000 x 0.2 x 0.8) = 69.
        assert!(parts.len() == 5 && parts.values().all(|part| part.abs_diff(KEYS / 5) < 420), "{parts:?}");
        let before: Vec<String> = (0..KEYS).map(|key| chosen(key, &all).to_owned()).collect();
        all.reverse();
        assert!((0..KEYS).zip(&before).all(|(key, before)| chosen(key, &all) == before));
        assert_eq!(choose(7, Vec::<String>::new(), String::as_str), None);
    }

    #[test]
    fn a_node_that_leaves_moves_its_own_keys_alone() {
        let all = names(4);
        let left: Vec<String> = all.iter().filter(|name| *name != "proxy-2").cloned().collect();
        for key in 0..KEYS {
            let (before, after) = (chosen(key, &all), chosen(key, &left));
            assert!(before == after || before == "proxy-2", "key {key} went from {before} to {after}");
        }
    }
}
