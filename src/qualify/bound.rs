//! Whether a sum in an unknown order can be right: the error bound around the FP64 sum.
//!
//! For collectives that promise no order. It never says that a result is exact; where values leave the finite range it
//! only says which class (finite, an infinity, NaN) some order could give. Start at [`ErrorBound::check`].
//!
//! With f16 inputs and at most 64 ranks the FP64 sums are exact: multiples of 2^-24 below 2^23 take 47 bits.

use super::reference::decode;
use crate::registry::Partials;
use half::f16;
use std::fmt;

/// Beyond this an f16 rounds to infinity.
const LIMIT: f64 = 65520.0;

/// How far a sum over `ranks` f16 inputs may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBound {
    ranks: usize,
    /// Rounding unit of the sums.
    unit: f64,
    /// Whether a partial sum can overflow, not only the result.
    narrow: bool,
}

/// Rounding unit of the f16 output.
const UNIT_OUT: f64 = 1.0 / 2048.0;
/// Half the smallest f16.
const ETA: f64 = 1.0 / 33_554_432.0;

/// A result that no order of sums gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// The first such element.
    pub element: usize,
    /// What came, as bits.
    pub got: u16,
    /// What was allowed there.
    pub allowed: Allowed,
    /// How many such elements there are.
    pub count: usize,
}

/// Results that some order of sums gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowed {
    /// The FP64 sum and the distance from it, where a finite result is possible.
    pub finite: Option<(f64, f64)>,
    /// Whether +infinity is possible.
    pub plus: bool,
    /// Whether -infinity is possible.
    pub minus: bool,
    /// Whether NaN is possible.
    pub nan: bool,
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some((sum, off)) = self.finite {
            parts.push(format!("{sum} +- {off:.3e}"));
        }
        for (allowed, name) in [(self.plus, "+inf"), (self.minus, "-inf"), (self.nan, "NaN")] {
            if allowed {
                parts.push(name.to_owned());
            }
        }
        f.write_str(&parts.join(" or "))
    }
}

impl fmt::Display for Outlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            element,
            got,
            allowed,
            count,
        } = self;
        write!(
            f,
            "element {element} is {} ({got:#06x}), allowed is {allowed}; {count} such elements",
            f16::from_bits(*got)
        )
    }
}

impl ErrorBound {
    /// For sums rounded to `partials` and results rounded to f16. With f16 sums `ranks` must be below 2049, which 64 is.
    pub fn new(ranks: usize, partials: Partials) -> Self {
        let unit = match partials {
            Partials::F16 => 1.0 / 2048.0,
            Partials::F32 => 1.0 / 16_777_216.0,
        };
        Self {
            ranks,
            unit,
            narrow: partials == Partials::F16,
        }
    }

    /// Relative error of the sum of `count` values.
    fn gamma(&self, count: usize) -> f64 {
        let k = count.saturating_sub(1) as f64 * self.unit;
        if k < 1.0 { k / (1.0 - k) } else { f64::INFINITY }
    }

    /// What some order of sums gives for these inputs, one a rank.
    pub fn allowed(&self, inputs: impl IntoIterator<Item = f16>) -> Allowed {
        let (mut plus, mut minus, mut nan) = (false, false, false);
        let (mut up, mut down) = (0.0_f64, 0.0_f64);
        let (mut ups, mut downs) = (0, 0);
        for value in inputs {
            let v = value.to_f64();
            match v {
                _ if v.is_nan() => nan = true,
                f64::INFINITY => plus = true,
                f64::NEG_INFINITY => minus = true,
                _ if v > 0.0 => (up, ups) = (up + v, ups + 1),
                _ if v < 0.0 => (down, downs) = (down - v, downs + 1),
                _ => {}
            }
        }
        if nan || (plus && minus) {
            return Allowed {
                finite: None,
                plus: false,
                minus: false,
                nan: true,
            };
        }
        let (sum, total) = (up - down, up + down);
        // How far the sum can be off before it is rounded to the output.
        let before = self.gamma(self.ranks) * total;
        let off = before * (1.0 + UNIT_OUT) + UNIT_OUT * sum.abs() + self.ranks as f64 * ETA;
        // The largest partial sum of one sign: rounding is monotonic, so no order does better than without the other
        // sign's values. f32 partials of f16 inputs never overflow.
        let reach = |side: f64, count| self.narrow && side * (1.0 + self.gamma(count)) >= LIMIT;
        let (over, under) = (reach(up, ups), reach(down, downs));
        if plus || minus {
            // One infinity wins unless the other one can arise on the way.
            return Allowed {
                finite: None,
                plus,
                minus,
                nan: (plus && under) || (minus && over),
            };
        }
        Allowed {
            finite: (sum.abs() - before < LIMIT).then_some((sum, off)),
            plus: over || sum + before >= LIMIT,
            minus: under || before - sum >= LIMIT,
            nan: over && under,
        }
    }

    /// Checks a whole output against all ranks' inputs, little-endian f16 of one length.
    ///
    /// # Errors
    /// The first element that no order of sums gives, and how many there are. A different length counts as such.
    pub fn check(&self, inputs: &[Vec<u8>], output: &[u8]) -> Result<(), Outlier> {
        let inputs: Vec<Vec<f16>> = inputs.iter().map(|b| decode(b)).collect();
        let output = decode(output);
        let mut first: Option<Outlier> = None;
        let mut count = 0;
        for (element, got) in output.iter().enumerate() {
            let allowed = self.allowed(inputs.iter().map(|r| r.get(element).copied().unwrap_or(f16::NAN)));
            if !allowed.contains(*got) {
                count += 1;
                first.get_or_insert(Outlier {
                    element,
                    got: got.to_bits(),
                    allowed,
                    count,
                });
            }
        }
        match first {
            Some(first) => Err(Outlier { count, ..first }),
            None => Ok(()),
        }
    }
}

impl Allowed {
    /// Whether this result is among them.
    pub fn contains(&self, got: f16) -> bool {
        let v = got.to_f64();
        if v.is_nan() {
            self.nan
        } else if v.is_infinite() {
            if v > 0.0 { self.plus } else { self.minus }
        } else {
            self.finite.is_some_and(|(sum, off)| (v - sum).abs() <= off)
        }
    }
}
