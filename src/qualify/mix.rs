//! The mixing node: makes a call's inputs from the previous call's outputs.
//!
//! Inputs must differ per rank and call and depend on every output bit, and stay bounded: plain repeated sums run to
//! infinity within 16 calls and check nothing. kernels/tools.cu holds the same function: change both together.

/// One f16 input from one f16 output, both as bits.
pub fn mix_f16(output: u16, index: u32, rank: u32, call: u32, seed: u32, specials: bool) -> u16 {
    // A NaN's payload is nobody's promise.
    let output = if output & 0x7fff > 0x7c00 { 0x7fff } else { output };
    let place = seed ^ index.wrapping_mul(0x9e37_79b1);
    let who = rank
        .wrapping_mul(0x85eb_ca77)
        .wrapping_add(call.wrapping_mul(0xc2b2_ae3d));
    let hash = scramble(scramble(scramble(place) ^ who) ^ u32::from(output).wrapping_mul(0x27d4_eb2f));
    pattern_f16(hash, specials)
}

/// A value from 32 random bits: magnitudes of 2^-5 to 8, and with `specials` one in 128 of the values that break things.
pub fn pattern_f16(hash: u32, specials: bool) -> u16 {
    if specials && (hash >> 17) & 0x7f == 0 {
        return SPECIALS[((hash >> 13) & 0xf) as usize];
    }
    let sign = (hash >> 31) << 15;
    let exponent = (10 + ((hash >> 10) & 7)) << 10;
    (sign | exponent | (hash & 0x3ff)) as u16
}

/// Both zeros, subnormals, the ends of the range, infinities, a NaN and the reserved pattern.
pub const SPECIALS: [u16; 16] = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7fff, 0x0400, 0x8400,
    0x3c00, 0xbc00,
];

/// A bijection of 32-bit words that spreads every bit.
pub const fn scramble(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// Applies [`mix_f16`] to a whole buffer of little-endian f16.
pub fn mix_buffer(output: &[u8], rank: usize, call: u32, seed: u32, specials: bool, input: &mut Vec<u8>) {
    input.clear();
    for (index, pair) in output.chunks_exact(2).enumerate() {
        let bits = u16::from_le_bytes([pair[0], pair[1]]);
        input.extend(mix_f16(bits, index as u32, rank as u32, call, seed, specials).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_bounded_and_differ_by_rank_call_and_output() {
        for i in 0..10_000 {
            let v = half::f16::from_bits(mix_f16(0x3c00, i, 1, 2, 3, false)).to_f32();
            assert!(v.abs() >= 1.0 / 32.0 && v.abs() < 8.0, "{v}");
        }
        let base: Vec<u16> = (0..64).map(|i| mix_f16(0x3c00, i, 0, 0, 9, false)).collect();
        for (output, rank, call) in [(0x3c01, 0, 0), (0x3c00, 1, 0), (0x3c00, 0, 1)] {
            let other: Vec<u16> = (0..64).map(|i| mix_f16(output, i, rank, call, 9, false)).collect();
            let same = base.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 4, "{same} of 64 equal");
        }
    }

    #[test]
    fn any_nan_mixes_like_any_other() {
        assert_eq!(mix_f16(0x7e00, 5, 0, 0, 1, true), mix_f16(0xfdab, 5, 0, 0, 1, true));
        assert_ne!(mix_f16(0x7c00, 5, 0, 0, 1, false), mix_f16(0x7e00, 5, 0, 0, 1, false));
    }
}
