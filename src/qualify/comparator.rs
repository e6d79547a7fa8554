//! Qualifies collectives that promise no order of sums: every call within the error bound, all ranks alike.
//!
//! Each call is judged against the inputs it actually used, which come from its own earlier outputs: two orders of sums
//! diverge after one call. Start at [`qualify_comparator`].

use super::bits::differences;
use super::bound::ErrorBound;
use super::case::Case;
use super::check::{Proof, Subject, drive, next_inputs};
use super::plan::QualifyPlan;
use super::refusal::{Reason, Refusal};
use crate::device::{Comparator, Executor, NcclSetting, Outputs, Prepared};
use crate::registry::{Element, Partials};

/// The name of a comparator in reports.
pub const fn name(comparator: Comparator) -> &'static str {
    let (setting, element, partials) = match comparator {
        Comparator::Nccl(setting, element, partials) => (setting, element, partials),
        Comparator::TwoStagePull(Partials::Element) => return "two-stage-pull/f16",
        Comparator::TwoStagePull(Partials::F32) => return "two-stage-pull/f32",
    };
    let names = match setting {
        NcclSetting::AsFound => [
            "nccl/f16",
            "nccl/f32",
            "nccl/bf16-bf16",
            "nccl/bf16-f32",
            "nccl/f32-f32",
        ],
        NcclSetting::Ll => [
            "nccl-ll/f16",
            "nccl-ll/f32",
            "nccl-ll/bf16-bf16",
            "nccl-ll/bf16-f32",
            "nccl-ll/f32-f32",
        ],
        NcclSetting::Ring => [
            "nccl-ring/f16",
            "nccl-ring/f32",
            "nccl-ring/bf16-bf16",
            "nccl-ring/bf16-f32",
            "nccl-ring/f32-f32",
        ],
    };
    let [f16, f16_wide, bf16, bf16_wide, f32] = names;
    match (element, partials) {
        (Element::F16, Partials::Element) => f16,
        (Element::F16, Partials::F32) => f16_wide,
        (Element::Bf16, Partials::Element) => bf16,
        (Element::Bf16, Partials::F32) => bf16_wide,
        (Element::F32, _) => f32,
    }
}

/// Proves that a comparator sums at all, so that a comparison with it means something.
///
/// # Errors
/// It is unavailable, or the first result that no order of sums gives, or ranks that differ.
pub fn qualify_comparator(
    exec: &mut dyn Executor,
    comparator: Comparator,
    plan: &QualifyPlan,
) -> Result<Proof, Refusal> {
    let prepared = exec
        .prepare_comparator(comparator, plan.max_bytes())
        .map_err(|error| Refusal {
            variant: name(comparator).to_owned(),
            passed: 0,
            reason: Reason::Device(error),
        })?;
    let result = qualify_prepared(exec, comparator, prepared, plan);
    exec.release(prepared);
    result
}

/// As [`qualify_comparator`] for one that is prepared for the plan's largest payload already, and stays so.
///
/// # Errors
/// As [`qualify_comparator`].
pub fn qualify_prepared(
    exec: &mut dyn Executor,
    comparator: Comparator,
    prepared: Prepared,
    plan: &QualifyPlan,
) -> Result<Proof, Refusal> {
    let (element, partials) = (comparator.element(), comparator.partials());
    let bound = ErrorBound::new(exec.ranks(), element, partials);
    drive(
        exec,
        Subject::Comparator(prepared, name(comparator), element),
        plan,
        &mut |case, inputs, outputs| judge(&bound, case, inputs, outputs),
    )
}

fn judge(bound: &ErrorBound, case: &Case, mut inputs: Vec<Vec<u8>>, outputs: &Outputs) -> Result<(), Reason> {
    for (call, got) in outputs.iter().enumerate() {
        let call = call as u32;
        let mut seen: Option<&Vec<u8>> = None;
        for (rank, output) in got.iter().enumerate() {
            // Ranks with rank 0's bytes need no second look.
            if seen == Some(output) {
                continue;
            }
            bound.check(&inputs, output).map_err(|outlier| Reason::OutOfBound {
                chain: Box::new(*case),
                call,
                rank,
                outlier,
            })?;
            if let Some(first) = seen {
                alike(case, call, rank, first, output)?;
            }
            seen = seen.or(Some(output));
        }
        next_inputs(case, call, got, &mut inputs);
    }
    Ok(())
}

fn alike(case: &Case, call: u32, rank: usize, first: &[u8], other: &[u8]) -> Result<(), Reason> {
    match differences(case.element, first, other) {
        Some((element, first, other, _)) => Err(Reason::ReplicasDiffer {
            chain: Box::new(*case),
            call,
            rank,
            element,
            first,
            other,
        }),
        None => Ok(()),
    }
}
