//! The mixing node: makes a call's inputs from the previous call's outputs.
//!
//! Inputs must differ per rank and call and depend on every output bit, and stay bounded: plain repeated sums run to
//! infinity within 16 calls and check nothing. kernels/tools.cu holds the same function: change both together.

use super::bits::{Format, push, words};
use crate::registry::Element;

/// One input from one output, both as bits.
pub fn mix(element: Element, output: u32, index: u32, rank: u32, call: u32, seed: u32, specials: bool) -> u32 {
    let format = Format::of(element);
    // A NaN's payload is nobody's promise.
    let output = if format.is_nan(output) {
        format.sign() - 1
    } else {
        output
    };
    let place = seed ^ index.wrapping_mul(0x9e37_79b1);
    let who = rank
        .wrapping_mul(0x85eb_ca77)
        .wrapping_add(call.wrapping_mul(0xc2b2_ae3d));
    let hash = scramble(scramble(scramble(place) ^ who) ^ output.wrapping_mul(0x27d4_eb2f));
    pattern(format, hash, specials)
}

/// [`mix`] for f16.
pub fn mix_f16(output: u16, index: u32, rank: u32, call: u32, seed: u32, specials: bool) -> u16 {
    mix(Element::F16, u32::from(output), index, rank, call, seed, specials) as u16
}

/// A value from 32 random bits: magnitudes of 2^-5 to 8, and with `specials` one in 128 of the values that break things.
pub const fn pattern(format: Format, hash: u32, specials: bool) -> u32 {
    if specials && (hash >> 17) & 0x7f == 0 {
        return special(format, (hash >> 13) & 0xf);
    }
    let sign = (hash >> 31) * format.sign();
    let exponent = format.power_of_two(-5) + (((hash >> 10) & 7) << format.fraction);
    // Bits of a long fraction must not repeat those of sign and exponent.
    let fraction = if format.fraction > 10 {
        scramble(hash ^ 0x5bd1_e995)
    } else {
        hash
    };
    sign | exponent | (fraction & format.fraction_mask())
}

/// Both zeros, subnormals, the ends of the range, infinities, a NaN and the reserved pattern; 16 of them.
pub const fn special(format: Format, index: u32) -> u32 {
    let magnitude = match index >> 1 {
        0 => 0,
        1 => 1,
        2 => format.fraction_mask(),
        3 => format.infinity() - 1,
        4 => format.infinity(),
        5 if index & 1 == 0 => return format.infinity() | (1 << (format.fraction - 1)),
        5 => return format.sign() - 1,
        6 => 1 << format.fraction,
        _ => format.power_of_two(0),
    };
    magnitude | ((index & 1) * format.sign())
}

/// A bijection of 32-bit words that spreads every bit.
pub const fn scramble(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// Which inputs a mixing node makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixing {
    /// Type of the buffer.
    pub element: Element,
    /// Of all mixing of a chain.
    pub seed: u32,
    /// Whether infinities, NaNs and other special values may come.
    pub specials: bool,
}

impl Mixing {
    /// Applies [`mix`] to a whole buffer.
    pub fn buffer(self, output: &[u8], rank: usize, call: u32, input: &mut Vec<u8>) {
        let Self {
            element,
            seed,
            specials,
        } = self;
        input.clear();
        for (index, bits) in words(element, output).enumerate() {
            let mixed = mix(element, bits, index as u32, rank as u32, call, seed, specials);
            push(element, mixed, input);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bits::Bits;
    use super::*;

    #[test]
    fn values_stay_bounded_and_differ_by_rank_call_and_output() {
        for &element in Element::ALL {
            let one = Format::of(element).power_of_two(0);
            let value = |bits| Bits { element, bits }.value();
            for i in 0..10_000 {
                let v = value(mix(element, one, i, 1, 2, 3, false));
                assert!(v.abs() >= 1.0 / 32.0 && v.abs() < 8.0, "{element} {v}");
            }
            let base: Vec<u32> = (0..64).map(|i| mix(element, one, i, 0, 0, 9, false)).collect();
            for (output, rank, call) in [(one + 1, 0, 0), (one, 1, 0), (one, 0, 1)] {
                let other: Vec<u32> = (0..64).map(|i| mix(element, output, i, rank, call, 9, false)).collect();
                let same = base.iter().zip(&other).filter(|(a, b)| a == b).count();
                assert!(same < 4, "{element}: {same} of 64 equal");
            }
        }
    }

    #[test]
    fn any_nan_mixes_like_any_other() {
        assert_eq!(mix_f16(0x7e00, 5, 0, 0, 1, true), mix_f16(0xfdab, 5, 0, 0, 1, true));
        assert_ne!(mix_f16(0x7c00, 5, 0, 0, 1, false), mix_f16(0x7e00, 5, 0, 0, 1, false));
        let f32 = |bits| mix(Element::F32, bits, 5, 0, 0, 1, true);
        assert_eq!(f32(0x7fc0_0000), f32(0xff80_0001));
    }

    #[test]
    fn special_values_are_the_ones_that_break_things() {
        let f16: Vec<u32> = (0..16).map(|i| special(Format::of(Element::F16), i)).collect();
        let expected = [
            0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7fff, 0x0400,
            0x8400, 0x3c00, 0xbc00,
        ];
        assert_eq!(f16, expected);
        assert_eq!(special(Format::of(Element::Bf16), 10), 0x7fc0);
        assert_eq!(special(Format::of(Element::F32), 7), 0xff7f_ffff);
    }
}
