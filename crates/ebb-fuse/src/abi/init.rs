//! The handshake: the first request of a mount, in which both sides agree on features.

use ebb_types::{Result, err};

use super::request::Header;
use super::{MAJOR, MINOR, MINOR_MIN};
use crate::vfs::EntryDetail;

/// Features by number (`FUSE_*` of the INIT message).
pub mod feature {
    #![allow(missing_docs)]
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Features that the mount uses if the kernel offers them. Writeback caching is left out: with it
/// the kernel could hold back data that other mounts must see.
pub const WANTED: u64 = feature::ASYNC_READ
    | feature::POSIX_LOCKS
    | feature::ATOMIC_O_TRUNC
    | feature::BIG_WRITES
    | feature::DONT_MASK
    | feature::FLOCK_LOCKS
    | feature::AUTO_INVAL_DATA
    | feature::ASYNC_DIO
    | feature::PARALLEL_DIROPS
    | feature::POSIX_ACL
    | feature::MAX_PAGES
    | feature::CACHE_SYMLINKS
    | feature::HANDLE_KILLPRIV_V2
    | feature::DIRECT_IO_ALLOW_MMAP;

/// Features that the mount requires. Without them modes would be wrong, or locks would be lost.
pub const NEEDED: u64 =
    feature::POSIX_LOCKS | feature::FLOCK_LOCKS | feature::DONT_MASK | feature::BIG_WRITES | feature::ATOMIC_O_TRUNC;

/// Offer of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Minor version that the kernel speaks.
    pub minor: u32,
    /// Maximum read-ahead of the kernel in bytes.
    pub max_readahead: u32,
    /// Features.
    pub features: u64,
}

/// Features and limits that both sides use from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Maximum read-ahead in bytes.
    pub max_readahead: u32,
    /// Features.
    pub features: u64,
    /// Maximum number of concurrent background requests (read-ahead, asynchronous direct I/O).
    pub max_background: u16,
    /// Maximum size of one write request in bytes.
    pub max_write: u32,
    /// Abilities of the kernel on which its caching depends.
    pub kernel: KernelAbilities,
}

/// Abilities of a kernel on which its caching depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelAbilities {
    /// The kernel may cache names. It can invalidate all of them at once, without a lock that a
    /// request may hold.
    pub keeps_names: bool,
    /// Descriptors whose files it can map, shared.
    pub maps: Mappable,
}

/// Descriptors whose files a kernel can map, shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mappable {
    /// Only those that go through the page cache.
    Cached,
    /// Also those that go around the page cache (Linux 6.6).
    All,
}

/// Parses the body of INIT. A kernel with another major version, or with a minor version that is
/// too old, is refused.
pub fn parse(body: &[u8]) -> Result<Offer> {
    let word = |at: usize| body.get(at..at + 4).map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("4 bytes")));
    let (Some(major), Some(minor), Some(max_readahead), Some(low)) = (word(0), word(4), word(8), word(12)) else {
        return Err(err!(Protocol, "the kernel's INIT has {} bytes instead of 16 or more", body.len()));
    };
    if major != MAJOR || minor < MINOR_MIN {
        return Err(err!(
            Unsupported,
            "the kernel speaks FUSE {major}.{minor}; the mount needs {MAJOR}.{MINOR_MIN} (Linux 5.10) or later"
        ));
    }
    let mut features = u64::from(low);
    if features & feature::INIT_EXT != 0 {
        features |= u64::from(word(16).unwrap_or(0)) << 32;
    }
    Ok(Offer { minor, max_readahead, features })
}

/// Chooses from the offer. `listings`: they carry attributes only if the kernel may cache these.
pub fn agree(offer: Offer, max_write: u32, listings: EntryDetail) -> Result<Agreement> {
    let missing = NEEDED & !offer.features;
    if missing != 0 {
        return Err(err!(Unsupported, "the kernel's FUSE lacks features {missing:#x} that the mount needs"));
    }
    let mut features = offer.features & WANTED;
    if listings == EntryDetail::Attributes {
        features |= offer.features & (feature::DO_READDIRPLUS | feature::READDIRPLUS_AUTO);
    }
    // Requests above 128 KiB need MAX_PAGES, with which our answer sets the number of pages.
    let max_write = if features & feature::MAX_PAGES != 0 { max_write } else { max_write.min(128 << 10) };
    let kernel = KernelAbilities {
        keeps_names: offer.minor >= super::MINOR_EPOCHS,
        maps: if features & feature::DIRECT_IO_ALLOW_MMAP != 0 { Mappable::All } else { Mappable::Cached },
    };
    Ok(Agreement { max_readahead: offer.max_readahead, features, max_background: 64, max_write, kernel })
}

/// The answer to INIT (`struct fuse_init_out`, 64 bytes).
#[must_use]
pub fn answer(agreement: Agreement) -> Vec<u8> {
    let features = agreement.features | feature::INIT_EXT;
    let max_pages = agreement.max_write.div_ceil(4096) as u16;
    let mut out = Vec::with_capacity(64);
    for word in [MAJOR, MINOR, agreement.max_readahead, features as u32] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out.extend_from_slice(&agreement.max_background.to_ne_bytes());
    out.extend_from_slice(&(agreement.max_background / 4 * 3).to_ne_bytes());
    out.extend_from_slice(&agreement.max_write.to_ne_bytes());
    // Time stamps have nanoseconds.
    out.extend_from_slice(&1_u32.to_ne_bytes());
    out.extend_from_slice(&max_pages.to_ne_bytes());
    out.extend_from_slice(&0_u16.to_ne_bytes());
    out.extend_from_slice(&((features >> 32) as u32).to_ne_bytes());
    out.resize(64, 0);
    out
}

/// Whether a message is INIT.
#[must_use]
pub fn is_init(header: &Header) -> bool {
    header.opcode == super::opcode::INIT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(major: u32, minor: u32, features: u64) -> Vec<u8> {
        [major, minor, 131_072, features as u32, (features >> 32) as u32].iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn features_above_bit_31_need_the_extension_bit() {
        let high = feature::DIRECT_IO_ALLOW_MMAP;
        assert_eq!(parse(&body(7, 41, high)).unwrap().features, 0);
        assert_eq!(parse(&body(7, 41, high | feature::INIT_EXT)).unwrap().features, high | feature::INIT_EXT);
    }

    #[test]
    fn old_kernels_and_short_messages_are_refused_in_words() {
        assert!(parse(&body(7, 12, 0)).unwrap_err().to_string().contains("7.12"));
        assert!(parse(&[0; 9]).unwrap_err().to_string().contains("9 bytes"));
        let poor = Offer { minor: 40, max_readahead: 1, features: WANTED & !feature::FLOCK_LOCKS };
        assert!(agree(poor, 1 << 20, EntryDetail::Names).unwrap_err().to_string().contains("0x400"));
    }

    #[test]
    fn the_answer_never_claims_what_was_not_offered() {
        let offer = Offer { minor: 45, max_readahead: 131_072, features: WANTED & !feature::MAX_PAGES };
        let agreement = agree(offer, 1 << 20, EntryDetail::Attributes).unwrap();
        assert_eq!(agreement.features & !offer.features, 0);
        assert_eq!(agreement.max_write, 128 << 10);
        assert_eq!(answer(agreement).len(), 64);
    }
}
