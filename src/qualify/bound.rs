//! Whether a sum in an unknown order can be right: the error bound around the FP64 sum.
//!
//! For collectives that promise no order. It never says that a result is exact; where values leave the finite range it
//! only says which class (finite, an infinity, NaN) some order could give. Start at [`ErrorBound::check`].
//!
//! With f16 inputs and at most 64 ranks the FP64 sums are exact: multiples of 2^-24 below 2^23 take 47 bits. With bf16 and
//! f32 inputs they are not, so the bound has the FP64 sums' own error in it.

use super::bits::{Bits, Format, decode, words};
use crate::registry::{Element, Partials};
use std::fmt;

/// How far a sum over `ranks` inputs may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBound {
    ranks: usize,
    element: Element,
    /// Rounding unit of the sums.
    unit: f64,
    /// From here on a partial sum is infinite.
    sum_limit: f64,
    /// Rounding unit of the output.
    unit_out: f64,
    /// Half the smallest output.
    eta: f64,
    /// From here on an output is infinite.
    limit: f64,
}

/// Rounding unit of FP64, in which the sum to compare with is made.
const UNIT_REFERENCE: f64 = 1.0 / (1_u64 << 53) as f64;

/// A result that no order of sums gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// The first such element.
    pub element: usize,
    /// What came, as bits.
    pub got: Bits,
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
            "element {element} is {got}, allowed is {allowed}; {count} such elements"
        )
    }
}

impl ErrorBound {
    /// For sums of `element` inputs rounded as `partials` says and results rounded to `element`. At most 64 ranks: with
    /// bf16 sums 257 and more would bound nothing.
    pub fn new(ranks: usize, element: Element, partials: Partials) -> Self {
        let (sums, out) = (Format::of(partials.sums(element)), Format::of(element));
        Self {
            ranks,
            element,
            unit: sums.unit(),
            sum_limit: sums.limit(),
            unit_out: out.unit(),
            eta: out.smallest_half(),
            limit: out.limit(),
        }
    }

    /// Relative error of the sum of `count` values.
    fn gamma(&self, count: usize) -> f64 {
        let k = count.saturating_sub(1) as f64 * self.unit;
        if k < 1.0 { k / (1.0 - k) } else { f64::INFINITY }
    }

    /// What some order of sums gives for these inputs, one a rank.
    pub fn allowed<T: Into<f64>>(&self, inputs: impl IntoIterator<Item = T>) -> Allowed {
        let (mut plus, mut minus, mut nan) = (false, false, false);
        let (mut up, mut down) = (0.0_f64, 0.0_f64);
        let (mut ups, mut downs) = (0, 0);
        for value in inputs {
            let v: f64 = value.into();
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
        let before = (self.gamma(self.ranks) + self.ranks as f64 * UNIT_REFERENCE) * total;
        let off = before * (1.0 + self.unit_out) + self.unit_out * sum.abs() + self.ranks as f64 * self.eta;
        // The largest partial sum of one sign: rounding is monotonic, so no order does better than without the other
        // sign's values. f32 partials of f16 inputs never come near.
        let reach = |side: f64, count| side * (1.0 + self.gamma(count)) >= self.sum_limit;
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
            finite: (sum.abs() - before < self.limit).then_some((sum, off)),
            plus: over || sum + before >= self.limit,
            minus: under || before - sum >= self.limit,
            nan: over && under,
        }
    }

    /// Checks a whole output against all ranks' inputs, little-endian elements of one length.
    ///
    /// # Errors
    /// The first element that no order of sums gives, and how many there are. A different length counts as such.
    pub fn check(&self, inputs: &[Vec<u8>], output: &[u8]) -> Result<(), Outlier> {
        let inputs: Vec<Vec<f32>> = inputs.iter().map(|b| decode(self.element, b)).collect();
        let mut first: Option<Outlier> = None;
        let mut count = 0;
        for (element, bits) in words(self.element, output).enumerate() {
            let got = Bits {
                element: self.element,
                bits,
            };
            let allowed = self.allowed(inputs.iter().map(|r| r.get(element).copied().unwrap_or(f32::NAN)));
            if !allowed.contains(got.value()) {
                count += 1;
                first.get_or_insert(Outlier {
                    element,
                    got,
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
    pub fn contains(&self, got: impl Into<f64>) -> bool {
        let v: f64 = got.into();
        if v.is_nan() {
            self.nan
        } else if v.is_infinite() {
            if v > 0.0 { self.plus } else { self.minus }
        } else {
            self.finite.is_some_and(|(sum, off)| (v - sum).abs() <= off)
        }
    }
}
