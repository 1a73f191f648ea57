//! GF(2^8): bytes as polynomials over GF(2), modulo x^8 + x^4 + x^3 + x^2 + 1.
//!
//! Addition is XOR. The polynomial is the one of RAID 6 and of Intel's ISA-L, so that other programs can check the bytes
//! (H. P. Anvin, "The mathematics of RAID-6").

/// x^8 + x^4 + x^3 + x^2 + 1, a bit for each power. 2 generates all 255 numbers but 0.
pub const POLYNOMIAL: u16 = 0x11D;

/// Powers of 2, twice over, so that a sum of two logarithms needs no remainder.
const POWERS: [u8; 510] = powers();
/// Logarithms to base 2. That of 0 does not exist, and its place is never read.
const LOGARITHMS: [u8; 256] = logarithms();

const fn powers() -> [u8; 510] {
    let mut powers = [0; 510];
    let (mut number, mut at) = (1_u16, 0);
    while at < powers.len() {
        powers[at] = number as u8;
        number <<= 1;
        if number & 0x100 != 0 {
            number ^= POLYNOMIAL;
        }
        at += 1;
    }
    powers
}

const fn logarithms() -> [u8; 256] {
    let mut logarithms = [0; 256];
    let mut at = 0;
    while at < 255 {
        logarithms[POWERS[at] as usize] = at as u8;
        at += 1;
    }
    logarithms
}

/// The product of two numbers.
#[must_use]
pub const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// The number that `a` times gives 1. Panics for 0, which has none.
#[must_use]
pub const fn invert(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    POWERS[255 - LOGARITHMS[a as usize] as usize]
}

#[cfg(test)]
mod tests {
    use reed_solomon_erasure::galois_8;

    use super::*;

    /// Multiplication as it is defined, bit by bit.
    fn by_definition(a: u8, b: u8) -> u8 {
        let mut product = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0, |sum, bit| sum ^ u16::from(a) << bit);
        for bit in (8..16).rev().filter(|bit| *bit >= 8) {
            if product >> bit & 1 == 1 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        u8::try_from(product).expect("reduced below the polynomial")
    }

    #[test]
    fn products_are_those_of_the_definition_and_of_another_library() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), by_definition(a, b), "{a} x {b}");
                assert_eq!(multiply(a, b), galois_8::mul(a, b), "{a} x {b}");
            }
        }
    }

    #[test]
    fn inverses_give_one() {
        for a in 1..=255 {
            assert_eq!(multiply(a, invert(a)), 1, "{a}");
            assert_eq!(invert(a), galois_8::div(1, a), "{a}");
        }
    }
}
