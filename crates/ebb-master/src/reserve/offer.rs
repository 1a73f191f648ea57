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
    /// Bytes that the fullest of the members' volumes can still promise.
    pub room: u64,
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
    let quota = offer.quota.unwrap_or(u64::MAX);
    let most = offer.room.min(quota);
    let wanted = offer.whole.saturating_sub(offer.have);
    if wanted == 0 {
        return Ok(offer.whole);
    }
    if most == 0 {
        return Err(if quota == 0 { Short::Quota } else { Short::Room });
    }
    // Plenty: many writers could take as much before the count is true again.
    let extra = if most / 16 >= wanted { wanted } else { offer.step.min(wanted).min(most) };
    Ok(offer.have + extra)
}
