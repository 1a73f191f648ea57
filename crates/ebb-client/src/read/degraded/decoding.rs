//! Decoding of one slot's range: which parts are read, and what is done if one of them is gone, or lies.

use std::collections::BTreeSet;
use std::future::Future;

use bytes::{Bytes, BytesMut};
use ebb_code::{Code, DecodePlan, Part, Present};
use ebb_types::{Error, Result};
use futures_util::future::join_all;

/// The parts of a RAID set, where they lie.
pub(super) trait Parts {
    /// Whether a part may be there. It is not read before that.
    fn may_have(&self, part: Part) -> bool;
    /// Bytes of a part in `start..end`; fewer if it ends before.
    fn read(&self, part: Part, start: u64, end: u64) -> impl Future<Output = Result<Bytes>> + Send;
}

/// One slot that is wanted.
pub(super) struct Decoding<'a, P> {
    pub parts: &'a P,
    pub code: Code,
    pub slot: usize,
    /// Of each slot, in bytes. Slots that are not there are empty.
    pub lengths: Vec<u64>,
    /// Parts that cannot be had.
    pub gone: BTreeSet<Part>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Decoded {
    pub bytes: Bytes,
    /// Bytes that were read.
    pub source_bytes: u64,
    /// A part that gives something else than what was encoded, and the sentence that it led to.
    pub liar: Option<(Part, Error)>,
}

impl<P: Parts> Decoding<'_, P> {
    /// The bytes in `start..end`, which `check` must find right.
    ///
    /// A source's bytes match the checksums that it gives. If what is decoded is wrong all the same, each source is left out in
    /// turn: S-14.
    ///
    /// Errors: `Unavailable` if too few parts can be had, and that of `check` if nothing that can be decoded is right.
    pub async fn run(&mut self, start: u64, end: u64, check: impl Fn(&Bytes) -> Result<()>) -> Result<Decoded> {
        let (plan, pieces) = self.read_sources(start, end, None).await?;
        let mut source_bytes = count(&pieces);
        let bytes = decode(&plan, &pieces, end - start)?;
        let Err(wrong) = check(&bytes) else { return Ok(Decoded { bytes, source_bytes, liar: None }) };
        for source in plan.sources() {
            let Ok((plan, pieces)) = self.read_sources(start, end, Some(source.part)).await else { continue };
            source_bytes += count(&pieces);
            let bytes = decode(&plan, &pieces, end - start)?;
            if check(&bytes).is_ok() {
                return Ok(Decoded { bytes, source_bytes, liar: Some((source.part, wrong)) });
            }
        }
        Err(wrong)
    }

    /// Reads the sources of a plan. Where one is gone, another plan does without it.
    async fn read_sources(&mut self, start: u64, end: u64, left_out: Option<Part>) -> Result<(DecodePlan, Vec<Bytes>)> {
        loop {
            let plan = self.plan(start, left_out)?;
            let reads = plan.sources().iter().map(|source| self.parts.read(source.part, start, end));
            let answers = join_all(reads).await;
            let mut pieces = Vec::with_capacity(answers.len());
            for (source, answer) in plan.sources().iter().zip(answers) {
                match answer {
                    Ok(piece) => pieces.push(piece),
                    Err(error) => {
                        tracing::debug!(part = %source.part, %error, "a source of a degraded read");
                        self.gone.insert(source.part);
                    }
                }
            }
            if pieces.len() == plan.sources().len() {
                return Ok((plan, pieces));
            }
        }
    }

    fn plan(&self, start: u64, left_out: Option<Part>) -> Result<DecodePlan> {
        let length = |slot: usize| self.lengths.get(slot).copied().unwrap_or(0);
        let zeros = (0..self.code.slots()).filter(|slot| length(*slot) <= start).collect();
        let wanted = Part::Slot(self.slot);
        let can_be_had = |part: &Part| {
            let is_empty = matches!(part, Part::Slot(slot) if length(*slot) == 0);
            !is_empty
                && *part != wanted
                && Some(*part) != left_out
                && !self.gone.contains(part)
                && self.parts.may_have(*part)
        };
        self.code.plan_decode(&Present { parts: self.code.parts().filter(can_be_had).collect(), zeros }, &[wanted])
    }
}

fn count(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

fn decode(plan: &DecodePlan, pieces: &[Bytes], len: u64) -> Result<Bytes> {
    let mut out = BytesMut::zeroed(usize::try_from(len).expect("a range fits into memory"));
    let sources: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
    plan.decode(&sources, &mut [&mut out[..]])?;
    Ok(out.freeze())
}

#[cfg(test)]
mod tests;
