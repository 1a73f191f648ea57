//! Whole numbers in proportion to weights, within bounds.

/// One part's weight, and its least and its most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// Against the weights of the others; above 0.
    pub weight: f64,
    /// It gets no less.
    pub least: u32,
    /// It gets no more; not below `least`.
    pub most: u32,
}

/// `total` in parts proportional to the weights (largest remainders first), each within its bounds. The sum is less if
/// all parts have their most.
///
/// Parts that break a bound are fixed there, and the others share what is left. If some are too small and others too
/// large, the side is fixed first that breaks its bounds by more: the other side may then be within them (the rule of
/// flexible boxes, CSS Flexible Box Layout, Sec. 9.7).
///
/// # Panics
///
/// If `total` is less than the sum of what each gets at least, or a weight is not above 0.
#[must_use]
pub fn apportion(total: u32, bounds: &[Bounds]) -> Vec<u32> {
    let least: u64 = bounds.iter().map(|one| u64::from(one.least)).sum();
    assert!(least <= u64::from(total), "{total} parts are fewer than the {least} that there are to be at least");
    assert!(bounds.iter().all(|one| one.weight > 0.0 && one.least <= one.most), "a weight or a bound is wrong");
    let mut fixed: Vec<Option<u32>> = vec![None; bounds.len()];
    loop {
        let parts = share_out(total, bounds, &fixed);
        let open = || (0..bounds.len()).filter(|place| fixed[*place].is_none());
        let short = |place: &usize| u64::from(bounds[*place].least.saturating_sub(parts[*place]));
        let over = |place: &usize| u64::from(parts[*place].saturating_sub(bounds[*place].most));
        let (missing, excess) = (open().map(|one| short(&one)).sum::<u64>(), open().map(|one| over(&one)).sum());
        let broken: Vec<(usize, u32)> = match missing >= excess {
            true => open().filter(|place| short(place) > 0).map(|place| (place, bounds[place].least)).collect(),
            false => open().filter(|place| over(place) > 0).map(|place| (place, bounds[place].most)).collect(),
        };
        if broken.is_empty() {
            return parts;
        }
        broken.into_iter().for_each(|(place, at)| fixed[place] = Some(at));
    }
}

/// The parts if some are fixed and no other has a bound.
fn share_out(total: u32, bounds: &[Bounds], fixed: &[Option<u32>]) -> Vec<u32> {
    let taken: u32 = fixed.iter().flatten().sum();
    let left = total.saturating_sub(taken);
    let open = || (0..bounds.len()).filter(|place| fixed[*place].is_none());
    let weights: f64 = open().map(|place| bounds[place].weight).sum();
    let ideal = |place: usize| bounds[place].weight / weights * f64::from(left);
    let mut parts: Vec<u32> =
        fixed.iter().enumerate().map(|(place, at)| at.unwrap_or_else(|| ideal(place).floor() as u32)).collect();
    let mut order: Vec<usize> = open().collect();
    order.sort_by(|one, other| ideal(*other).fract().total_cmp(&ideal(*one).fract()).then(one.cmp(other)));
    let rest = total.saturating_sub(parts.iter().sum());
    order.iter().take(rest as usize).for_each(|place| parts[*place] += 1);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_least(total: u32, least: u32, weights: &[f64]) -> Vec<u32> {
        let bounds: Vec<Bounds> =
            weights.iter().map(|weight| Bounds { weight: *weight, least, most: u32::MAX }).collect();
        apportion(total, &bounds)
    }

    #[test]
    fn weights_are_proportions_between_least_and_most() {
        assert_eq!(with_least(25, 2, &[1.0, 3.0, 5.0]), [3, 8, 14]);
        assert_eq!(with_least(14, 3, &[1.0, 3.0, 5.0]), [3, 4, 7]);
        assert_eq!(with_least(10, 5, &[1.0, 100.0]), [5, 5]);
        let bounds = |weight, least, most| Bounds { weight, least, most };
        assert_eq!(apportion(12, &[bounds(1.0, 1, 2), bounds(1.0, 1, 9), bounds(1.0, 1, 9)]), [2, 5, 5]);
        assert_eq!(apportion(12, &[bounds(1.0, 1, 2), bounds(1.0, 1, 3)]), [2, 3], "no more can be used");
        assert_eq!(apportion(10, &[bounds(1.0, 4, 9), bounds(9.0, 1, 3)]), [7, 3], "what one leaves over");
        assert_eq!(apportion(7, &[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn parts_keep_their_bounds_and_use_everything_up(all in proptest::collection::vec((0.1_f64..9.0, 0_u32..5, 0_u32..20), 1..7), more in 0_u32..60) {
            let bounds: Vec<Bounds> =
                all.iter().map(|(weight, least, span)| Bounds { weight: *weight, least: *least, most: least + span }).collect();
            let total = more + bounds.iter().map(|one| one.least).sum::<u32>();
            let parts = apportion(total, &bounds);
            let most: u32 = bounds.iter().map(|one| one.most).sum();
            prop_assert_eq!(parts.iter().sum::<u32>(), total.min(most));
            for (part, bounds) in parts.iter().zip(&bounds) {
                prop_assert!((bounds.least..=bounds.most).contains(part), "{parts:?} of {bounds:?}");
            }
            // Of two parts within their bounds, the one with more weight has no less.
            for (one, other) in (0..parts.len()).flat_map(|one| (0..parts.len()).map(move |other| (one, other))) {
                let is_free = |place: usize| parts[place] > bounds[place].least && parts[place] < bounds[place].most;
                if is_free(one) && is_free(other) && bounds[one].weight > bounds[other].weight {
                    prop_assert!(parts[one] + 1 >= parts[other], "{parts:?} of {bounds:?}");
                }
            }
        }
    }
}
