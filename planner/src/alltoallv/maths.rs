//! Powers, roots and seeded numbers from additions, multiplications and divisions alone.
//!
//! Every rank must come to the same plan, so nothing here calls the platform's mathematics library: IEEE 754 fixes the
//! result of `+ - * /` and of the square root to the last bit, and operations keep a fixed order. Start at [`power`].

/// `base` to the power `exponent` for a base of 1 or more, relative error under 1e-12.
pub fn power(base: f64, exponent: f64) -> f64 {
    exp2(exponent * log2(base))
}

/// Base-2 logarithm of a normal positive number; 0 for anything else.
pub fn log2(x: f64) -> f64 {
    if !(x.is_normal() && x > 0.0) {
        return 0.0;
    }
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | (1023 << 52));
    // To within a factor of the square root of two from 1, where the series is short.
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    // ln m = 2 atanh((m - 1) / (m + 1))
    let z = (m - 1.0) / (m + 1.0);
    let square = z * z;
    let mut sum = 0.0;
    for k in (0..12).rev() {
        sum = sum * square + 1.0 / f64::from(2 * k + 1);
    }
    exponent as f64 + 2.0 * z * sum * std::f64::consts::LOG2_E
}

/// Two to the power `x`; 0 below the smallest normal number, the largest finite number above.
pub fn exp2(x: f64) -> f64 {
    if x.is_nan() || x < -1022.0 {
        return 0.0;
    }
    if x >= 1024.0 {
        return f64::MAX;
    }
    let whole = (x + 1100.0) as i64 - 1100;
    let y = (x - whole as f64) * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for k in (1..20).rev() {
        sum = 1.0 + sum * y / f64::from(k);
    }
    let scale = f64::from_bits(((whole.clamp(-1022, 1023) + 1023) as u64) << 52);
    sum * scale
}

/// The 64th root of a number that is not negative: six square roots, which IEEE 754 rounds exactly.
#[inline]
fn root64(x: f32) -> f32 {
    x.sqrt().sqrt().sqrt().sqrt().sqrt().sqrt()
}

/// `x` to the power 16.
#[inline]
pub const fn to16(x: f32) -> f32 {
    let a = x * x;
    let b = a * a;
    let c = b * b;
    c * c
}

/// Loads over the largest one are stretched so far before they are raised: the sum of thousands still is a float.
const STRETCH: f32 = 3.5;
/// Stretched loads below this count for nothing: their powers would be floats too small to be quick.
const LEAST: f32 = 0.28;
const LEAST_16: f32 = to16(LEAST);
const STRETCH_16: f32 = to16(STRETCH);
const LEAST_64: f32 = LEAST_16 * LEAST_16 * (LEAST_16 * LEAST_16);

/// What a load over the largest one adds to the sum of all to the power 64, from its power 16; [`norm`] of the sum is near the
/// largest.
#[inline]
pub fn raised_from_16(power: f32) -> f32 {
    let stretched = power * STRETCH_16;
    let a = if stretched > LEAST_16 { stretched } else { LEAST_16 };
    let b = a * a;
    b * b - LEAST_64
}

/// The same from the load.
#[inline]
pub fn raised(x: f32) -> f32 {
    // Nothing below the least has to be known.
    raised_from_16(to16(if x > 0.05 { x } else { 0.05 }))
}

/// The 64th root of a sum of raised loads.
#[inline]
pub fn norm(sum: f32) -> f32 {
    root64(sum) * (1.0 / STRETCH)
}

/// A seeded generator (splitmix64): the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Puts a slice into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_agree_with_the_platform_to_twelve_digits() {
        for (base, exponent) in [
            (1.0, -0.6),
            (2.0, -0.6),
            (7.0, -0.4),
            (1024.0, -0.8),
            (3.5, 2.25),
            (1e9, 1.5),
        ] {
            let (own, platform) = (power(base, exponent), f64::powf(base, exponent));
            assert!(
                (own / platform - 1.0).abs() < 1e-12,
                "{base}^{exponent}: {own} {platform}"
            );
        }
        assert_eq!(
            [exp2(-2000.0), exp2(0.0), exp2(10.0), exp2(-3.0)],
            [0.0, 1.0, 1024.0, 0.125]
        );
        assert_eq!(
            [log2(8.0), log2(0.25), log2(0.0), log2(f64::NAN)],
            [3.0, -2.0, 0.0, 0.0]
        );
        for x in [0.1, 0.75, 1.0] {
            assert!((norm(raised(x)) - x).abs() < 1e-6, "{x}");
        }
        assert_eq!([raised(0.0), raised(0.05), norm(0.0)], [0.0; 3]);
        assert!(norm(5000.0 * raised(1.0)).is_finite());
    }

    #[test]
    fn dice_are_the_same_everywhere() {
        let mut dice = Dice::new(1);
        assert_eq!(
            [dice.bits(), dice.bits()],
            [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67]
        );
        assert!((0..1000).all(|_| dice.below(7) < 7) && dice.below(0) == 0);
    }
}
