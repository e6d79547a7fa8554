//! Elements as bits: the formats of f16, bf16 and f32, reading, comparing, and rounding to them.
//!
//! Everything that qualification knows of a type is here; buffers are little-endian. It sums nothing. Start at [`Format`].

use crate::registry::Element;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::fmt;

/// An IEEE-like binary format: a sign, `exponent` bits with the usual bias, `fraction` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the fraction.
    pub fraction: u32,
}

impl Format {
    /// An element type's.
    pub const fn of(element: Element) -> Self {
        let (exponent, fraction) = match element {
            Element::F16 => (5, 10),
            Element::Bf16 => (8, 7),
            Element::F32 => (8, 23),
        };
        Self { exponent, fraction }
    }

    /// The sign bit.
    pub const fn sign(self) -> u32 {
        1 << (self.exponent + self.fraction)
    }

    /// All bits of the fraction: the largest subnormal number.
    pub const fn fraction_mask(self) -> u32 {
        (1 << self.fraction) - 1
    }

    /// Positive infinity.
    pub const fn infinity(self) -> u32 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// The number 2^`power`, which must be normal.
    pub const fn power_of_two(self, power: i32) -> u32 {
        let bias = (1 << (self.exponent - 1)) - 1;
        ((bias + power) as u32) << self.fraction
    }

    /// Whether these bits are a NaN.
    pub const fn is_nan(self, bits: u32) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }

    /// Whether they are neither infinite nor a NaN.
    pub const fn is_finite(self, bits: u32) -> bool {
        bits & (self.sign() - 1) < self.infinity()
    }

    /// Half a unit in the last place of a number between 1 and 2: how far rounding is off, relatively.
    pub fn unit(self) -> f64 {
        (-f64::from(self.fraction) - 1.0).exp2()
    }

    /// Half of the smallest subnormal number.
    pub fn smallest_half(self) -> f64 {
        let bias = f64::from((1_u32 << (self.exponent - 1)) - 1);
        (-bias - f64::from(self.fraction)).exp2()
    }

    /// From here on numbers round to infinity.
    pub fn limit(self) -> f64 {
        let bias = f64::from((1_u32 << (self.exponent - 1)) - 1);
        bias.exp2() * (2.0 - self.unit())
    }
}

/// One element, shown as bits and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bits {
    /// Its type.
    pub element: Element,
    /// Its bits, in the lower half for 16-bit types.
    pub bits: u32,
}

impl Bits {
    /// The number they stand for; exact, since every type's numbers are f32 too.
    pub fn value(self) -> f32 {
        match self.element {
            Element::F16 => f16::from_bits(self.bits as u16).to_f32(),
            Element::Bf16 => bf16::from_bits(self.bits as u16).to_f32(),
            Element::F32 => f32::from_bits(self.bits),
        }
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = 2 + 2 * self.element.bytes();
        write!(f, "{:#0width$x} ({})", self.bits, self.value())
    }
}

/// The elements of a buffer as bits; a rest too short for one is left out.
pub fn words(element: Element, bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(element.bytes()).map(|c| match *c {
        [a, b] => u32::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    })
}

/// Appends one element.
pub fn push(element: Element, bits: u32, to: &mut Vec<u8>) {
    to.extend_from_slice(&bits.to_le_bytes()[..element.bytes()]);
}

/// Whether two elements are the same bits; all NaNs are one.
pub const fn same(element: Element, a: u32, b: u32) -> bool {
    let format = Format::of(element);
    a == b || (format.is_nan(a) && format.is_nan(b))
}

/// The first element at which two buffers differ, and how many do.
pub fn differences(element: Element, want: &[u8], have: &[u8]) -> Option<(usize, Bits, Bits, usize)> {
    let wrong = |(_, (a, b)): &(usize, (u32, u32))| !same(element, *a, *b);
    let mut all = words(element, want).zip(words(element, have)).enumerate().filter(wrong);
    let (at, (a, b)) = all.next()?;
    let bits = |bits| Bits { element, bits };
    Some((at, bits(a), bits(b), 1 + all.count()))
}

/// A buffer's numbers.
pub fn decode(element: Element, bytes: &[u8]) -> Vec<f32> {
    let halves = || bytes.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]]));
    let mut values = vec![0.0; bytes.len() / element.bytes()];
    match element {
        Element::F16 => halves()
            .map(f16::from_bits)
            .collect::<Vec<_>>()
            .convert_to_f32_slice(&mut values),
        Element::Bf16 => halves()
            .map(bf16::from_bits)
            .collect::<Vec<_>>()
            .convert_to_f32_slice(&mut values),
        Element::F32 => values
            .iter_mut()
            .zip(words(element, bytes))
            .for_each(|(v, bits)| *v = f32::from_bits(bits)),
    }
    values
}

/// Rounds numbers to the nearest of a type, ties to even.
pub fn round(element: Element, values: &mut [f32]) {
    match element {
        Element::F16 => {
            let mut narrow = vec![f16::ZERO; values.len()];
            narrow.convert_from_f32_slice(values);
            narrow.convert_to_f32_slice(values);
        }
        Element::Bf16 => {
            let mut narrow = vec![bf16::ZERO; values.len()];
            narrow.convert_from_f32_slice(values);
            narrow.convert_to_f32_slice(values);
        }
        Element::F32 => {}
    }
}

/// Appends numbers, rounded to the type.
pub fn encode(element: Element, values: &[f32], to: &mut Vec<u8>) {
    match element {
        Element::F16 => {
            let mut narrow = vec![f16::ZERO; values.len()];
            narrow.convert_from_f32_slice(values);
            to.extend(narrow.iter().flat_map(|v| v.to_le_bytes()));
        }
        Element::Bf16 => {
            let mut narrow = vec![bf16::ZERO; values.len()];
            narrow.convert_from_f32_slice(values);
            to.extend(narrow.iter().flat_map(|v| v.to_le_bytes()));
        }
        Element::F32 => to.extend(values.iter().flat_map(|v| v.to_le_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_the_types() {
        for (element, largest, smallest, one) in [
            (
                Element::F16,
                f16::MAX.to_f64(),
                f16::MIN_POSITIVE_SUBNORMAL.to_f64(),
                0x3c00,
            ),
            (Element::Bf16, bf16::MAX.to_f64(), bf16::from_bits(1).to_f64(), 0x3f80),
            (
                Element::F32,
                f64::from(f32::MAX),
                f64::from(f32::from_bits(1)),
                0x3f80_0000,
            ),
        ] {
            let f = Format::of(element);
            assert_eq!(f.power_of_two(0), one, "{element}");
            assert_eq!(2.0 * f.smallest_half(), smallest, "{element}");
            // Half an ulp above the largest number.
            assert_eq!(
                f.limit() - largest,
                largest / (2.0 - 2.0 * f.unit()) * f.unit(),
                "{element}"
            );
            let value = |bits| Bits { element, bits }.value();
            assert_eq!(f64::from(value(f.infinity() - 1)), largest, "{element}");
            assert!(value(f.infinity()).is_infinite() && value(f.infinity() | 1).is_nan());
            assert!(f.is_nan(f.sign() | f.infinity() | 1) && !f.is_nan(f.sign() | f.infinity()));
            assert!(f.is_finite(f.sign()) && !f.is_finite(f.infinity()));
        }
    }

    #[test]
    fn numbers_survive_being_written_and_read() {
        for &element in Element::ALL {
            let values = [0.0, -0.0, 1.5, -2.25, f32::INFINITY];
            let mut bytes = Vec::new();
            encode(element, &values, &mut bytes);
            assert_eq!(bytes.len(), 5 * element.bytes());
            assert_eq!(decode(element, &bytes), values);
            let mut again = Vec::new();
            words(element, &bytes).for_each(|bits| push(element, bits, &mut again));
            assert_eq!(again, bytes);
            assert_eq!(differences(element, &bytes, &again), None);
            again[element.bytes()] ^= 1;
            let (at, _, got, count) = differences(element, &bytes, &again).expect("one differs");
            assert_eq!((at, count, got.element), (1, 1, element));
        }
    }

    #[test]
    fn elements_are_shown_with_all_their_digits() {
        let shown = |element, bits| Bits { element, bits }.to_string();
        assert_eq!(shown(Element::F16, 0x3c00), "0x3c00 (1)");
        assert_eq!(
            shown(Element::Bf16, 0x00c0),
            "0x00c0 (0.000000000000000000000000000000000000017632415)"
        );
        assert_eq!(shown(Element::F32, 0x3f80_0000), "0x3f800000 (1)");
    }
}
