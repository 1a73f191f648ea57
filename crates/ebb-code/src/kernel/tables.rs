//! Multiplication by a constant, as each kind of kernel wants it in memory.

use crate::field::multiply;

/// Products of one coefficient: with 0 to 15, then with 0, 16, 32 to 240. The product with a byte is the XOR of those with
/// its nibbles.
pub(super) type Nibbles = [u8; 32];

/// [`Nibbles`] of every coefficient: 8 KiB, of which a code uses a kilobyte or two.
pub(super) static NIBBLES: [Nibbles; 256] = nibbles();

const fn nibbles() -> [Nibbles; 256] {
    let mut all = [[0; 32]; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            all[coefficient][nibble] = multiply(coefficient as u8, nibble as u8);
            all[coefficient][nibble + 16] = multiply(coefficient as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        coefficient += 1;
    }
    all
}

/// Every multiplication as a matrix of bits for `gf2p8affineqb`.
///
/// `gf2p8mulb` cannot be used: its polynomial is fixed, and another one (0x11B). But multiplication by a constant is linear
/// over the bits of a byte in any such field, and the affine instruction applies any matrix of 8 x 8 bits.
#[cfg(any(target_arch = "x86_64", test))]
pub(super) static AFFINE: [u64; 256] = affine();

#[cfg(any(target_arch = "x86_64", test))]
const fn affine() -> [u64; 256] {
    let mut all = [0; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        // Bit `i` of the result is the parity of (byte `7 - i` of the matrix AND x): Intel's manual, GF2P8AFFINEQB.
        let mut bit = 0;
        while bit < 8 {
            let mut line = 0_u64;
            let mut power = 0;
            while power < 8 {
                let product = multiply(coefficient as u8, 1 << power);
                line |= ((product as u64 >> bit) & 1) << power;
                power += 1;
            }
            all[coefficient] |= line << (8 * (7 - bit));
            bit += 1;
        }
        coefficient += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `vgf2p8affineqb` of one byte, as Intel's manual (volume 2, GF2P8AFFINEQB) has it:
    ///
    /// ```text
    /// define parity(x): t := 0; FOR i := 0 to 7: t = t xor x.bit[i]; return t
    /// define affine_byte(tsrc2qw, src1byte, imm):
    ///     FOR i := 0 to 7: retbyte.bit[i] := parity(tsrc2qw.byte[7-i] AND src1byte) XOR imm8.bit[i]
    /// ```
    fn affine_byte(matrix: u64, source: u8, immediate: u8) -> u8 {
        let parity = |x: u8| (0..8).fold(0, |t, bit| t ^ (x >> bit & 1));
        let byte = |index: usize| matrix.to_le_bytes()[index];
        (0..8).fold(0, |result, bit| result | (parity(byte(7 - bit) & source) ^ (immediate >> bit & 1)) << bit)
    }

    #[test]
    fn the_emulation_knows_the_matrices_that_everybody_knows() {
        // The identity, and the reversal of bits, as Intel's guide to GFNI prints them.
        for x in 0..=255 {
            assert_eq!(affine_byte(0x0102_0408_1020_4080, x, 0), x);
            assert_eq!(affine_byte(0x8040_2010_0804_0201, x, 0), x.reverse_bits());
            assert_eq!(affine_byte(0x0102_0408_1020_4080, x, 0xFF), !x);
        }
    }

    #[test]
    fn matrices_and_nibbles_multiply() {
        for coefficient in 0..=255_u8 {
            let nibbles = &NIBBLES[usize::from(coefficient)];
            for x in 0..=255_u8 {
                let product = multiply(coefficient, x);
                assert_eq!(affine_byte(AFFINE[usize::from(coefficient)], x, 0), product, "{coefficient} x {x}");
                assert_eq!(nibbles[usize::from(x & 15)] ^ nibbles[16 + usize::from(x >> 4)], product);
            }
        }
    }
}
