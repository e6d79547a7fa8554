//! Serving on the host executor: every rank calls from a thread of its own, one thread owns the executor.
//!
//! For tests, and for programs that want the same calls without a GPU. Emulation: bits are exact, times mean nothing.
//! A rank that stays away for longer than the deadline is named in everybody's error. Start at [`HostPart`].

use super::desk::{Desk, Ticket};
use super::dispatch::{Call, Decision, Dispatch, Range};
use super::invariant;
use super::shapes::Shapes;
use super::{CommError, Options, ReduceOp, Scalar};
use crate::device::host::{HostExecutor, HostOptions};
use crate::device::{Chain, DeviceError, Executor, Geometry, Mode, Preparation, Prepared};
use crate::qualify::{QualifyPlan, qualify};
use crate::registry::{Element, Family, Protocol, Variant};
use crate::tune::CallShape;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

/// A rank's side.
pub(super) struct HostPart {
    desk: Arc<Desk>,
    shapes: Option<Shapes>,
}

impl HostPart {
    /// Sums `buffer` over all ranks, in pieces where it is larger than every range, and waits for it. Allocates nothing.
    pub fn all_reduce<T: Scalar>(&self, dispatch: &Dispatch, rank: usize, buffer: &mut [T]) -> Result<(), CommError> {
        let call = Call {
            count: buffer.len(),
            dtype: T::DTYPE,
            op: ReduceOp::Sum,
            aligned: true,
        };
        let bytes = size_of_val(buffer) as u64;
        if let (Some(shapes), Some(element), true) = (&self.shapes, T::DTYPE.element(), bytes > 0) {
            let graph = false;
            shapes.count(CallShape { bytes, element, graph });
        }
        match dispatch.decide(call) {
            Decision::Nothing => Ok(()),
            Decision::Range(range) => self.piece(rank, range, buffer),
            Decision::Comparator(why) => {
                let range = T::DTYPE.element().and_then(|e| dispatch.piecewise(e, bytes));
                let range = range.ok_or_else(|| CommError::Unserved {
                    reason: format!(
                        "sum of {} {}: {why}, and the host executor has no comparator",
                        call.count, call.dtype
                    ),
                })?;
                let piece = (dispatch.ranges()[range].up_to & !15) as usize / size_of::<T>();
                buffer
                    .chunks_mut(piece)
                    .try_for_each(|part| self.piece(rank, range, part))
            }
        }
    }

    fn piece<T: Scalar>(&self, rank: usize, range: usize, buffer: &mut [T]) -> Result<(), CommError> {
        Ok(self.desk.call(rank, range, buffer)?)
    }

    pub const fn shapes(&self) -> Option<&Shapes> {
        self.shapes.as_ref()
    }
}

impl Drop for HostPart {
    fn drop(&mut self) {
        self.desk.leave();
    }
}

pub(super) const GEOMETRY: Geometry = Geometry::new(2, 32);

/// Ranges for a family, one a size class of each element type, each the first variant of its shortlist that is proven
/// here; with one expression for all sizes, the first group of variants in which every class has a proven one.
pub(super) fn choose(
    exec: &mut dyn Executor,
    family: &'static Family,
    options: &Options,
    plan: &QualifyPlan,
) -> Result<Vec<(Range, &'static Variant)>, CommError> {
    let mut proofs = Proofs::new(plan);
    let mut chosen: Vec<(Range, &'static Variant)> = Vec::new();
    for element in Element::ALL {
        let partials = options.partials.as_compiled(*element);
        let fits = |v: &&'static Variant| {
            v.element == *element && v.partials.contains(&partials) && v.protocol != Protocol::Pull
        };
        let all: Vec<&'static Variant> = family.variants.iter().filter(fits).collect();
        let mut bounds: Vec<u64> = all.iter().flat_map(|v| v.classes).copied().collect();
        bounds.sort_unstable();
        bounds.dedup();
        if options.batch_invariant {
            let groups = invariant::groups(all, *element, partials);
            let whole = groups.iter().find_map(|group| {
                let found = pick(exec, &mut proofs, &group.variants, &bounds, Some(&group.expression));
                (found.len() == bounds.len()).then_some(found)
            });
            chosen.extend(whole.unwrap_or_default());
        } else {
            chosen.extend(pick(exec, &mut proofs, &all, &bounds, None));
        }
    }
    let refused = proofs.refused();
    if chosen.is_empty() || (options.strict && !refused.is_empty()) {
        return Err(CommError::Refused { reasons: refused });
    }
    Ok(chosen)
}

/// One range a class, where a variant of its shortlist is proven, or with one expression any.
fn pick(
    exec: &mut dyn Executor,
    proofs: &mut Proofs<'_>,
    variants: &[&'static Variant],
    bounds: &[u64],
    expression: Option<&str>,
) -> Vec<(Range, &'static Variant)> {
    let mut chosen = Vec::new();
    for bound in bounds {
        let (listed, others): (Vec<_>, Vec<_>) = variants.iter().copied().partition(|v| v.classes.contains(bound));
        let others = others.into_iter().filter(|_| expression.is_some());
        let proven = listed
            .into_iter()
            .chain(others)
            .find_map(|v| Some((v, proofs.words(exec, v)?)));
        let Some((variant, words)) = proven else { continue };
        let reason = match expression {
            Some(text) => format!("one expression for all sizes: {text}; proven over {words} words, not timed"),
            None => format!("first on its shortlist, proven over {words} words; not timed"),
        };
        let range = Range {
            element: variant.element,
            up_to: *bound,
            variant: Some(variant.name.into()),
            geometry: Some(GEOMETRY),
            reason,
        };
        chosen.push((range, variant));
    }
    chosen
}

/// What has been proven so far: a variant may be on many shortlists.
struct Proofs<'a> {
    plan: &'a QualifyPlan,
    known: BTreeMap<&'static str, Result<usize, String>>,
}

impl<'a> Proofs<'a> {
    const fn new(plan: &'a QualifyPlan) -> Self {
        let known = BTreeMap::new();
        Self { plan, known }
    }

    fn words(&mut self, exec: &mut dyn Executor, variant: &'static Variant) -> Option<usize> {
        let prove = || match qualify(exec, variant, self.plan) {
            Ok(proof) => Ok(proof.words as usize),
            Err(refusal) => Err(refusal.to_string()),
        };
        self.known
            .entry(variant.name)
            .or_insert_with(prove)
            .as_ref()
            .ok()
            .copied()
    }

    fn refused(self) -> Vec<String> {
        self.known.into_values().filter_map(Result::err).collect()
    }
}

/// Starts the executor's thread and returns the agreed ranges and one part a rank.
pub(super) fn start(
    family: &'static Family,
    ranks: usize,
    options: &Options,
) -> Result<(Vec<Range>, Vec<HostPart>), CommError> {
    let (ready, agreed) = channel();
    let traced = options.trace.is_some();
    let options = options.clone();
    let spawned = thread::Builder::new().name("topoforge-host".into()).spawn(move || {
        // Made here: fibers stay on the thread that made them.
        let mut exec = HostExecutor::new(ranks, HostOptions::default());
        let served = choose(&mut exec, family, &options, &QualifyPlan::quick()).and_then(|chosen| {
            let prepared = chosen
                .iter()
                .map(|(range, variant)| {
                    let preparation = Preparation {
                        max_bytes: range.up_to,
                        threads: GEOMETRY.threads,
                        fault: None,
                    };
                    exec.prepare(variant, &preparation).map_err(CommError::Device)
                })
                .collect::<Result<Vec<_>, _>>()?;
            Ok((chosen.into_iter().map(|(range, _)| range).collect::<Vec<_>>(), prepared))
        });
        match served {
            Err(e) => drop(ready.send(Err(e))),
            Ok((ranges, prepared)) => {
                let room = ranges.iter().map(|r| r.up_to).max().unwrap_or(0);
                let desk = Arc::new(Desk::new(ranks, room as usize));
                if ready.send(Ok((ranges, desk.clone()))).is_ok() {
                    desk.serve(options.deadline, |tickets, inputs| {
                        run(&mut exec, &prepared, tickets, inputs)
                    });
                }
            }
        }
    });
    spawned.map_err(|e| CommError::Misuse {
        reason: format!("no thread for the host executor: {e}"),
    })?;
    let (ranges, desk) = agreed.recv().map_err(|_| CommError::Device(DeviceError::Poisoned))??;
    let part = |_| HostPart {
        desk: desk.clone(),
        shapes: traced.then(Shapes::new),
    };
    Ok((ranges, (0..ranks).map(part).collect()))
}

fn run(
    exec: &mut HostExecutor,
    prepared: &[Prepared],
    tickets: &[Ticket],
    inputs: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let first = tickets[0];
    if let Some(other) = tickets.iter().position(|t| *t != first) {
        let reason = format!(
            "rank 0 reduces {} bytes, rank {other} reduces {}: all ranks must call alike",
            first.bytes, tickets[other].bytes
        );
        return Err(DeviceError::Misuse { reason });
    }
    let outputs = exec.run(&Chain {
        collective: prepared[first.range],
        geometry: GEOMETRY,
        bytes: first.bytes as u64,
        calls: 1,
        inputs,
        mix_seed: 0,
        specials: false,
        mode: Mode::Eager,
        skew: None,
        in_place: true,
    })?;
    outputs.into_iter().next().ok_or(DeviceError::Poisoned)
}
