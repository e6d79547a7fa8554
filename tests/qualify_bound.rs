//! The error bound of comparators: what any order of sums gives passes, what none gives fails. 3 to 64 ranks.

use half::{bf16, f16};
use topoforge::qualify::bits::{decode, encode};
use topoforge::qualify::bound::ErrorBound;
use topoforge::qualify::patterns::Pattern;
use topoforge::registry::{Element, Partials};

const RANKS: [usize; 8] = [3, 4, 5, 7, 8, 16, 33, 64];
const POLICIES: [Partials; 2] = [Partials::Element, Partials::F32];

/// xorshift64*; seeded by the caller.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % n
    }
}

/// Rounded to nearest, ties to even.
fn rounded(element: Element, value: f64) -> f64 {
    match element {
        Element::F16 => f16::from_f64(value).to_f64(),
        Element::Bf16 => bf16::from_f64(value).to_f64(),
        Element::F32 => f64::from(value as f32),
    }
}

/// A sum in a random order: any two of what is left are added, until one is left.
fn random_tree(values: &[f64], element: Element, partials: Partials, random: &mut Random) -> f64 {
    let mut left = values.to_vec();
    while left.len() > 1 {
        let a = left.swap_remove(random.below(left.len()));
        let at = random.below(left.len());
        left[at] = rounded(partials.sums(element), a + left[at]);
    }
    rounded(element, left[0])
}

/// `columns[element][rank]`.
fn columns(element: Element, pattern: Pattern, ranks: usize, round: u32) -> Vec<Vec<f64>> {
    let inputs = pattern.inputs(element, ranks, 256 * element.bytes() as u64, 11, round);
    let values: Vec<Vec<f32>> = inputs.iter().map(|b| decode(element, b)).collect();
    (0..256)
        .map(|i| values.iter().map(|rank| f64::from(rank[i])).collect())
        .collect()
}

/// Every type with every policy that differs for it.
const NUMBERS: [(Element, Partials); 5] = [
    (Element::F16, Partials::Element),
    (Element::F16, Partials::F32),
    (Element::Bf16, Partials::Element),
    (Element::Bf16, Partials::F32),
    (Element::F32, Partials::Element),
];

fn every_order_passes(patterns: &[Pattern]) {
    let mut random = Random(1);
    for ranks in RANKS {
        for (element, partials) in NUMBERS {
            let bound = ErrorBound::new(ranks, element, partials);
            for (round, &pattern) in patterns.iter().enumerate() {
                for column in columns(element, pattern, ranks, round as u32) {
                    for _ in 0..4 {
                        let got = random_tree(&column, element, partials, &mut random);
                        let allowed = bound.allowed(column.iter().copied());
                        assert!(
                            allowed.contains(got),
                            "{ranks} {element} {partials} {pattern}: {got} not in {allowed}, {column:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn rounding_in_any_order_passes_from_3_to_64_ranks() {
    every_order_passes(&[
        Pattern::Bounded,
        Pattern::Bounded,
        Pattern::Subnormals,
        Pattern::Zeros,
        Pattern::Lone,
    ]);
}

#[test]
fn cancellation_in_any_order_passes_from_3_to_64_ranks() {
    every_order_passes(&[Pattern::Cancellation, Pattern::Cancellation]);
}

#[test]
fn non_finite_values_and_overflow_in_any_order_pass_from_3_to_64_ranks() {
    every_order_passes(&[Pattern::Infinities, Pattern::NaNs, Pattern::Reserved, Pattern::Overflow]);
}

/// Little-endian buffers and their sums in rank order without the inputs of `missing`.
fn without(
    pattern: Pattern,
    ranks: usize,
    missing: Option<usize>,
    (element, partials): (Element, Partials),
) -> (Vec<Vec<u8>>, Vec<u8>) {
    let inputs = pattern.inputs(element, ranks, 256 * element.bytes() as u64, 11, 0);
    let mut sums = Vec::new();
    for mut column in columns(element, pattern, ranks, 0) {
        if let Some(rank) = missing {
            column.remove(rank);
        }
        let sum = random_tree(&column, element, partials, &mut Random(9));
        encode(element, &[sum as f32], &mut sums);
    }
    (inputs, sums)
}

#[test]
fn a_missing_contribution_fails_from_3_to_64_ranks() {
    for ranks in RANKS {
        for numbers in NUMBERS {
            let (element, partials) = numbers;
            let bound = ErrorBound::new(ranks, element, partials);
            // With eight bits of precision the sum of many values may be off by more than one of them; where one rank
            // stands alone it may not.
            let coarse = numbers == (Element::Bf16, Partials::Element) && ranks > 4;
            let patterns = [Pattern::Lone, Pattern::Bounded, Pattern::Cancellation];
            for pattern in patterns.into_iter().take(if coarse { 1 } else { 3 }) {
                let (inputs, whole) = without(pattern, ranks, None, numbers);
                assert_eq!(bound.check(&inputs, &whole), Ok(()), "{ranks} {numbers:?} {pattern}");
                for missing in [0, ranks / 2, ranks - 1] {
                    let (inputs, output) = without(pattern, ranks, Some(missing), numbers);
                    let outlier = bound.check(&inputs, &output).expect_err("a missing contribution");
                    assert!(outlier.count >= 1, "{ranks} {numbers:?} {pattern} {missing}");
                }
            }
        }
    }
}

#[test]
fn cancellation_leaves_no_room_for_a_lost_remainder() {
    // 8 - 8 + 2^-5: with f32 sums the remainder must survive, a zero is wrong.
    let column = [8.0, -8.0, 1.0 / 32.0].map(f16::from_f32);
    let allowed = ErrorBound::new(3, Element::F16, Partials::F32).allowed(column);
    assert!(allowed.contains(f16::from_f32(1.0 / 32.0)) && !allowed.contains(f16::ZERO));
    // With f16 sums an order may round it: 2^-5 survives beside 8 (ulp 2^-7), 2^-9 may not.
    let column = [8.0, -8.0, 1.0 / 512.0].map(f16::from_f32);
    let allowed = ErrorBound::new(3, Element::F16, Partials::F16).allowed(column);
    assert!(allowed.contains(f16::ZERO) && allowed.contains(f16::from_f32(1.0 / 512.0)));
    assert!(!allowed.contains(f16::from_f32(0.5)));
}

#[test]
fn non_finite_values_are_compared_by_class() {
    let h = |values: [f32; 3]| values.map(f16::from_f32);
    let inf = f32::INFINITY;
    for partials in POLICIES {
        let allowed = |values| ErrorBound::new(3, Element::F16, partials).allowed(h(values));
        let nan = allowed([f32::NAN, 1.0, 2.0]);
        assert!(nan.contains(f16::NAN) && !nan.contains(f16::INFINITY) && !nan.contains(f16::ONE));
        let both = allowed([inf, -inf, 2.0]);
        assert!(both.contains(f16::NAN) && !both.contains(f16::INFINITY));
        let one = allowed([inf, 1.0, -2.0]);
        assert!(one.contains(f16::INFINITY) && !one.contains(f16::NAN) && !one.contains(f16::NEG_INFINITY));
        assert!(!one.contains(f16::MAX));
        let finite = allowed([1.0, 2.0, 3.0]);
        assert!(finite.contains(f16::from_f32(6.0)) && !finite.contains(f16::INFINITY) && !finite.contains(f16::NAN));
    }
}

#[test]
fn overflow_on_the_way_is_for_f16_sums_only() {
    let column = [65504.0, 65504.0, -65504.0].map(f16::from_f32);
    let narrow = ErrorBound::new(3, Element::F16, Partials::F16).allowed(column);
    assert!(narrow.contains(f16::INFINITY) && narrow.contains(f16::MAX) && !narrow.contains(f16::NEG_INFINITY));
    let wide = ErrorBound::new(3, Element::F16, Partials::F32).allowed(column);
    assert!(wide.contains(f16::MAX) && !wide.contains(f16::INFINITY));
    let over = [65504.0, 65504.0, 0.0].map(f16::from_f32);
    let wide = ErrorBound::new(3, Element::F16, Partials::F32).allowed(over);
    assert!(wide.contains(f16::INFINITY) && !wide.contains(f16::MAX));
}
