//! First inputs of a chain, seeded: families of values that each break another kind of mistake.
//!
//! A value is a hash of (rank, round, index), so every rank can compute every other rank's inputs without exchanging
//! tensors. Later calls of a chain get theirs from [`super::mix`]. Start at [`Pattern::inputs`].

use super::bits::{Format, push};
use super::mix::{pattern, scramble};
use crate::registry::Element;
use std::fmt;

/// A family of first inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// Magnitudes of 2^-5 to 8, no two ranks alike: a wrong order of sums shows in the last bit.
    Bounded,
    /// x and -x on neighbouring ranks, now and then a little apart: what is left is the rounding itself.
    Cancellation,
    /// Subnormals and the smallest normal numbers: flushing to zero shows.
    Subnormals,
    /// Both zeros: a sum that starts from +0 shows.
    Zeros,
    /// Infinities among finite values, of one sign and of both.
    Infinities,
    /// NaNs of many payloads among finite values.
    NaNs,
    /// All ones and their kin: bit patterns that a protocol may have reserved for itself.
    Reserved,
    /// Values up to the largest finite one, of both signs: whether an intermediate sum overflows depends on the order.
    Overflow,
    /// One rank alone is non-zero, another one each element: a missing contribution cannot hide behind others.
    Lone,
}

impl Pattern {
    /// Every pattern, in the order in which rounds take them.
    pub const ALL: &'static [Self] = &[
        Self::Bounded,
        Self::Cancellation,
        Self::Zeros,
        Self::Lone,
        Self::Subnormals,
        Self::Overflow,
        Self::Infinities,
        Self::NaNs,
        Self::Reserved,
    ];

    /// Whether all inputs are finite and no sum of up to 64 of them leaves the range of the type.
    pub const fn tame(self) -> bool {
        matches!(
            self,
            Self::Bounded | Self::Cancellation | Self::Subnormals | Self::Zeros | Self::Lone
        )
    }

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bounded => "bounded",
            Self::Cancellation => "cancellation",
            Self::Subnormals => "subnormals",
            Self::Zeros => "zeros",
            Self::Infinities => "infinities",
            Self::NaNs => "nans",
            Self::Reserved => "reserved",
            Self::Overflow => "overflow",
            Self::Lone => "lone",
        }
    }

    /// Inputs of all ranks, little-endian, `bytes` a rank: a whole number of elements.
    pub fn inputs(self, element: Element, ranks: usize, bytes: u64, seed: u32, round: u32) -> Vec<Vec<u8>> {
        let count = bytes / element.bytes() as u64;
        let format = Format::of(element);
        let place = scramble(seed ^ round.wrapping_mul(0xc2b2_ae3d));
        let one = |rank| {
            let mut input = Vec::with_capacity(bytes as usize);
            for i in 0..count as u32 {
                push(element, self.value(format, rank, ranks as u32, i, place), &mut input);
            }
            input
        };
        (0..ranks as u32).map(one).collect()
    }

    fn value(self, format: Format, rank: u32, ranks: u32, index: u32, place: u32) -> u32 {
        let shared = scramble(place ^ index.wrapping_mul(0x9e37_79b1));
        let own = scramble(shared ^ (rank + 1).wrapping_mul(0x85eb_ca77));
        let bounded = pattern(format, own, false);
        let sign = (own >> 31) * format.sign();
        let now_and_then = (own >> 20) & 7 == 0;
        let fraction = own & format.fraction_mask();
        match self {
            Self::Bounded => bounded,
            Self::Cancellation => {
                // Ranks 2k and 2k+1 share a value; a last one without partner keeps its own.
                let pair = scramble(shared ^ (rank / 2 + 1).wrapping_mul(0x27d4_eb2f));
                let value = pattern(format, pair, false) ^ u32::from(now_and_then);
                if rank % 2 == 1 { value ^ format.sign() } else { value }
            }
            Self::Subnormals => sign | (own & (2 * format.fraction_mask() + 1)),
            Self::Zeros => sign,
            Self::Infinities if now_and_then => {
                // Half of the elements see one sign only, so that an infinity may survive.
                let sign = if shared & 1 == 0 {
                    (shared >> 31) * format.sign()
                } else {
                    sign
                };
                sign | format.infinity()
            }
            Self::NaNs if now_and_then => sign | format.infinity() | fraction.max(1),
            Self::Reserved if now_and_then => {
                let ones = format.sign() - 1;
                let quiet = format.infinity() | (1 << (format.fraction - 1));
                [ones, format.sign() | ones, ones - 1, quiet][(own & 3) as usize]
            }
            Self::Infinities | Self::NaNs | Self::Reserved => bounded,
            Self::Overflow => sign | (format.infinity() - (1 << format.fraction)) | fraction,
            Self::Lone => {
                if shared % ranks.max(1) == rank {
                    bounded
                } else {
                    0
                }
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bits::words;
    use super::*;
    use half::f16;

    fn values(pattern: Pattern, ranks: usize, round: u32) -> Vec<Vec<f16>> {
        let bytes = pattern.inputs(Element::F16, ranks, 4096, 7, round);
        bytes
            .iter()
            .map(|b| b.chunks_exact(2).map(|c| f16::from_le_bytes([c[0], c[1]])).collect())
            .collect()
    }

    #[test]
    fn every_pattern_differs_by_round_and_rank() {
        for &element in Element::ALL {
            for &pattern in Pattern::ALL {
                let of = |round| pattern.inputs(element, 4, 512, 1, round);
                let (a, b) = (of(0), of(1));
                assert_ne!(a, b, "{element} {pattern}");
                assert_ne!(a[0], a[1], "{element} {pattern}");
            }
        }
    }

    #[test]
    fn patterns_hold_what_their_names_say() {
        let any = |p, f: fn(f16) -> bool| values(p, 4, 0).iter().flatten().any(|v| f(*v));
        assert!(any(Pattern::Zeros, |v| v.to_bits() == 0x8000) && any(Pattern::Zeros, |v| v.to_bits() == 0));
        assert!(
            any(Pattern::Infinities, |v| v == f16::INFINITY) && any(Pattern::Infinities, |v| v == f16::NEG_INFINITY)
        );
        assert!(any(Pattern::NaNs, f16::is_nan));
        assert!(any(Pattern::Reserved, |v| v.to_bits() == 0x7fff));
        assert!(any(Pattern::Subnormals, |v| v.is_normal()) && any(Pattern::Subnormals, |v| !v.is_normal()));
        let lone = values(Pattern::Lone, 5, 0);
        for i in 0..2048 {
            assert_eq!(lone.iter().filter(|r| r[i] != f16::ZERO).count(), 1);
        }
        let pairs = values(Pattern::Cancellation, 2, 0);
        let exact = pairs[0].iter().zip(&pairs[1]).filter(|(a, b)| **a == -**b).count();
        assert!((1024..2048).contains(&exact), "{exact}");
        for &tame in Pattern::ALL.iter().filter(|p| p.tame()) {
            assert!(
                values(tame, 64, 3).iter().flatten().all(|v| v.to_f32().abs() <= 8.0),
                "{tame}"
            );
        }
    }

    #[test]
    fn every_type_sees_its_own_ends_of_the_range() {
        for &element in Element::ALL {
            let format = Format::of(element);
            let holds = |pattern: Pattern, wanted: &dyn Fn(u32) -> bool| {
                let inputs = pattern.inputs(element, 4, 16 << 10, 7, 0);
                inputs.iter().flat_map(|b| words(element, b)).any(wanted)
            };
            let all_ones = format.sign() | (format.sign() - 1);
            assert!(holds(Pattern::Reserved, &|w| w == all_ones), "{element}");
            assert!(holds(Pattern::NaNs, &|w| format.is_nan(w)), "{element}");
            assert!(holds(Pattern::Infinities, &|w| w == format.infinity()), "{element}");
            assert!(
                holds(Pattern::Subnormals, &|w| w & (format.sign() - 1)
                    <= format.fraction_mask()),
                "{element}"
            );
            let top = format.infinity() - (1 << format.fraction);
            assert!(holds(Pattern::Overflow, &|w| w & format.infinity() == top), "{element}");
        }
    }

    #[test]
    fn words_of_all_ones_come_in_16_bit_types_too() {
        for element in [Element::F16, Element::Bf16] {
            let inputs = Pattern::Reserved.inputs(element, 4, 64 << 10, 1, 0);
            let ones = inputs
                .iter()
                .flat_map(|b| b.chunks_exact(4))
                .filter(|w| **w == [0xff; 4]);
            assert!(ones.count() > 0, "{element}: sentinels are never tempted");
        }
    }
}
