//! How much room a holder that asks for some is given.

/// How far a reservation may reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Up to where the holder may write already.
    pub have: u64,
    /// The least that helps it: one step.
    pub step: u64,
    /// The most that it can use.
    pub whole: u64,
    /// Bytes that the fullest of the members' volumes can still promise. None: no member has told its space.
    pub room: Option<u64>,
    /// Bytes that the dataset's quota leaves; `None`: no quota.
    pub quota: Option<u64>,
}

/// What is in the way of more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {
    /// A member's volume.
    Room,
    /// The dataset's quota.
    Quota,
}

/// Up to where the holder may write from now on: everything where there is plenty, a step where it gets tight, and
/// the last bytes of a quota or a volume to whom asks first.
pub fn choose_reserved(offer: &Offer) -> Result<u64, Short> {
    let wanted = offer.whole.saturating_sub(offer.have);
    if wanted == 0 {
        return Ok(offer.whole);
    }
    match [offer.room, offer.quota].into_iter().flatten().min() {
        Some(0) if offer.quota == Some(0) => Err(Short::Quota),
        Some(0) => Err(Short::Room),
        // It gets tight.
        Some(most) if most / 16 < wanted => Ok(offer.have + offer.step.min(wanted).min(most)),
        // Plenty: many writers could take as much before the count is true again.
        _ => Ok(offer.whole),
    }
}
