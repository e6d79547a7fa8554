//! Runs a plan's chains and compares every word with the exact reference.
//!
//! It never times and never repairs: the first wrong word refuses the variant. NaN compares as a class, everything else
//! bit for bit. Start at [`qualify`].
//!
//! **Chains.** Inputs of the next call are `mix(output, rank, call)` where `call` counts within the replay (a captured
//! node keeps its arguments), and the first call of a further replay continues from the last output of the one before.

use super::bits::{Format, differences, words};
use super::case::Case;
use super::plan::QualifyPlan;
use super::reference::Reference;
use super::refusal::{Reason, Refusal};
use crate::device::{Chain, DeviceError, Executor, Fault, Mode, Outputs, Preparation, Prepared};
use crate::registry::{Element, Variant};

/// What was run without finding a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Proof {
    /// Chains.
    pub chains: u32,
    /// Calls of all chains.
    pub calls: u64,
    /// Elements compared.
    pub words: u64,
    /// Share of them that was finite, 0 to 1.
    pub finite_share: f64,
}

/// Proves `variant` on `exec`, or says why not.
///
/// # Errors
/// The first fault found. The collective is released in any case.
pub fn qualify(exec: &mut dyn Executor, variant: &'static Variant, plan: &QualifyPlan) -> Result<Proof, Refusal> {
    qualify_with(exec, variant, plan, None)
}

/// As [`qualify`], with a fault planted: it should refuse.
pub(crate) fn qualify_with(
    exec: &mut dyn Executor,
    variant: &'static Variant,
    plan: &QualifyPlan,
    fault: Option<Fault>,
) -> Result<Proof, Refusal> {
    let refuse = |reason| Refusal {
        variant: variant.name.to_owned(),
        passed: 0,
        reason,
    };
    let reference = Reference::new(variant).map_err(|e| refuse(Reason::BadExpression(e)))?;
    if variant.ranks.len() != exec.ranks() {
        let reason = format!(
            "{} is for {} ranks, this device has {}",
            variant.name,
            variant.ranks.len(),
            exec.ranks()
        );
        return Err(refuse(Reason::Device(DeviceError::Misuse { reason })));
    }
    drive(
        exec,
        Subject::Variant(variant, fault),
        plan,
        &mut |case, first, outputs| check_bits(&reference, variant, case, first, outputs),
    )
}

/// What is driven.
#[derive(Clone, Copy)]
pub(crate) enum Subject {
    Variant(&'static Variant, Option<Fault>),
    /// The prepared comparator, its name and the type of its buffers.
    Comparator(Prepared, &'static str, Element),
}

/// Judges all outputs of one chain.
pub(crate) type Judge<'a> = dyn FnMut(&Case, Vec<Vec<u8>>, &Outputs) -> Result<(), Reason> + 'a;

/// Prepares a variant once a thread count, runs that group's chains one after the other, judges each, releases.
pub(crate) fn drive(
    exec: &mut dyn Executor,
    subject: Subject,
    plan: &QualifyPlan,
    judge: &mut Judge<'_>,
) -> Result<Proof, Refusal> {
    let mut tally = Tally::default();
    let (name, element) = match subject {
        Subject::Variant(variant, _) => (variant.name, variant.element),
        Subject::Comparator(_, name, element) => (name, element),
    };
    let refuse = |passed, reason| Refusal {
        variant: name.to_owned(),
        passed,
        reason,
    };
    // A comparator has no geometry: its chains run once.
    let groups = match subject {
        Subject::Variant(..) => plan.threads(),
        Subject::Comparator(..) => plan.threads().into_iter().take(1).collect(),
    };
    for threads in groups {
        let passed = tally.chains;
        let prepared = match subject {
            Subject::Variant(variant, fault) => exec
                .prepare(
                    variant,
                    &Preparation {
                        max_bytes: plan.max_bytes(),
                        threads,
                        fault,
                    },
                )
                .map_err(|e| refuse(passed, Reason::Device(e)))?,
            Subject::Comparator(prepared, ..) => prepared,
        };
        let result = (|| {
            let (max_blocks, in_place) = match subject {
                Subject::Variant(v, _) => (
                    exec.max_blocks(prepared, threads).map_err(Reason::Device)?,
                    v.in_place(),
                ),
                Subject::Comparator(..) => (1, true),
            };
            for case in plan.cases(element, threads, max_blocks, exec.ranks(), in_place, tally.chains) {
                let inputs = case.inputs(exec.ranks());
                let chain = Chain {
                    collective: prepared,
                    geometry: case.geometry,
                    bytes: case.bytes,
                    calls: case.calls,
                    inputs: &inputs,
                    mix_seed: case.seed,
                    specials: case.specials,
                    mode: case.mode,
                    skew: case.skew,
                    in_place: case.in_place,
                };
                let outputs = exec.run(&chain).map_err(|error| match error {
                    DeviceError::Timeout { .. } => Reason::Timeout {
                        chain: Box::new(case),
                        error,
                    },
                    error => Reason::Device(error),
                })?;
                check_shape(&case, exec.ranks(), &outputs)?;
                judge(&case, inputs, &outputs)?;
                tally.add(element, &outputs);
            }
            Ok(())
        })();
        if let Subject::Variant(..) = subject {
            exec.release(prepared);
        }
        result.map_err(|reason| refuse(tally.chains, reason))?;
    }
    if tally.chains == 0 {
        return Err(refuse(0, Reason::EmptyPlan));
    }
    Ok(tally.proof())
}

/// All calls of a chain, replays counted through.
fn total_calls(case: &Case) -> u32 {
    match case.mode {
        Mode::Eager => case.calls,
        Mode::Graph { replays } => case.calls * replays,
    }
}

/// Inputs of the call after `call` (counted through) from the outputs of `call`.
pub(crate) fn next_inputs(case: &Case, call: u32, outputs: &[Vec<u8>], inputs: &mut Vec<Vec<u8>>) {
    inputs.resize_with(outputs.len(), Vec::new);
    let within = call % case.calls.max(1);
    for (rank, (output, input)) in outputs.iter().zip(inputs).enumerate() {
        case.mixing().buffer(output, rank, within, input);
    }
}

fn check_shape(case: &Case, ranks: usize, outputs: &Outputs) -> Result<(), Reason> {
    let wrong = |what| {
        Err(Reason::Shape {
            chain: Box::new(*case),
            what,
        })
    };
    if outputs.len() != total_calls(case) as usize {
        return wrong(format!(
            "outputs of {} calls instead of {}",
            outputs.len(),
            total_calls(case)
        ));
    }
    for (call, call_outputs) in outputs.iter().enumerate() {
        if call_outputs.len() != ranks {
            return wrong(format!(
                "outputs of {} ranks instead of {ranks} in call {call}",
                call_outputs.len()
            ));
        }
        if let Some(output) = call_outputs.iter().find(|o| o.len() as u64 != case.bytes) {
            return wrong(format!(
                "{} bytes instead of {} in call {call}",
                output.len(),
                case.bytes
            ));
        }
    }
    Ok(())
}

fn check_bits(
    reference: &Reference,
    variant: &Variant,
    case: &Case,
    mut inputs: Vec<Vec<u8>>,
    outputs: &Outputs,
) -> Result<(), Reason> {
    for (call, got) in outputs.iter().enumerate() {
        let call = call as u32;
        let mut declared = Vec::new();
        for &partials in variant.partials {
            declared = reference.outputs(&inputs, partials);
            compare(case, call, &declared, got)?;
        }
        // The reference's own outputs: they are the device's, word for word, or we would not be here.
        next_inputs(case, call, &declared, &mut inputs);
    }
    Ok(())
}

fn compare(case: &Case, call: u32, declared: &[Vec<u8>], got: &[Vec<u8>]) -> Result<(), Reason> {
    if declared == got {
        return Ok(());
    }
    let mut first = None;
    let mut wrong = 0;
    for (rank, (want, have)) in declared.iter().zip(got).enumerate() {
        if let Some((element, expected, got, count)) = differences(case.element, want, have) {
            wrong += count;
            first.get_or_insert((rank, element, expected, got));
        }
    }
    match first {
        Some((rank, element, expected, got)) => Err(Reason::WrongBits {
            chain: Box::new(*case),
            call,
            rank,
            element,
            expected,
            got,
            count: wrong,
        }),
        None => Ok(()),
    }
}

#[derive(Default)]
struct Tally {
    chains: u32,
    calls: u64,
    words: u64,
    finite: u64,
}

impl Tally {
    fn add(&mut self, element: Element, outputs: &Outputs) {
        let format = Format::of(element);
        self.chains += 1;
        self.calls += outputs.len() as u64;
        for output in outputs.iter().flatten() {
            self.words += (output.len() / element.bytes()) as u64;
            self.finite += words(element, output).filter(|w| format.is_finite(*w)).count() as u64;
        }
    }

    fn proof(&self) -> Proof {
        Proof {
            chains: self.chains,
            calls: self.calls,
            words: self.words,
            finite_share: self.finite as f64 / self.words.max(1) as f64,
        }
    }
}
