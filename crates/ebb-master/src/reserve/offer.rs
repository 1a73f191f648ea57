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
    /// Bytes that the fullest member's volume can still promise.
    pub room: u64,
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
    let quota = offer.quota.unwrap_or(u64::MAX);
    let most = offer.room.min(quota);
    let wanted = offer.whole.saturating_sub(offer.have);
    if wanted == 0 {
        return Ok(offer.whole);
    }
    if most == 0 {
        return Err(if quota == 0 { Short::Quota } else { Short::Room });
    }
    // There is plenty if many writers could take as much before the reported free space catches up.
    let extra = if most / 16 >= wanted { wanted } else { offer.step.min(wanted).min(most) };
    // I-35: neither a volume nor a quota may promise more than it has.
    assert!(extra <= most, "{extra} bytes would be promised, and {most} are there");
    Ok(offer.have + extra)
}
