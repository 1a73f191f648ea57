//! Which sources decode which parts, and with which coefficients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ebb_types::{Result, bail, counted};

use crate::code::{Code, Part};
use crate::combine::combine;
use crate::field::multiply;
use crate::kernel::Kernel;
use crate::matrix::{coefficient, inverse};

/// What a caller has of one range of a RAID set. A part that is in neither list is gone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Present {
    /// Parts whose bytes of the range can be had.
    pub parts: BTreeSet<Part>,
    /// Slots that are empty, or end before the range: they are zeros there, and no source. This counts also if the slot is
    /// among `parts`.
    pub zeros: BTreeSet<usize>,
}

impl Present {
    /// Every part.
    #[must_use]
    pub fn all(code: Code) -> Self {
        Self { parts: code.parts().collect(), zeros: BTreeSet::new() }
    }

    /// The same without one part, which is gone, or left out to see whether it lies.
    #[must_use]
    pub fn without(mut self, part: Part) -> Self {
        self.parts.remove(&part);
        self
    }

    /// The same with a slot that does not reach into the range.
    #[must_use]
    pub fn with_zeros(mut self, slot: usize) -> Self {
        self.zeros.insert(slot);
        self
    }
}

/// Why a source is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A slot that reaches into the range is in every row.
    Reaches,
    /// A row stands for a slot that is gone.
    StandsFor(usize),
}

/// A part to read, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// The part.
    pub part: Part,
    /// Why it is needed.
    pub reason: Reason,
}

/// What to read for the parts that are wanted, and how to make them of it.
///
/// There are as many sources as slots reach into the range. Fewer never suffice for any part of such a code. The slots
/// that are there come first, then the lowest rows. The plan holds for every range in which the same slots reach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodePlan {
    code: Code,
    sources: Vec<Source>,
    wanted: Vec<Part>,
    /// For each wanted part, that of each source.
    coefficients: Vec<Vec<u8>>,
}

impl Code {
    /// How to make `wanted` from what is present: slots that are gone, rows that are to be made again, or both.
    ///
    /// Kind `Unavailable` if too few parts are present; the sentence says how many more would do. Kind `Invalid` if a part
    /// is none of this code, or is wanted twice, or is wanted and present.
    pub fn plan_decode(self, present: &Present, wanted: &[Part]) -> Result<DecodePlan> {
        self.check_parts(present, wanted)?;
        let is_zeros = |part: &Part| matches!(part, Part::Slot(slot) if present.zeros.contains(slot));
        let reaching: Vec<usize> = (0..self.slots()).filter(|slot| !present.zeros.contains(slot)).collect();
        let (here, gone): (Vec<usize>, Vec<usize>) =
            reaching.iter().copied().partition(|slot| present.parts.contains(&Part::Slot(*slot)));
        let mut rows: Vec<usize> = (0..self.rows()).filter(|row| present.parts.contains(&Part::Row(*row))).collect();
        if wanted.iter().all(is_zeros) {
            let coefficients = vec![Vec::new(); wanted.len()];
            return Ok(DecodePlan { code: self, sources: Vec::new(), wanted: wanted.to_vec(), coefficients });
        }
        if rows.len() < gone.len() {
            let gone_parts: Vec<Part> = gone.iter().copied().map(Part::Slot).collect();
            bail!(
                Unavailable,
                "cannot make {} of {self}: without {} it takes {}, and {} can be had; {} more of the parts that are gone would do",
                listed(wanted),
                listed(&gone_parts),
                counted(gone.len() as u64, "row"),
                rows.len(),
                gone.len() - rows.len()
            );
        }
        rows.truncate(gone.len());
        let slots_by_sources = slots_by_sources(&here, &gone, &rows);
        let of = |part: &Part| -> Vec<u8> {
            let count = here.len() + rows.len();
            match part {
                Part::Slot(slot) => slots_by_sources.get(slot).cloned().unwrap_or_else(|| vec![0; count]),
                Part::Row(row) => reaching.iter().fold(vec![0; count], |mut sum, slot| {
                    add_product(&mut sum, coefficient(*row, *slot), &slots_by_sources[slot]);
                    sum
                }),
            }
        };
        let coefficients = wanted.iter().map(of).collect();
        let slots = here.iter().map(|slot| Source { part: Part::Slot(*slot), reason: Reason::Reaches });
        let rows = rows.iter().zip(&gone);
        let rows = rows.map(|(row, slot)| Source { part: Part::Row(*row), reason: Reason::StandsFor(*slot) });
        Ok(DecodePlan { code: self, sources: slots.chain(rows).collect(), wanted: wanted.to_vec(), coefficients })
    }

    fn check_parts(self, present: &Present, wanted: &[Part]) -> Result<()> {
        let zeros = present.zeros.iter().map(|slot| Part::Slot(*slot));
        if let Some(other) = present.parts.iter().chain(wanted).copied().chain(zeros).find(|part| !self.has(*part)) {
            bail!(Invalid, "{other} is no part of {self}");
        }
        for (index, part) in wanted.iter().enumerate() {
            if wanted[..index].contains(part) {
                bail!(Invalid, "{part} is wanted twice");
            }
            if present.parts.contains(part) {
                bail!(Invalid, "{part} is wanted and present: leave it out of what is present to decode it");
            }
        }
        Ok(())
    }
}

/// For each slot that reaches into the range its coefficients over the sources: the slots that are here, then the rows.
///
/// A row less what is here is a sum of what is gone alone. As many of these as slots are gone are a square system, and
/// its inverse gives the slots.
fn slots_by_sources(here: &[usize], gone: &[usize], rows: &[usize]) -> BTreeMap<usize, Vec<u8>> {
    let count = here.len() + rows.len();
    let unit = |index: usize| (0..count).map(|at| u8::from(at == index)).collect::<Vec<u8>>();
    let mut found: BTreeMap<usize, Vec<u8>> =
        here.iter().enumerate().map(|(index, slot)| (*slot, unit(index))).collect();
    let system = rows.iter().map(|row| gone.iter().map(|slot| coefficient(*row, *slot)).collect()).collect();
    let inverse = inverse(system).expect("every square part of the code's matrix has an inverse");
    for (slot, line) in gone.iter().zip(inverse) {
        let mut sum = vec![0; count];
        for (at, (row, factor)) in rows.iter().zip(line).enumerate() {
            let mut rest = unit(here.len() + at);
            here.iter().enumerate().for_each(|(index, slot)| rest[index] = coefficient(*row, *slot));
            add_product(&mut sum, factor, &rest);
        }
        found.insert(*slot, sum);
    }
    found
}

fn add_product(sum: &mut [u8], factor: u8, line: &[u8]) {
    sum.iter_mut().zip(line).for_each(|(to, from)| *to ^= multiply(factor, *from));
}

impl DecodePlan {
    /// What to read, in the order in which [`decode`](Self::decode) takes it.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// What is made, in the order in which [`decode`](Self::decode) writes it.
    #[must_use]
    pub fn wanted(&self) -> &[Part] {
        &self.wanted
    }

    /// The coefficient of each source in the wanted part with this index.
    #[must_use]
    pub fn coefficients(&self, index: usize) -> &[u8] {
        &self.coefficients[index]
    }

    /// Makes the wanted parts of one range from the sources' bytes there, with the kernel chosen for this CPU.
    ///
    /// - `sources` has a slice for each source, in the plan's order. One that ends within the range is shorter: its end is
    ///   followed by zeros.
    /// - `targets` has a slice for each wanted part, in the plan's order. Each may have its own length, as a slot that ends
    ///   within the range needs no bytes behind its end. Every byte of them is written. What sources have behind the longest
    ///   target is not looked at.
    ///
    /// A source that is cut short by mistake gives wrong bytes, as it cannot be told from one that ends. Kind `Invalid` if
    /// the number of slices is another; then nothing was written.
    pub fn decode(&self, sources: &[&[u8]], targets: &mut [&mut [u8]]) -> Result<()> {
        self.decode_with(Kernel::chosen(), sources, targets)
    }

    /// [`decode`](Self::decode) with a kernel of the caller's choice.
    pub fn decode_with(&self, kernel: Kernel, sources: &[&[u8]], targets: &mut [&mut [u8]]) -> Result<()> {
        if sources.len() != self.sources.len() || targets.len() != self.wanted.len() {
            let given = (counted(sources.len() as u64, "source"), counted(targets.len() as u64, "target"));
            let due = (self.sources.len(), self.wanted.len());
            bail!(Invalid, "{} and {} were given to a plan of {} and {}", given.0, given.1, due.0, due.1);
        }
        combine(kernel, &self.coefficients, sources, targets);
        Ok(())
    }
}

/// `slot 3, slot 5 and row 0`; `nothing` for an empty list.
pub fn listed(parts: &[Part]) -> String {
    let names: Vec<String> = parts.iter().map(ToString::to_string).collect();
    match names.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

impl fmt::Display for DecodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<Part> = self.sources.iter().map(|source| source.part).collect();
        write!(f, "{} of {} from {}", listed(&self.wanted), self.code, listed(&parts))?;
        for (at, Source { part, reason }) in self.sources.iter().enumerate() {
            let factors: Vec<String> = self.coefficients.iter().map(|line| line[at].to_string()).collect();
            write!(f, "\n{part} x {}: {reason}", factors.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reaches => f.write_str("reaches into the range"),
            Self::StandsFor(slot) => write!(f, "in place of slot {slot}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    fn code(slots: usize, rows: usize) -> Code {
        Code::new(slots, rows).unwrap()
    }

    #[test]
    fn a_plan_says_what_is_read_and_why() {
        let present = Present::all(code(4, 2)).without(Part::Slot(1)).with_zeros(3);
        let plan = code(4, 2).plan_decode(&present, &[Part::Slot(1)]).unwrap();
        assert_eq!(
            plan.to_string(),
            "slot 1 of 4+2 from slot 0, slot 2 and row 0\n\
             slot 0 x 1: reaches into the range\n\
             slot 2 x 1: reaches into the range\n\
             row 0 x 1: in place of slot 1"
        );
    }

    #[test]
    fn a_row_is_made_again_from_slots_or_beside_a_slot_that_is_gone() {
        let lost = Present::all(code(3, 2)).without(Part::Row(1));
        let plan = code(3, 2).plan_decode(&lost, &[Part::Row(1)]).unwrap();
        assert_eq!(plan.coefficients(0), [0, 1, 2].map(|slot| coefficient(1, slot)));
        let both = lost.without(Part::Slot(2));
        let plan = code(3, 2).plan_decode(&both, &[Part::Row(1), Part::Slot(2)]).unwrap();
        let parts: Vec<Part> = plan.sources().iter().map(|source| source.part).collect();
        assert_eq!(parts, [Part::Slot(0), Part::Slot(1), Part::Row(0)]);
    }

    #[test]
    fn what_is_zeros_takes_no_source() {
        let present = Present::default().with_zeros(0);
        let plan = code(3, 1).plan_decode(&present, &[Part::Slot(0)]).unwrap();
        assert_eq!(plan.to_string(), "slot 0 of 3+1 from nothing");
        let mut target = [7; 3];
        plan.decode(&[], &mut [&mut target]).unwrap();
        assert_eq!(target, [0; 3]);
    }

    #[test]
    fn too_few_parts_are_refused_with_the_number_that_would_do() {
        let mut present = Present::all(code(8, 2));
        for slot in [3, 5, 7] {
            present = present.without(Part::Slot(slot));
        }
        let error = code(8, 2).plan_decode(&present.without(Part::Row(0)), &[Part::Slot(3)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(
            error.to_string(),
            "cannot make slot 3 of 8+2: without slot 3, slot 5 and slot 7 it takes 3 rows, and 1 can be had; \
             2 more of the parts that are gone would do"
        );
    }

    #[test]
    fn an_ask_that_makes_no_sense_is_refused_by_name() {
        let refusal = |present: Present, wanted: &[Part]| {
            let error = code(4, 2).plan_decode(&present, wanted).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            error.to_string()
        };
        let all = Present::all(code(4, 2));
        assert_eq!(refusal(all.clone(), &[Part::Row(2)]), "row 2 is no part of 4+2");
        assert_eq!(refusal(all.clone().with_zeros(4), &[]), "slot 4 is no part of 4+2");
        let twice = refusal(all.clone().without(Part::Row(0)), &[Part::Row(0), Part::Row(0)]);
        assert_eq!(twice, "row 0 is wanted twice");
        assert!(refusal(all.clone(), &[Part::Slot(0)]).contains("leave it out"));
        let plan = code(4, 2).plan_decode(&all.without(Part::Slot(0)), &[Part::Slot(0)]).unwrap();
        let error = plan.decode(&[&[1]], &mut []).unwrap_err();
        assert_eq!(error.to_string(), "1 source and 0 targets were given to a plan of 4 and 1");
    }
}
