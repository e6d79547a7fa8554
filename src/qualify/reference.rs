//! The exact result of a declared expression, bit by bit, on the CPU.
//!
//! It follows the declared order and rounds where the declaration says, never anywhere else, and asks no device.
//! Expressions are evaluated over whole blocks of elements, not element by element. Start at [`Reference`].
//!
//! **Why f16 sums may go through f32.** An f32 sum of two f16 numbers is not always exact (65504 + 2^-24 needs 40
//! bits), yet rounding it once more to f16 gives the correctly rounded sum. Normal results: rounding first to P bits,
//! then to p, is innocuous for a sum if P >= 2p + 2, and 24 >= 2 * 11 + 2. Subnormal results: every f16 is a multiple of
//! 2^-24, so such a sum is an f16 already and nothing is rounded at all. Overflow: both see the same value against
//! 65520, the f32 rounding being monotonic and 65520 being an f32. The tests compare with an independent integer sum.
//! The same holds for bf16: 24 >= 2 * 8 + 2, every bf16 is a multiple of 2^-133, and the limit is an f32.

use super::bits::{decode, encode, round};
use crate::registry::{Element, Partials, Variant};
use std::fmt;
use std::ops::Range;
use topoforge_planner::schedule::Expression;
use topoforge_planner::schedule::expression::Step;

/// Elements evaluated at once: a block of every operand stays in cache.
const BLOCK: usize = 2048;

/// What a variant declares, checked and ready to be evaluated.
#[derive(Clone, Debug)]
pub struct Reference {
    element: Element,
    ranks: usize,
    chunks: usize,
    expressions: Vec<Expression>,
    /// For `rank * chunks + chunk`.
    of: Vec<usize>,
}

/// Why a variant's declaration cannot be a reference. The fault of whoever made the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadExpression {
    /// The text does not parse.
    Syntax {
        /// The text.
        text: String,
        /// Where and what was expected.
        fault: String,
    },
    /// It is not a sum of every rank's input exactly once.
    Contributions {
        /// The text.
        text: String,
        /// How often each rank occurs.
        counts: Vec<u32>,
    },
    /// It says for no policy of partials what it computes.
    NoPartials,
    /// The table from rank and chunk to expression is incomplete or points nowhere.
    Table {
        /// Entries that it has.
        entries: usize,
        /// Ranks times chunks.
        wanted: usize,
    },
}

impl fmt::Display for BadExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { text, fault } => write!(f, "declared expression `{text}` does not parse: {fault}"),
            Self::Contributions { text, counts } => {
                write!(
                    f,
                    "declared expression `{text}` must hold every rank once, it has {counts:?}"
                )
            }
            Self::NoPartials => f.write_str("no policy of partials is declared, so nothing can be compared"),
            Self::Table { entries, wanted } => {
                write!(
                    f,
                    "the table of expressions has {entries} usable entries, ranks times chunks are {wanted}"
                )
            }
        }
    }
}

impl std::error::Error for BadExpression {}

impl Reference {
    /// Reads and checks what `variant` declares.
    ///
    /// # Errors
    /// An expression does not parse or is no all-reduce, or the table is incomplete.
    pub fn new(variant: &Variant) -> Result<Self, BadExpression> {
        if variant.partials.is_empty() {
            return Err(BadExpression::NoPartials);
        }
        let (ranks, chunks) = (variant.ranks.len(), variant.chunks as usize);
        let expressions = variant
            .expressions
            .iter()
            .map(|text| checked(text, ranks))
            .collect::<Result<Vec<_>, _>>()?;
        let of: Vec<usize> = variant.expression_of.iter().map(|&i| usize::from(i)).collect();
        let usable = of.iter().filter(|&&i| i < expressions.len()).count();
        if usable != of.len() || usable != ranks * chunks || usable == 0 {
            return Err(BadExpression::Table {
                entries: usable,
                wanted: ranks * chunks,
            });
        }
        Ok(Self {
            element: variant.element,
            ranks,
            chunks,
            expressions,
            of,
        })
    }

    /// One expression for all ranks and the whole payload of elements of one type.
    ///
    /// # Errors
    /// It does not parse or is no all-reduce of `ranks` ranks.
    pub fn single(text: &str, ranks: usize, element: Element) -> Result<Self, BadExpression> {
        Ok(Self {
            element,
            ranks,
            chunks: 1,
            expressions: vec![checked(text, ranks)?],
            of: vec![0; ranks],
        })
    }

    /// Outputs of all ranks from inputs of all ranks, little-endian, all of one length.
    pub fn outputs(&self, inputs: &[Vec<u8>], partials: Partials) -> Vec<Vec<u8>> {
        let bytes = inputs.first().map_or(0, Vec::len);
        let elements: Vec<Vec<f32>> = inputs.iter().map(|b| decode(self.element, b)).collect();
        let mut outputs: Vec<Vec<u8>> = Vec::with_capacity(self.ranks);
        for rank in 0..self.ranks {
            let mine = &self.of[rank * self.chunks..(rank + 1) * self.chunks];
            // Ranks that declare the same get the same: computed once.
            let twin = (0..rank).find(|&r| &self.of[r * self.chunks..(r + 1) * self.chunks] == mine);
            let output = match twin {
                Some(twin) => outputs[twin].clone(),
                None => {
                    let mut output = vec![0.0; bytes / self.element.bytes()];
                    for (chunk, &expression) in mine.iter().enumerate() {
                        let range = self.chunk(chunk, bytes);
                        self.evaluate(&self.expressions[expression], &elements, partials, range, &mut output);
                    }
                    let mut bits = Vec::with_capacity(bytes);
                    encode(self.element, &output, &mut bits);
                    bits
                }
            };
            outputs.push(output);
        }
        outputs
    }

    /// Elements of a chunk: equal numbers of 16-byte vectors a chunk, the last chunks cut or empty.
    fn chunk(&self, chunk: usize, bytes: usize) -> Range<usize> {
        let size = 16 / self.element.bytes() * bytes.div_ceil(16).div_ceil(self.chunks);
        let end = bytes / self.element.bytes();
        (chunk * size).min(end)..((chunk + 1) * size).min(end)
    }

    /// Evaluates over `range`, block by block. All values are kept as f32: an f16 or bf16 is one too.
    fn evaluate(
        &self,
        e: &Expression,
        inputs: &[Vec<f32>],
        partials: Partials,
        range: Range<usize>,
        output: &mut [f32],
    ) {
        let sums = partials.sums(self.element);
        let mut stack: Vec<Vec<f32>> = Vec::new();
        let mut spare: Vec<Vec<f32>> = Vec::new();
        let mut start = range.start;
        while start < range.end {
            let block = start..(start + BLOCK).min(range.end);
            for step in e.steps() {
                match *step {
                    Step::Input(rank) => {
                        let mut top = spare.pop().unwrap_or_default();
                        top.clear();
                        top.extend_from_slice(&inputs[rank][block.clone()]);
                        stack.push(top);
                    }
                    Step::Sum => {
                        if let (Some(b), Some(a)) = (stack.pop(), stack.last_mut()) {
                            a.iter_mut().zip(&b).for_each(|(a, b)| *a += b);
                            round(sums, a);
                            spare.push(b);
                        }
                    }
                    Step::Round => {
                        if let Some(top) = stack.last_mut() {
                            round(self.element, top);
                        }
                    }
                }
            }
            if let Some(top) = stack.pop() {
                output[block.clone()].copy_from_slice(&top);
                spare.push(top);
            }
            start = block.end;
        }
    }
}

fn checked(text: &str, ranks: usize) -> Result<Expression, BadExpression> {
    let expression = Expression::parse(text).map_err(|fault| BadExpression::Syntax {
        text: text.to_owned(),
        fault: fault.to_string(),
    })?;
    let counts = expression.contributions(ranks);
    if counts.len() != ranks || counts.iter().any(|&c| c != 1) {
        return Err(BadExpression::Contributions {
            text: text.to_owned(),
            counts,
        });
    }
    Ok(expression)
}

#[cfg(test)]
mod tests {
    use super::super::bits::{self, Format, words};
    use super::super::mix::{scramble, special};
    use super::*;
    use half::f16;
    use std::time::Instant;

    fn same(a: u16, b: u16) -> bool {
        bits::same(Element::F16, u32::from(a), u32::from(b))
    }

    fn pair(text: &str, inputs: &[u16], partials: Partials) -> u16 {
        let inputs: Vec<Vec<u8>> = inputs.iter().map(|v| v.to_le_bytes().to_vec()).collect();
        let outputs = Reference::single(text, inputs.len(), Element::F16)
            .expect("valid")
            .outputs(&inputs, partials);
        u16::from_le_bytes([outputs[0][0], outputs[0][1]])
    }

    /// A sum rounded to nearest even with integers only: f16 are multiples of 2^-24.
    fn integer_sum(a: u16, b: u16) -> u16 {
        let parts = |v: u16| (v >> 15 == 1, (v >> 10) & 31, i64::from(v & 0x3ff));
        let ((sa, ea, ma), (sb, eb, mb)) = (parts(a), parts(b));
        let nan = |e: u16, m: i64| e == 31 && m != 0;
        if nan(ea, ma) || nan(eb, mb) || (ea == 31 && eb == 31 && sa != sb) {
            return 0x7e00;
        }
        if ea == 31 || eb == 31 {
            return if ea == 31 { a } else { b };
        }
        let fixed = |s: bool, e: u16, m: i64| {
            let magnitude = if e == 0 { m } else { (m + 1024) << (e - 1) };
            if s { -magnitude } else { magnitude }
        };
        let sum = fixed(sa, ea, ma) + fixed(sb, eb, mb);
        if sum == 0 {
            return if sa && sb { 0x8000 } else { 0 };
        }
        let sign = if sum < 0 { 0x8000 } else { 0 };
        let magnitude = sum.unsigned_abs();
        let shift = (64 - magnitude.leading_zeros()).saturating_sub(11);
        let (kept, lost) = (magnitude >> shift, magnitude & ((1 << shift) - 1));
        let half = if shift == 0 { 1 } else { 1 << (shift - 1) };
        let up = shift > 0 && (lost > half || (lost == half && kept & 1 == 1));
        // A carry out of the significand runs into the exponent, as it should.
        let bits = (u64::from(shift) << 10) + kept + u64::from(up);
        sign | bits.min(0x7c00) as u16
    }

    fn through_f32(a: u16, b: u16) -> u16 {
        f16::from_f32(f16::from_bits(a).to_f32() + f16::from_bits(b).to_f32()).to_bits()
    }

    fn partners() -> Vec<u16> {
        let mut list: Vec<u16> = (0..16).map(|i| special(Format::of(Element::F16), i) as u16).collect();
        list.extend((0..32).flat_map(|e| [e << 10, (e << 10) | 1, (e << 10) | 0x3ff, 0x8000 | (e << 10) | 0x155]));
        list
    }

    #[test]
    fn f16_sum_through_f32_is_the_correctly_rounded_sum() {
        for a in 0..=u16::MAX {
            for b in partners().into_iter().chain((a & 511..0xfe00).step_by(997)) {
                assert!(same(through_f32(a, b), integer_sum(a, b)), "{a:#06x} + {b:#06x}");
            }
        }
    }

    fn two_ranks_agree(a: Vec<u16>, b: Vec<u16>) {
        let reference = Reference::single("(x0+x1)", 2, Element::F16).expect("valid");
        let inputs: Vec<Vec<u8>> = [a, b]
            .iter()
            .map(|v| v.iter().flat_map(|w| w.to_le_bytes()).collect())
            .collect();
        let narrow = reference.outputs(&inputs, Partials::F16);
        let wide = reference.outputs(&inputs, Partials::F32);
        let at = words(Element::F16, &narrow[0])
            .zip(words(Element::F16, &wide[0]))
            .position(|(a, b)| !bits::same(Element::F16, a, b));
        assert_eq!(
            at,
            None,
            "{:?} + {:?}",
            at.map(|i| &inputs[0][2 * i..2 * i + 2]),
            at.map(|i| &inputs[1][2 * i..2 * i + 2])
        );
    }

    #[test]
    fn two_ranks_give_the_same_bits_with_f16_and_f32_partials() {
        for special in partners() {
            two_ranks_agree((0..=u16::MAX).collect(), vec![special; 1 << 16]);
        }
        for round in 0..256_u32 {
            let at = |salt: u32| (0..1 << 16).map(move |i| (scramble(i ^ (round << 16) ^ salt) >> 9) as u16);
            two_ranks_agree(at(0).collect(), at(0x5bd1_e995).collect());
        }
    }

    #[test]
    #[ignore = "all 2^32 pairs: minutes"]
    fn every_pair_gives_the_same_bits_with_f16_and_f32_partials_and_is_correctly_rounded() {
        for a in 0..=u16::MAX {
            two_ranks_agree(vec![a; 1 << 16], (0..=u16::MAX).collect());
            for b in 0..=u16::MAX {
                assert!(same(through_f32(a, b), integer_sum(a, b)), "{a:#06x} + {b:#06x}");
            }
        }
    }

    #[test]
    fn order_rounding_and_partials_are_followed() {
        let h = |v: f32| f16::from_f32(v).to_bits();
        let values = [h(2048.0), h(1.0), h(1.0)];
        assert_eq!(pair("((x0+x1)+x2)", &values, Partials::F16), h(2048.0));
        assert_eq!(pair("(x0+(x1+x2))", &values, Partials::F16), h(2050.0));
        assert_eq!(pair("((x0+x1)+x2)", &values, Partials::F32), h(2050.0));
        assert_eq!(pair("(r((x0+x1))+x2)", &values, Partials::F32), h(2048.0));
        assert_eq!(
            pair("((x0+x1)+x2)", &[h(65504.0), h(65504.0), h(-65504.0)], Partials::F16),
            0x7c00
        );
        assert_eq!(
            pair("((x0+x1)+x2)", &[h(65504.0), h(65504.0), h(-65504.0)], Partials::F32),
            h(65504.0)
        );
        assert_eq!(pair("(x0+x1)", &[0x8000, 0x8000], Partials::F16), 0x8000);
        assert_eq!(pair("(x0+x1)", &[0x8000, 0x0000], Partials::F32), 0x0000);
        assert_eq!(pair("(x0+x1)", &[0x0001, 0x0001], Partials::F16), 0x0002);
    }

    #[test]
    fn declarations_that_are_no_all_reduce_are_refused() {
        assert!(matches!(
            Reference::single("(x0+x0)", 2, Element::F16),
            Err(BadExpression::Contributions { .. })
        ));
        assert!(matches!(
            Reference::single("(x0+x1)", 3, Element::F16),
            Err(BadExpression::Contributions { .. })
        ));
        assert!(matches!(
            Reference::single("((x0+x1)+x2)", 2, Element::F16),
            Err(BadExpression::Contributions { .. })
        ));
        assert!(matches!(
            Reference::single("(x0+", 2, Element::F16),
            Err(BadExpression::Syntax { .. })
        ));
    }

    #[test]
    fn a_mebibyte_from_64_ranks_is_quick() {
        let text = (1..64).fold("x0".to_owned(), |sum, r| format!("({sum}+x{r})"));
        let inputs = vec![vec![0x3c; 1 << 20]; 64];
        let since = Instant::now();
        let outputs = Reference::single(&text, 64, Element::F16)
            .expect("valid")
            .outputs(&inputs, Partials::F16);
        assert_eq!((outputs.len(), outputs[63].len()), (64, 1 << 20));
        assert!(since.elapsed().as_secs() < 10, "{:?}", since.elapsed());
    }

    /// A sum of two bf16 rounded to nearest even with integers only: bf16 are multiples of 2^-133 below 2^128, so 262
    /// bits hold a sum. Here the larger one's last bits are enough: what lies below is a sticky bit.
    fn integer_sum_bf16(a: u16, b: u16) -> u16 {
        let parts = |v: u16| (v >> 15 == 1, i32::from((v >> 7) & 255), i128::from(v & 127));
        let ((sa, ea, ma), (sb, eb, mb)) = (parts(a), parts(b));
        let nan = |e: i32, m: i128| e == 255 && m != 0;
        if nan(ea, ma) || nan(eb, mb) || (ea == 255 && eb == 255 && sa != sb) {
            return 0x7fc0;
        }
        if ea == 255 || eb == 255 {
            return if ea == 255 { a } else { b };
        }
        // Both as multiples of 2^(top - 100), the smaller one cut to a sticky bit where it lies below.
        let top = ea.max(eb).max(1);
        let fixed = |s: bool, e: i32, m: i128| {
            let (e, m) = if e == 0 { (1, m) } else { (e, m + 128) };
            let shift = 100 - (top - e);
            let magnitude = if shift >= 0 { m << shift } else { i128::from(m != 0) };
            if s { -magnitude } else { magnitude }
        };
        let sum = fixed(sa, ea, ma) + fixed(sb, eb, mb);
        if sum == 0 {
            return if sa && sb { 0x8000 } else { 0 };
        }
        let sign = if sum < 0 { 0x8000 } else { 0 };
        let magnitude = sum.unsigned_abs();
        // Eight bits are kept, fewer where the number is subnormal.
        let shift = (128 - magnitude.leading_zeros() as i32 - 8).max(101 - top);
        let (kept, lost) = (magnitude >> shift, magnitude & ((1 << shift) - 1));
        let half = 1_u128 << (shift - 1);
        let up = lost > half || (lost == half && kept & 1 == 1);
        let exponent = i64::from(top - 101 + shift);
        let bits = (exponent << 7) + kept as i64 + i64::from(up);
        sign | bits.min(0x7f80) as u16
    }

    #[test]
    fn bf16_sum_through_f32_is_the_correctly_rounded_sum() {
        use half::bf16;
        let format = Format::of(Element::Bf16);
        let mut partners: Vec<u16> = (0..16).map(|i| special(format, i) as u16).collect();
        partners.extend(
            (0..256)
                .step_by(5)
                .flat_map(|e| [e << 7, (e << 7) | 1, 0x8000 | (e << 7) | 0x55]),
        );
        for a in 0..=u16::MAX {
            // Near neighbours too, where sums are rounded or cancel.
            let near = (0..40).map(|i| a.wrapping_sub(0x0a00).wrapping_add(i * 0x83));
            for b in partners.iter().copied().chain(near) {
                let sum = bf16::from_f32(bf16::from_bits(a).to_f32() + bf16::from_bits(b).to_f32()).to_bits();
                let expected = integer_sum_bf16(a, b);
                assert!(
                    bits::same(Element::Bf16, u32::from(sum), u32::from(expected)),
                    "{a:#06x} + {b:#06x}: {sum:#06x}, not {expected:#06x}"
                );
            }
        }
    }

    #[test]
    fn bf16_and_f32_elements_are_summed_in_their_own_type() {
        let outputs = |element, values: &[f32], partials| {
            let inputs: Vec<Vec<u8>> = values
                .iter()
                .map(|v| {
                    let mut bytes = Vec::new();
                    encode(element, &[*v], &mut bytes);
                    bytes
                })
                .collect();
            let reference = Reference::single("((x0+x1)+x2)", 3, element).expect("valid");
            decode(element, &reference.outputs(&inputs, partials)[0])[0]
        };
        let values = [256.0, 1.0, 1.0];
        assert_eq!(outputs(Element::Bf16, &values, Partials::Element), 256.0);
        assert_eq!(outputs(Element::Bf16, &values, Partials::F32), 258.0);
        assert_eq!(outputs(Element::F32, &values, Partials::Element), 258.0);
        let values = [16_777_216.0, 1.0, 1.0];
        assert_eq!(outputs(Element::F32, &values, Partials::Element), 16_777_216.0);
        assert_eq!(outputs(Element::F32, &values, Partials::F32), 16_777_216.0);
    }
}
