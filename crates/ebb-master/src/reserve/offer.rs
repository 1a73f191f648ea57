//! Room for a holder that asks for more.

/// Limits of a reservation, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Offset up to which the holder may write already.
    pub have: u64,
    /// Smallest useful addition: one step.
    pub step: u64,
    /// Offset up to which it can use room.
    pub whole: u64,
    /// Bytes that the fullest member's volume can still promise. `None`: no member has reported its space.
    pub room: Option<u64>,
    /// Bytes left in the dataset's quota. `None` means no quota.
    pub quota: Option<u64>,
}

/// Limit that allows no more room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {
    /// Space of a member's volume.
    Room,
    /// The dataset's quota.
    Quota,
}

/// Offset up to which the holder may write from now on. With plenty of room it is everything that the holder can use,
/// and with little room one step. The last bytes of a quota or volume go to the first holder that asks.
///
/// Errors: the limit that allows no addition.
pub fn choose_reserved(offer: &Offer) -> Result<u64, Short> {
    let wanted = offer.whole.saturating_sub(offer.have);
    if wanted == 0 {
        return Ok(offer.whole);
    }
    match [offer.room, offer.quota].into_iter().flatten().min() {
        Some(0) if offer.quota == Some(0) => Err(Short::Quota),
        Some(0) => Err(Short::Room),
        // It gets tight.
        // I-35: neither a volume nor a quota may promise more than it has.
        Some(most) if most / 16 < wanted => Ok(offer.have + offer.step.min(wanted).min(most)),
        // There is plenty if many writers could take as much before the reported free space catches up.
        _ => Ok(offer.whole),
    }
}
