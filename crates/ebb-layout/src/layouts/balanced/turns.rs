//! Whose turn it is to get a new block: the spacings of a circle, while some nodes cannot take a copy.
//!
//! With all nodes, every spacing gets as many blocks. A spacing that lacks a node leaves its part to the whole ones that
//! share most places with it. Its other nodes then get as many blocks as ever, and the part of the missing node goes to
//! those beside it. A node that no whole spacing has would get nothing in this way. So its spacings take their own turns,
//! and the layout finds another place for the missing copy.

use crate::chain::ChainView;
use crate::chain::circle::Circle;

/// Parts in which a turn is shared.
const PARTS: u128 = 1 << 20;

/// The spacings that get new blocks, each with the blocks that it has for every turn that it has. The one with least is
/// next. `open`: the places whose nodes can take a copy.
pub(super) fn of(chain: &ChainView, circle: &Circle, open: &[bool]) -> Vec<(usize, u128)> {
    let is_whole: Vec<bool> =
        circle.all().map(|number| circle.places(number).iter().all(|place| open[*place])).collect();
    let is_left_out = |place: &usize| open[*place] && !circle.with(*place).iter().any(|number| is_whole[*number]);
    let mut turns: Vec<u128> = is_whole.iter().map(|whole| if *whole { PARTS } else { 0 }).collect();
    let mut apart = Vec::new();
    for number in circle.all().filter(|number| !is_whole[*number]) {
        let left_out = circle.places(number).iter().copied().filter(is_left_out);
        // The copy beside the missing place may make the block one of another spacing. So the blocks of the nodes that
        // are left out are counted, and not those of the spacing.
        let part = |place: usize| on(chain, place) * PARTS / circle.with(place).len() as u128;
        match left_out.map(part).max() {
            Some(came) => apart.push((number, came)),
            None => leave_turn(circle, &is_whole, number, &mut turns),
        }
    }
    let whole = circle.all().filter(|number| is_whole[*number]);
    let came = |number: usize| u128::from(chain.tally.for_spacing(number)) * PARTS * PARTS / turns[number].max(1);
    whole.map(|number| (number, came(number))).chain(apart).collect()
}

/// Shares a turn among the whole spacings that have most places in common with the one that leaves it.
fn leave_turn(circle: &Circle, is_whole: &[bool], leaves: usize, turns: &mut [u128]) {
    let places = circle.places(leaves);
    let mut whole: Vec<usize> = places.iter().flat_map(|place| circle.with(*place)).copied().collect();
    whole.sort_unstable();
    whole.dedup();
    whole.retain(|number| is_whole[*number]);
    let most = whole.iter().map(|number| circle.matched(*number, places)).max();
    whole.retain(|number| Some(circle.matched(*number, places)) == most);
    whole.iter().for_each(|number| turns[*number] += PARTS / whole.len() as u128);
}

fn on(chain: &ChainView, place: usize) -> u128 {
    u128::from(chain.tally.on(chain.nodes()[place]))
}
