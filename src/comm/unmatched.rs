//! Serving where no family fits, or where there is a single rank: NCCL serves everything.
//!
//! A program that ran by NCCL keeps running on a machine that no descriptor tells of; `explain` says why nothing of ours
//! serves. Proves and times nothing. Start at [`streams`] and [`process`].

use super::cuda::{CudaPart, Parts};
use super::dispatch::Dispatch;
use super::setup::{Fallback, wanted_nccl};
use super::{Changed, CommError, Communicator, Options, Part};
use crate::driver::context::Context;
use crate::driver::nccl::{Communicators, Nccl};
use crate::driver::nccl_rank::NcclRank;
use crate::process::Seen;
use crate::process::mesh::Mesh;
use cudarc::driver::CudaStream;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Reasons that `explain` shows; there is one a family.
const SHOWN: usize = 3;

/// Whether NCCL may serve everything when no family fits: the caller has named none and is not strict.
pub(super) const fn allowed(options: &Options) -> bool {
    options.family.is_none() && !options.strict && !matches!(options.changed, Changed::Strict)
}

/// All ranks in this process.
pub(super) fn streams(
    streams: &[Arc<CudaStream>],
    options: &Options,
    reasons: &[String],
) -> Result<Vec<Communicator>, CommError> {
    let devices: Vec<usize> = streams.iter().map(|s| s.context().ordinal()).collect();
    let nccl = wanted_nccl(options, || Communicators::new(&devices));
    served(streams.len(), &nccl, reasons)?;
    let dead = Arc::new(AtomicBool::new(false));
    let each = streams.iter().enumerate();
    each.map(|(rank, stream)| {
        let of_rank = (rank, rank, streams.len());
        one(
            stream,
            of_rank,
            options,
            &nccl,
            reasons,
            (dead.clone(), None),
            Box::new(()),
        )
    })
    .collect()
}

/// This process's rank.
pub(super) fn process(
    mut mesh: Mesh,
    stream: &Arc<CudaStream>,
    options: &Options,
    reasons: &[String],
) -> Result<Communicator, CommError> {
    let (rank, world) = (mesh.rank(), mesh.world());
    let nccl = joined(&mut mesh, stream.context().ordinal(), options)?;
    served(world, &nccl, reasons)?;
    let seen = mesh.seen();
    // NCCL's kernels wait for ever for a rank whose process is gone.
    let aborts = nccl.as_ref().ok().and_then(|nccl| {
        let nccl = nccl.clone();
        mesh.watch().map(|watch| watch.on_loss(move || nccl.abort()))
    });
    let state = (Arc::new(AtomicBool::new(false)), Some(seen));
    let keep = Box::new((aborts, mesh));
    one(stream, (rank, 0, world), options, &nccl, reasons, state, keep)
}

/// NCCL over all processes, or the same reason against it on none and all of them.
fn joined(mesh: &mut Mesh, ordinal: usize, options: &Options) -> Result<Fallback, CommError> {
    let id = match mesh.rank() {
        0 => NcclRank::unique_id().map(|id| id.to_vec()),
        _ => Nccl::open().map(|_| Vec::new()),
    };
    let word = id.as_ref().map_or_else(ToString::to_string, |_| String::new());
    let words = mesh.all_gather(word.as_bytes())?;
    let said = |words: &[Vec<u8>]| {
        let found = words.iter().enumerate().find(|(_, word)| !word.is_empty());
        found.map(|(rank, word)| format!("rank {rank}: {}", String::from_utf8_lossy(word)))
    };
    let ids = mesh.all_gather(&id.unwrap_or_default())?;
    if let Some(why) = said(&words) {
        return Ok(Err(why.into()));
    }
    let seen = mesh.seen();
    let made = wanted_nccl(options, || {
        let context = Context::new(ordinal)?;
        let of_world = (mesh.rank(), mesh.world());
        Communicators::join(&context, of_world, &ids[0], options.patience, || seen.lost().is_some())
    });
    let word = made.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let words = mesh.all_gather(word.as_bytes())?;
    Ok(said(&words).map_or(made, |why| Err(why.into())))
}

/// A single rank needs nobody; several need NCCL.
fn served(world: usize, nccl: &Fallback, reasons: &[String]) -> Result<(), CommError> {
    match nccl {
        Err(why) if world > 1 => {
            let mut reasons = reasons.to_vec();
            reasons.push(format!("and there is no NCCL to serve instead: {why}"));
            Err(CommError::NoFamily { reasons })
        }
        _ => Ok(()),
    }
}

fn one(
    stream: &Arc<CudaStream>,
    (rank, here, world): (usize, usize, usize),
    options: &Options,
    nccl: &Fallback,
    reasons: &[String],
    (dead, seen): (Arc<AtomicBool>, Option<Arc<Seen>>),
    keep: Box<dyn Any + Send>,
) -> Result<Communicator, CommError> {
    let dispatch = Dispatch::new(Vec::new());
    let nccl = nccl.clone();
    let parts = Parts {
        stream: stream.clone(),
        ranges: Vec::new(),
        nccl: nccl.and_then(|all| all.rank(here).cloned().ok_or("no such rank".into())),
        dead,
        traced: options.trace.is_some(),
        seen,
        alone: world == 1,
        keep,
    };
    Ok(Communicator {
        rank,
        world,
        part: Part::Cuda(Box::new(CudaPart::new(parts, &dispatch)?)),
        dispatch,
        summary: summary(world, reasons).into(),
        trace: options.trace.clone(),
    })
}

fn summary(world: usize, reasons: &[String]) -> String {
    if world == 1 {
        return "a single rank: nothing to reduce with anybody".to_owned();
    }
    let mut text = "no family fits, NCCL serves everything: `topoforge explain` says more".to_owned();
    for reason in reasons.iter().take(SHOWN) {
        text.push_str("\n  ");
        text.push_str(reason);
    }
    if reasons.len() > SHOWN {
        text.push_str(&format!("\n  and {} more families", reasons.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_callers_and_those_who_name_a_family_keep_the_error() {
        let with = |family: Option<&str>, strict, changed| {
            allowed(&Options {
                family: family.map(String::from),
                strict,
                changed,
                ..Options::default()
            })
        };
        assert!(with(None, false, Changed::Retune) && with(None, false, Changed::Comparator));
        assert!(!with(Some("nvlink-pair"), false, Changed::Retune));
        assert!(!with(None, true, Changed::Retune) && !with(None, false, Changed::Strict));
    }

    #[test]
    fn without_family_and_nccl_several_ranks_are_refused_with_both_reasons() {
        let nccl: Fallback = Err("no libnccl.so.2".into());
        let reasons = ["nvlink-pair: 2 ranks, here 3".to_owned()];
        let refused = served(3, &nccl, &reasons).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|e| e.contains("here 3") && e.contains("no libnccl.so.2")));
        assert!(served(1, &nccl, &reasons).is_ok());
    }

    #[test]
    fn the_explanation_shows_some_reasons_and_counts_the_rest() {
        let reasons: Vec<String> = (0..5).map(|i| format!("family-{i}: too small")).collect();
        let text = summary(3, &reasons);
        assert!(
            text.contains("family-2: too small") && !text.contains("family-3"),
            "{text}"
        );
        assert!(text.contains("and 2 more families"), "{text}");
        assert!(summary(1, &reasons).starts_with("a single rank"));
    }
}
