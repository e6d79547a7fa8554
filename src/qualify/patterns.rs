//! First inputs of a chain, seeded: families of values that each break another kind of mistake.
//!
//! A value is a hash of (rank, round, index), so every rank can compute every other rank's inputs without exchanging
//! tensors. Later calls of a chain get theirs from [`super::mix`]. Start at [`Pattern::inputs`].

use super::mix::{pattern_f16, scramble};
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
    /// 0x7fff and its kin: bit patterns that a protocol may have reserved for itself.
    Reserved,
    /// Values around 65504 of both signs: whether an intermediate sum overflows depends on the order.
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

    /// Whether all inputs are finite and no sum of up to 64 of them leaves the range of f16.
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

    /// Inputs of all ranks, little-endian f16, `bytes` (even) a rank.
    pub fn inputs(self, ranks: usize, bytes: u64, seed: u32, round: u32) -> Vec<Vec<u8>> {
        let count = bytes / 2;
        let place = scramble(seed ^ round.wrapping_mul(0xc2b2_ae3d));
        (0..ranks as u32)
            .map(|rank| {
                (0..count as u32)
                    .flat_map(|i| self.value(rank, ranks as u32, i, place).to_le_bytes())
                    .collect()
            })
            .collect()
    }

    fn value(self, rank: u32, ranks: u32, index: u32, place: u32) -> u16 {
        let shared = scramble(place ^ index.wrapping_mul(0x9e37_79b1));
        let own = scramble(shared ^ (rank + 1).wrapping_mul(0x85eb_ca77));
        let bounded = pattern_f16(own, false);
        let sign = ((own >> 31) << 15) as u16;
        let now_and_then = (own >> 20) & 7 == 0;
        match self {
            Self::Bounded => bounded,
            Self::Cancellation => {
                // Ranks 2k and 2k+1 share a value; a last one without partner keeps its own.
                let pair = scramble(shared ^ (rank / 2 + 1).wrapping_mul(0x27d4_eb2f));
                let value = pattern_f16(pair, false) ^ u16::from(now_and_then);
                if rank % 2 == 1 { value ^ 0x8000 } else { value }
            }
            Self::Subnormals => sign | (own & 0x7ff) as u16,
            Self::Zeros => sign,
            Self::Infinities if now_and_then => {
                // Half of the elements see one sign only, so that an infinity may survive.
                let sign = if shared & 1 == 0 {
                    ((shared >> 31) << 15) as u16
                } else {
                    sign
                };
                sign | 0x7c00
            }
            Self::NaNs if now_and_then => sign | 0x7c00 | ((own & 0x3ff) as u16).max(1),
            Self::Reserved if now_and_then => [0x7fff, 0xffff, 0x7ffe, 0x7e00][(own & 3) as usize],
            Self::Infinities | Self::NaNs | Self::Reserved => bounded,
            Self::Overflow => sign | (0x7800 + (own & 0x3ff) as u16),
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
    use super::*;
    use half::f16;

    fn values(pattern: Pattern, ranks: usize, round: u32) -> Vec<Vec<f16>> {
        let bytes = pattern.inputs(ranks, 4096, 7, round);
        bytes
            .iter()
            .map(|b| b.chunks_exact(2).map(|c| f16::from_le_bytes([c[0], c[1]])).collect())
            .collect()
    }

    #[test]
    fn every_pattern_differs_by_round_and_rank() {
        for &pattern in Pattern::ALL {
            let (a, b) = (pattern.inputs(4, 512, 1, 0), pattern.inputs(4, 512, 1, 1));
            assert_ne!(a, b, "{pattern}");
            assert_ne!(a[0], a[1], "{pattern}");
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
}
