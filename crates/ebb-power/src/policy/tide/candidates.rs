//! The plans that `tide` compares.
//!
//! | candidate | nodes |
//! |---|---|
//! | whole stages | as `activation`: covers, then nodes or gears |
//! | a stage for a part | these, and the next node or gear for a part of each period |
//! | a row for a part | on a circle: whole rows of neighbours, and the next row for a part of each period |
//! | others in turns | a beginning of the stages is on for good, all other nodes take turns for the rest of the power |
//! | cover in turns | the nodes of the cover, by even times or by their shares of the reads |
//! | cover but one | the cover is on but for one node, which blinks |
//! | rivals | the plans of `activation`, `blink-staggered` and `blink-circular` for the same power |
//!
//! Periods are parts and multiples of the interval. A multiple comes into question where no read waits, or where nodes
//! would not serve long enough otherwise.

use std::collections::BTreeSet;

use ebb_types::NodeId;

use super::reads::Reads;
use super::turns::{Power, around, by_share, end_to_end, even};
use crate::plan::Duty;
use crate::policy::activation::{Active, choose_active};
use crate::policy::{Ask, Schedule, activation, circular, staggered};

/// Parts of the interval that are periods, where it divides evenly.
const PARTS: [u64; 6] = [1, 2, 3, 4, 5, 6];
/// Shorter periods would need wakes that are exact to fractions of a second.
const PERIOD_MS_LEAST: u64 = 5_000;
/// Multiples of the interval for nodes that no read waits for. In a longer period the supply changes.
const MULTIPLES: [u64; 3] = [1, 2, 4];
/// Multiples of the interval for nodes that could not serve long enough in one.
const STRETCHES: [u64; 3] = [2, 4, 8];
/// How far the times of a cover's nodes lean to their shares of the reads.
const LEANINGS: [f64; 3] = [0.0, 0.5, 1.0];
/// Parts of the power that nodes in turns are given, if their draws differ: the battery may not carry the swings of the
/// whole.
const SCALES: [f64; 6] = [1.0, 0.95, 0.9, 0.8, 0.65, 0.5];
/// In a larger cluster only two beginnings of the stages are tried with all others in turns: none and the longest.
const SMALL: usize = 12;

/// The rule of a policy.
type Rule = fn(&Ask<'_>) -> Schedule;

/// A periodic plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// In the order of the circle.
    pub duties: Vec<Duty>,
    /// Length of the period.
    pub period_ms: u64,
    /// Words for the plan's reason.
    pub name: String,
}

impl Candidate {
    /// A plan of another rule.
    pub fn of_schedule(ask: &Ask<'_>, schedule: &Schedule, name: &str) -> Self {
        let duty = |node: &NodeId| schedule.duties.get(node).copied().unwrap_or(Duty::Off);
        let duties = ask.circle.iter().map(duty).collect();
        Self { duties, period_ms: schedule.interval_ms, name: name.to_owned() }
    }

    /// Whether any node is powered.
    pub fn is_lit(&self) -> bool {
        self.duties.iter().any(|duty| *duty != Duty::Off)
    }

    /// Whether nodes blink that have rotational disks.
    pub fn blinks_disks(&self, ask: &Ask<'_>) -> bool {
        let blinks = |duty: &Duty| matches!(duty, Duty::Blink { .. });
        self.duties.iter().zip(ask.circle).any(|(duty, node)| blinks(duty) && ask.power(*node).rotational_disks > 0)
    }

    /// Starts of nodes in an hour.
    pub fn starts_per_hour(&self) -> f64 {
        let blinking = self.duties.iter().filter(|duty| matches!(duty, Duty::Blink { .. })).count();
        blinking as f64 * 3_600_000.0 / self.period_ms as f64
    }

    /// Whether each of these places is powered at some time.
    fn lights(&self, places: &[usize]) -> bool {
        places.iter().all(|place| self.duties[*place] != Duty::Off)
    }

    /// Whether each slot of a RAID set is on a node that is powered at some time, or enough others are on for good.
    fn keeps_slots_in_reach(&self, ask: &Ask<'_>) -> bool {
        let lies_on = |wanted: fn(&Duty) -> bool| {
            let on = self.duties.iter().zip(ask.circle).filter(|(duty, node)| wanted(duty) && !ask.dead.contains(node));
            on.map(|(_, node)| *node).collect::<BTreeSet<NodeId>>()
        };
        let (reached, on) = (lies_on(|duty| *duty != Duty::Off), lies_on(|duty| *duty == Duty::On));
        let coded = ask.chains.iter().flat_map(|chain| chain.coded());
        coded.into_iter().all(|coded| {
            coded.slots.iter().all(|node| reached.contains(node)) || coded.is_at_hand(|node| on.contains(node))
        })
    }

    /// Whether each node that blinks serves for long enough at each wake.
    fn is_worth_waking(&self, ask: &Ask<'_>) -> bool {
        self.duties.iter().zip(ask.circle).all(|(duty, node)| match duty {
            Duty::On | Duty::Off => true,
            Duty::Blink { active_ms, .. } => *active_ms >= ask.least_active_ms(*node),
        })
    }
}

/// The rivals: plans of other policies for the same power.
pub fn rivals(ask: &Ask<'_>) -> Vec<Candidate> {
    let rules: [(&str, Rule); 3] = [
        ("whole stages", activation::schedule),
        ("staggered", staggered::schedule),
        ("whole nodes around the circle", circular::schedule),
    ];
    let of = |(name, rule): (&str, Rule)| Candidate::of_schedule(ask, &rule(ask), name);
    let mut rivals: Vec<Candidate> = rules.map(of).into();
    rivals.extend(Builder::new(ask).around_the_circle());
    rivals
}

/// The candidates beside the rivals.
pub fn candidates(ask: &Ask<'_>, reads: &Reads) -> Vec<Candidate> {
    let builder = Builder::new(ask);
    let mut found = Vec::new();
    let active = choose_active(ask);
    if ask.affords(ask.extra_of(&ask.cover())) {
        builder.stage_for_a_part(&active, &mut found);
        builder.row_for_a_part(&mut found);
    } else {
        builder.cover_in_turns(reads, &mut found);
        builder.cover_but_one(&mut found);
    }
    builder.others_in_turns(&active, &mut found);
    let cover = builder.places(&ask.cover());
    let is_sound = |one: &Candidate| one.is_worth_waking(ask) && one.lights(&cover) && one.keeps_slots_in_reach(ask);
    found.retain(is_sound);
    found
}

struct Builder<'a> {
    ask: &'a Ask<'a>,
    power: Power,
    /// Places of nodes that take turns if all nodes blink.
    turns: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn new(ask: &'a Ask<'a>) -> Self {
        let takes_turns = |place: &usize| {
            let node = &ask.circle[*place];
            !ask.dead.contains(node) || ask.late.contains(node)
        };
        Self { ask, power: Power::of(ask), turns: (0..ask.circle.len()).filter(takes_turns).collect() }
    }

    fn places(&self, nodes: &[NodeId]) -> Vec<usize> {
        (0..self.ask.circle.len()).filter(|place| nodes.contains(&self.ask.circle[*place])).collect()
    }

    fn extra(&self, places: &[usize]) -> f64 {
        self.ask.extra_of(places.iter().map(|place| &self.ask.circle[*place]))
    }

    fn parts(&self) -> impl Iterator<Item = u64> {
        let interval_ms = self.ask.timing.interval_ms;
        let fits =
            move |part: &u64| *part == 1 || interval_ms.is_multiple_of(*part) && interval_ms / part >= PERIOD_MS_LEAST;
        PARTS.into_iter().filter(fits).map(move |part| interval_ms / part)
    }

    fn multiples(&self, of: &'static [u64]) -> impl Iterator<Item = u64> {
        let timing = self.ask.timing;
        of.iter()
            .map(move |times| timing.interval_ms * times)
            .filter(move |period| *period <= timing.longest_interval_ms.max(timing.interval_ms))
    }

    /// The duties, with these nodes on for good.
    fn with_on(&self, on: &[usize], mut duties: Vec<Duty>) -> Vec<Duty> {
        on.iter().for_each(|place| duties[*place] = Duty::On);
        duties
    }

    fn nodes(&self) -> usize {
        self.ask.circle.len()
    }

    /// All nodes for the same part of the interval, spread around the circle.
    fn around_the_circle(&self) -> Option<Candidate> {
        let all = self.extra(&self.turns);
        let watts = self.power.in_turns(0.0, all / self.turns.len().max(1) as f64);
        if watts <= 0.0 || watts >= all {
            return None;
        }
        let period_ms = self.ask.stretched(watts / all, self.ask.least_active_of(&self.ask.turns()))?;
        let duties = around(self.nodes(), &even(self.ask, &self.turns, watts, period_ms), period_ms);
        Some(Candidate { duties, period_ms, name: "all nodes around the circle".to_owned() })
    }

    /// Whole stages, and the next one for a part of each period. The nodes of a gear come together: one alone relieves
    /// only the primaries of its own column.
    fn stage_for_a_part(&self, active: &Active, found: &mut Vec<Candidate>) {
        let on: Vec<NodeId> = active.on.iter().copied().collect();
        active.refused.iter().for_each(|stage| self.next_for_a_part(&on, stage, found));
    }

    /// Whole rows of the circle, and the next one for a part of each period. A node beyond whole rows relieves only the
    /// blocks that it shares with one node of a row, so that a full read is no faster with it.
    fn row_for_a_part(&self, found: &mut Vec<Candidate>) {
        let mut on = self.ask.cover();
        for row in self.ask.chains.iter().flat_map(|chain| chain.rows(self.ask.dead)) {
            let both: BTreeSet<NodeId> = on.iter().chain(&row).copied().collect();
            if !self.ask.affords(self.ask.extra_of(&both)) {
                self.next_for_a_part(&on, &row, found);
                return;
            }
            on = both.into_iter().collect();
        }
    }

    /// Some nodes on for good, and further ones for the part of each period that the power allows.
    fn next_for_a_part(&self, on: &[NodeId], stage: &[NodeId], found: &mut Vec<Candidate>) {
        let next: Vec<NodeId> = stage.iter().filter(|node| !on.contains(node)).copied().collect();
        let (on, next) = (self.places(on), self.places(&next));
        let share = self.power.share(self.extra(&on), self.extra(&next));
        for period_ms in self.multiples(&MULTIPLES) {
            let active_ms = (period_ms as f64 * share) as u64;
            let mut duties = self.with_on(&on, vec![Duty::Off; self.nodes()]);
            next.iter().for_each(|place| duties[*place] = Duty::blink(0, active_ms, period_ms));
            let name = format!("{} on, {} more for {:.0} % of the time", on.len(), next.len(), share * 100.0);
            found.push(Candidate { duties, period_ms, name });
        }
    }

    /// A beginning of the stages on for good, and all other nodes in turns.
    fn others_in_turns(&self, active: &Active, found: &mut Vec<Candidate>) {
        let is_small = self.nodes() <= SMALL;
        let mut on: BTreeSet<NodeId> = BTreeSet::new();
        for (index, stage) in std::iter::once(&Vec::new()).chain(&active.added).enumerate() {
            on.extend(stage);
            if !is_small && index > 0 && index < active.added.len() {
                continue;
            }
            let steady = self.places(&on.iter().copied().collect::<Vec<_>>());
            let others: Vec<usize> = self.turns.iter().copied().filter(|place| !steady.contains(place)).collect();
            let (all, used) = (self.extra(&others), self.extra(&steady));
            let watts = self.power.in_turns(used, all / others.len().max(1) as f64);
            if others.is_empty() || watts <= 0.0 || watts >= all {
                continue;
            }
            for (period_ms, watts) in self.periods(watts, &others) {
                let times = even(self.ask, &others, watts, period_ms);
                let duties = self.with_on(&steady, around(self.nodes(), &times, period_ms));
                let name = format!("{} on, {} in turns", steady.len(), others.len());
                found.push(Candidate { duties, period_ms, name });
            }
        }
    }

    /// Periods for nodes in turns, and the watts that they share.
    fn periods(&self, watts: f64, places: &[usize]) -> Vec<(u64, f64)> {
        let share = watts / self.extra(places);
        let periods: Vec<u64> = self.parts().chain(self.stretches(share, places)).collect();
        let scales: &[f64] = if self.are_alike(places) { &SCALES[..1] } else { &SCALES };
        periods.into_iter().flat_map(|period| scales.iter().map(move |scale| (period, watts * scale))).collect()
    }

    fn are_alike(&self, places: &[usize]) -> bool {
        let extra = |place: &usize| self.ask.extra(self.ask.circle[*place]);
        let (least, most) = places
            .iter()
            .map(extra)
            .fold((f64::INFINITY, 0.0_f64), |(least, most), one| (least.min(one), most.max(one)));
        most <= least * 1.001
    }

    /// Longer periods, where nodes that share so much of the time would not serve long enough in an interval.
    fn stretches(&self, share: f64, places: &[usize]) -> impl Iterator<Item = u64> {
        let nodes: Vec<NodeId> = places.iter().map(|place| self.ask.circle[*place]).collect();
        let is_short = share * (self.ask.timing.interval_ms as f64) < self.ask.least_active_of(&nodes) as f64;
        self.multiples(&STRETCHES).filter(move |_| is_short)
    }

    /// The nodes that hold everything, and late ones: they take turns with the cover, so that they can answer.
    fn cover(&self) -> Vec<usize> {
        let mut cover = self.ask.cover();
        cover.extend(self.ask.circle.iter().filter(|node| self.ask.late.contains(node) && !self.ask.chains.is_empty()));
        self.places(&cover)
    }

    fn cover_in_turns(&self, reads: &Reads, found: &mut Vec<Candidate>) {
        let cover = self.cover();
        let shares = reads.shares(&cover);
        let all = self.extra(&cover);
        let watts = self.power.in_turns(0.0, all / cover.len().max(1) as f64);
        if cover.is_empty() || watts <= 0.0 {
            return;
        }
        for (period_ms, watts) in self.periods(watts, &cover) {
            for leaning in LEANINGS {
                let times = by_share(self.ask, &cover, &shares, watts, period_ms, leaning);
                let duties = end_to_end(self.nodes(), &times, period_ms);
                let name = format!("{} that hold everything, in turns", cover.len());
                found.push(Candidate { duties, period_ms, name });
            }
        }
    }

    /// Just below the cover a blink of all its nodes costs more than it saves.
    fn cover_but_one(&self, found: &mut Vec<Candidate>) {
        let cover = self.cover();
        let Some((last, on)) = cover.split_last() else { return };
        let share = self.power.share(self.extra(on), self.extra(&[*last]));
        for period_ms in self.parts() {
            let mut duties = self.with_on(on, vec![Duty::Off; self.nodes()]);
            duties[*last] = Duty::blink(0, (period_ms as f64 * share) as u64, period_ms);
            if share > 0.0 {
                let name = format!("{} of {} that hold everything on, one blinks", on.len(), cover.len());
                found.push(Candidate { duties, period_ms, name });
            }
        }
    }
}
