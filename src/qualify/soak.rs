//! A soak: very many dependent calls of one variant, sizes taken in turn, every word of every call compared.
//!
//! Where the executor checks on the device, inputs are a function of seed, rank, call and element, so that each rank
//! knows what all others sent; else calls are chained through the mixing node and the outputs come back. It never times.
//! Start at [`soak`].

use super::bits::{Format, push, same, words};
use super::mix::{Mixing, pattern, scramble};
use super::reference::Reference;
use crate::device::soak::{Soak, Tally, WrongWord, step};
use crate::device::{Chain, DeviceError, Executor, Fault, Geometry, Launch, Mode, Preparation, Prepared};
use crate::registry::{Element, Partials, Variant};
use crate::tune::geometry::for_threads;
use topoforge_planner::schedule::Expression;
use topoforge_planner::schedule::expression::Step;

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoakPlan {
    /// Calls in all.
    pub calls: u64,
    /// Payloads a rank, taken in turn.
    pub payloads: Vec<u64>,
    /// Threads of a block.
    pub threads: u32,
    /// How kernels are launched.
    pub launch: Launch,
    /// Seed of the inputs.
    pub seed: u32,
    /// A fault to plant: the soak should see it.
    pub fault: Option<Fault>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soaked {
    /// Calls, words and what was wrong.
    pub tally: Tally,
    /// Whether words were compared where they were made.
    pub on_device: bool,
}

/// Calls of one chain where outputs come back.
const CHAIN_CALLS: u32 = 4;

/// Soaks `variant` on `exec`. Ends early once words are wrong. `progress` hears how far it is.
///
/// # Errors
/// The variant does not fit, a wait ran past its deadline, or the device fails.
pub fn soak(
    exec: &mut dyn Executor,
    variant: &'static Variant,
    plan: &SoakPlan,
    progress: &mut dyn FnMut(&Tally),
) -> Result<Soaked, DeviceError> {
    let misuse = |reason: String| Err(DeviceError::Misuse { reason });
    let (Some(&max_bytes), true) = (plan.payloads.iter().max(), plan.calls > 0) else {
        return misuse("a soak has at least one payload and one call".to_owned());
    };
    let size = variant.element.bytes() as u64;
    if let Some(bytes) = plan.payloads.iter().find(|b| **b == 0 || !b.is_multiple_of(size)) {
        let (name, element) = (variant.name, variant.element);
        return misuse(format!(
            "`{name}`: {bytes} bytes are no whole number of {size}-byte {element} elements"
        ));
    }
    let preparation = Preparation {
        max_bytes,
        threads: plan.threads,
        fault: plan.fault,
    };
    let prepared = exec.prepare(variant, &preparation)?;
    let outcome = prepared_soak(exec, variant, prepared, plan, progress);
    exec.release(prepared);
    outcome
}

fn prepared_soak(
    exec: &mut dyn Executor,
    variant: &'static Variant,
    prepared: Prepared,
    plan: &SoakPlan,
    progress: &mut dyn FnMut(&Tally),
) -> Result<Soaked, DeviceError> {
    let most = plan.launch.most_blocks(exec.max_blocks(prepared, plan.threads)?);
    if most == 0 {
        let reason = format!("no block of {} threads fits here: give fewer", plan.threads);
        return Err(DeviceError::Misuse { reason });
    }
    let geometry = |bytes: u64| for_threads(variant, bytes, plan.threads, most).launched(plan.launch);
    let shapes: Vec<(u64, Geometry)> = plan.payloads.iter().map(|b| (*b, geometry(*b))).collect();
    // Where several policies are declared they give the same bits.
    let partials = variant.partials.first().copied().unwrap_or(Partials::F16);
    let programs = programs(variant)?;
    let on_device = exec.soak(
        &Soak {
            collective: prepared,
            shapes: &shapes,
            calls: plan.calls,
            seed: plan.seed,
            element: variant.element,
            partials,
            programs: &programs,
        },
        progress,
    )?;
    if let Some(tally) = on_device {
        return Ok(Soaked { tally, on_device: true });
    }
    let reference = Reference::new(variant).map_err(|e| DeviceError::Misuse { reason: e.to_string() })?;
    let mut tally = Tally::default();
    for round in 0_usize.. {
        let (bytes, geometry) = shapes[round % shapes.len()];
        let calls = u32::try_from(plan.calls - tally.calls)
            .unwrap_or(u32::MAX)
            .min(CHAIN_CALLS);
        let inputs: Vec<Vec<u8>> = (0..exec.ranks())
            .map(|rank| inputs(variant.element, plan.seed, rank as u32, tally.calls, bytes))
            .collect();
        let chain = Chain {
            collective: prepared,
            geometry,
            bytes,
            calls,
            inputs: &inputs,
            mix_seed: plan.seed.wrapping_add(round as u32),
            specials: false,
            mode: Mode::Eager,
            skew: None,
            in_place: false,
        };
        let outputs = exec.run(&chain)?;
        compare(&reference, (variant.element, partials), &chain, &outputs, &mut tally);
        progress(&tally);
        if tally.wrong > 0 || tally.calls >= plan.calls {
            break;
        }
    }
    Ok(Soaked {
        tally,
        on_device: false,
    })
}

/// Runs a few chained calls, launched and replayed, and counts the words that are not the declared sum.
///
/// # Errors
/// A wait ran past its deadline, or the device fails.
pub fn count_words(
    exec: &mut dyn Executor,
    variant: &Variant,
    prepared: Prepared,
    (geometry, bytes): (Geometry, u64),
    in_place: bool,
    seed: u32,
) -> Result<Tally, DeviceError> {
    let reference = Reference::new(variant).map_err(|e| DeviceError::Misuse { reason: e.to_string() })?;
    let partials = variant.partials.first().copied().unwrap_or(Partials::F16);
    let inputs: Vec<Vec<u8>> = (0..exec.ranks())
        .map(|rank| inputs(variant.element, seed, rank as u32, 0, bytes))
        .collect();
    let mut tally = Tally::default();
    for mode in [Mode::Eager, Mode::Graph { replays: 1 }] {
        let chain = Chain {
            collective: prepared,
            geometry,
            bytes,
            calls: 2,
            inputs: &inputs,
            mix_seed: seed,
            specials: false,
            mode,
            skew: None,
            in_place,
        };
        let outputs = exec.run(&chain)?;
        compare(&reference, (variant.element, partials), &chain, &outputs, &mut tally);
    }
    Ok(tally)
}

/// Counts a chain's words.
fn compare(
    reference: &Reference,
    (element, partials): (Element, Partials),
    chain: &Chain<'_>,
    outputs: &[Vec<Vec<u8>>],
    tally: &mut Tally,
) {
    let mixing = Mixing {
        element,
        seed: chain.mix_seed,
        specials: chain.specials,
    };
    let mut inputs = chain.inputs.to_vec();
    for (call, got) in outputs.iter().enumerate() {
        let declared = reference.outputs(&inputs, partials);
        for (rank, (want, have)) in declared.iter().zip(got).enumerate() {
            for (index, (expected, got)) in words(element, want).zip(words(element, have)).enumerate() {
                tally.words += 1;
                if !same(element, expected, got) {
                    tally.wrong += 1;
                    tally.first.get_or_insert(WrongWord {
                        rank,
                        call: tally.calls,
                        element: index as u32,
                        expected,
                        got,
                    });
                }
            }
        }
        tally.calls += 1;
        for (rank, (output, input)) in declared.iter().zip(&mut inputs).enumerate() {
            mixing.buffer(output, rank, call as u32, input);
        }
    }
}

/// The input of a rank in a call, as `tf_soak_input` in kernels/tools.cu. Magnitudes of 2^-5 to 8.
fn inputs(element: Element, seed: u32, rank: u32, call: u64, bytes: u64) -> Vec<u8> {
    let (low, high) = (call as u32, (call >> 32) as u32);
    let who = (rank.wrapping_mul(0x85eb_ca77))
        .wrapping_add(low.wrapping_mul(0xc2b2_ae3d))
        .wrapping_add(high.wrapping_mul(0x27d4_eb2f));
    let mut all = Vec::with_capacity(bytes as usize);
    for i in 0..(bytes / element.bytes() as u64) as u32 {
        let hash = scramble(scramble(seed ^ i.wrapping_mul(0x9e37_79b1)) ^ who);
        push(element, pattern(Format::of(element), hash, false), &mut all);
    }
    all
}

/// A program for every rank and chunk.
fn programs(variant: &Variant) -> Result<Vec<Vec<Vec<u8>>>, DeviceError> {
    let misuse = |reason: String| DeviceError::Misuse { reason };
    let parsed = variant.expressions.iter().map(|text| {
        let expression = Expression::parse(text).map_err(|e| misuse(format!("`{text}`: {e}")))?;
        program(&expression).ok_or_else(|| misuse(format!("`{text}` is too deep for a soak")))
    });
    let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
    let chunks = variant.chunks as usize;
    let of_rank = |rank: usize| -> Option<Vec<Vec<u8>>> {
        let mine = variant.expression_of.get(rank * chunks..(rank + 1) * chunks)?;
        mine.iter().map(|e| parsed.get(usize::from(*e)).cloned()).collect()
    };
    (0..variant.ranks.len())
        .map(|rank: usize| {
            of_rank(rank).ok_or_else(|| misuse(format!("`{}` declares no sum for rank {rank}", variant.name)))
        })
        .collect()
}

/// None for an expression that the checker's stack does not hold.
fn program(expression: &Expression) -> Option<Vec<u8>> {
    let (mut bytes, mut depth) = (Vec::new(), 0_usize);
    for step in expression.steps() {
        match *step {
            Step::Input(rank) => {
                bytes.push(u8::try_from(rank).ok().filter(|r| *r < step::ROUND)?);
                depth += 1;
            }
            Step::Sum => {
                bytes.push(step::SUM);
                depth = depth.checked_sub(1).filter(|d| *d > 0)?;
            }
            Step::Round => bytes.push(step::ROUND),
        }
        if depth == 0 || depth > step::DEPTH {
            return None;
        }
    }
    bytes.push(step::END);
    (depth == 1).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_become_programs_and_too_deep_ones_do_not() {
        let of = |text: &str| program(&Expression::parse(text).expect("valid"));
        assert_eq!(of("(x0+x1)"), Some(vec![0, 1, step::SUM, step::END]));
        assert_eq!(
            of("((x0+x1)+(x2+x3))"),
            Some(vec![0, 1, step::SUM, 2, 3, step::SUM, step::SUM, step::END])
        );
        // Folded to the right, every rank waits for the last one.
        let right = |n: usize| {
            let open: String = (0..n - 1).map(|r| format!("(x{r}+")).collect();
            format!("{open}x{}{}", n - 1, ")".repeat(n - 1))
        };
        assert!(of(&right(step::DEPTH)).is_some() && of(&right(step::DEPTH + 1)).is_none());
    }

    #[test]
    fn inputs_are_bounded_and_change_with_seed_rank_and_call() {
        let base = inputs(Element::F16, 1, 0, 7, 256);
        for v in base.chunks_exact(2) {
            let v = half::f16::from_le_bytes([v[0], v[1]]).to_f32().abs();
            assert!((1.0 / 32.0..8.0).contains(&v), "{v}");
        }
        for other in [
            inputs(Element::F16, 2, 0, 7, 256),
            inputs(Element::F16, 1, 1, 7, 256),
            inputs(Element::F16, 1, 0, 8, 256),
            inputs(Element::F16, 1, 0, 7 + (1 << 32), 256),
        ] {
            let equal = base.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(equal < 40, "{equal} of 256 bytes");
        }
    }
}
