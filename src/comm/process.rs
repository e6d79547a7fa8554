//! Sets up one rank of a communicator whose ranks are processes: join, compare binaries and options, place, then as in
//! one process, step by step together.
//!
//! Rank 0 decides where a choice could differ, e.g. the placement; everybody hears it. Start at [`cuda`].

use super::setup::{self, Fallback};
use super::site::{Facts, Placed, Site, by_name, nccl_here, nearest};
use super::{CommError, Communicator, Options, tables, unmatched};
use crate::device::cuda::{CudaExecutor, CudaOptions, Member};
use crate::device::{DeviceError, Executor};
use crate::doctor::switches::Switches;
use crate::driver::context::{Context, Device};
use crate::driver::nccl::{Communicators, Nccl};
use crate::driver::nccl_rank::NcclRank;
use crate::probe::{KnownGpu, probe_these};
use crate::process::link::Steps;
use crate::process::mesh::Mesh;
use crate::process::wire::{Reader, Writer, hash};
use crate::process::{Bootstrap, JoinError};
use crate::registry::{Family, Memory};
use crate::routes::Routes;
use cudarc::driver::CudaStream;
use std::sync::Arc;
use std::time::Duration;

/// How long a step may take: a rank may wait for some deadlines of its kernels before it can say what happened.
pub(super) fn patient(options: &Options) -> Duration {
    options.patience.saturating_add(options.deadline.saturating_mul(4))
}

/// Joins this process's rank with the others.
pub(super) fn cuda(
    stream: &Arc<CudaStream>,
    bootstrap: &mut dyn Bootstrap,
    options: &Options,
) -> Result<Communicator, CommError> {
    let mut mesh = Mesh::join(bootstrap, options.patience)?;
    mesh.set_patience(patient(options).saturating_add(Duration::from_secs(30)));
    let rank = mesh.rank();
    let outcome = compare(&mut mesh, options).and_then(|tables| {
        let ordinal = stream.context().ordinal();
        let members = members(&mut mesh, ordinal, options)?;
        let found = place(&mut mesh, &members, options)?;
        Ok((tables, ordinal, members, found))
    });
    let (tables, ordinal, members, found) = match outcome {
        Ok(found) => found,
        Err(error) => {
            // The others wait for this rank: they are told why in vain.
            let reason = error.to_string();
            mesh.give_up(&JoinError::Misuse { reason });
            return Err(error);
        }
    };
    let nccl_identity = agreed_nccl(&mut mesh)?;
    let (family, placement, fit, facts) = match found {
        Ok(found) => found,
        Err(reasons) => return unmatched::process(mesh, stream, options, &reasons),
    };
    mesh.renumber(&placement);
    let by_family: Vec<Member> = placement.iter().map(|p| members[*p].clone()).collect();
    let staged = family.variants.iter().all(|v| v.memory == Memory::Host);
    let cuda_options = CudaOptions {
        deadline: options.deadline,
        staged: staged || Switches::here().no_peer_access,
        share: options.share,
    };
    let mut executor = CudaExecutor::joined(ordinal, &by_family, Steps::new(mesh), cuda_options)?;
    executor.avoid_lines(facts.cut_ranks(&placement));
    let site = Site {
        family,
        placement,
        executor,
        fit,
        writes: rank == 0,
        facts,
        nccl: nccl_identity,
        kernel_set: options.registry.kernel_set(),
    };
    let nccl = |site: &Site| fallback(site, ordinal, options);
    let mut made = setup::serve(site, &[(rank, stream)], options, nccl, tables)?;
    made.pop().ok_or(CommError::Device(DeviceError::Poisoned))
}

/// NCCL over all processes. A step.
fn fallback(site: &Site, ordinal: usize, options: &Options) -> Result<Fallback, CommError> {
    let executor = &site.executor;
    if !executor.device().timed {
        return Ok(Err(
            "NCCL needs a GPU of its own for each rank; here several ranks share one".into(),
        ));
    }
    let made = setup::wanted_nccl(options, || {
        let id = if executor.first() == 0 {
            NcclRank::unique_id().map(|id| id.to_vec())
        } else {
            Nccl::open().map(|_| Vec::new())
        };
        let ids = executor.agree("NCCL's id to fall back on", id)?;
        let context = Context::new(ordinal)?;
        let world = executor.ranks();
        Communicators::join(&context, (executor.first(), world), &ids[0], options.patience, || {
            executor.lost()
        })
    });
    // All have it or none.
    let here = made.as_ref().err().map_or(0, |_| 1);
    let all = executor.agree("NCCL to fall back on", Ok(vec![here]))?;
    Ok(match all.iter().position(|b| *b == [1]) {
        None => made,
        Some(_) if made.is_err() => made,
        Some(rank) => Err(format!("rank {} could not join it", site.placement[rank]).into()),
    })
}

/// Everybody has the same binary, options and tables, or says whose differ. The tables, one a type.
pub(super) fn compare(mesh: &mut Mesh, options: &Options) -> Result<Vec<Option<Routes>>, CommError> {
    options.check()?;
    let kernels = options.registry.kernel_set();
    let tables = tables::read(options)?;
    let text = tables::text(tables.iter().flatten());
    let table = if text.is_empty() { 0 } else { hash(text.as_bytes()) };
    let mine = Writer::default()
        .text(env!("CARGO_PKG_VERSION"))
        .text(&kernels)
        .text(&words(options))
        .u64(table)
        .done();
    let all = mesh.all_gather(&mine)?;
    let read = |bytes: &[u8]| {
        let mut r = Reader::new(bytes);
        Some((r.text()?, r.text()?, r.text()?, r.u64()?))
    };
    let refused = |reason: String| Err(CommError::Join(JoinError::Refused { reason }));
    let Some(first) = read(&all[0]) else {
        return refused("rank 0 says what cannot be read: use one version".to_owned());
    };
    for (rank, bytes) in all.iter().enumerate() {
        let Some(theirs) = read(bytes) else {
            return refused(format!("rank {rank} says what cannot be read: use one version"));
        };
        let named = |table: u64| {
            if table == 0 {
                "none".to_owned()
            } else {
                format!("{table:016x}")
            }
        };
        let (what, a, b) = if theirs.0 != first.0 {
            ("topoforge", first.0.clone(), theirs.0)
        } else if theirs.1 != first.1 {
            ("the kernels of another binary: kernel set", first.1.clone(), theirs.1)
        } else if theirs.2 != first.2 {
            ("other options", first.2.clone(), theirs.2)
        } else if theirs.3 != first.3 {
            ("another table of routes", named(first.3), named(theirs.3))
        } else {
            continue;
        };
        return refused(format!("rank {rank} has {what}: rank 0 has {a}, rank {rank} {b}"));
    }
    Ok(tables)
}

/// What must be the same on all ranks, in words.
fn words(options: &Options) -> String {
    let Options {
        family,
        elements,
        partials,
        payloads,
        comparators,
        nccl,
        programmatic,
        changed,
        strict,
        deadline,
        shared_gpus,
        share,
        batch_invariant,
        scratch_limit,
        ..
    } = options;
    let off = Switches::here();
    format!(
        "family {family:?}, elements {elements:?}, partials {partials}, payloads {:?}, comparators {comparators:?}, nccl {nccl:?}, programmatic {programmatic}, \
         changed {changed:?}, strict {strict}, deadline {deadline:?}, shared_gpus {shared_gpus}, share {share:?}, \
         batch_invariant {batch_invariant}, scratch_limit {scratch_limit}, {off:?}",
        payloads.bytes()
    )
}

/// All ranks' GPUs, in the order of ranks.
fn members(mesh: &mut Mesh, ordinal: usize, options: &Options) -> Result<Vec<Member>, CommError> {
    let device = Device::new(ordinal)?;
    let asked =
        (|| Ok::<_, crate::driver::DriverError>((device.name()?, device.uuid()?, device.pci()?, device.arch()?)))();
    let (name, uuid, pci, arch) = asked.map_err(DeviceError::from)?;
    let mine = Writer::default().text(&name).bytes(&uuid).text(&pci).u32(arch).done();
    let mut members = Vec::new();
    for (rank, bytes) in mesh.all_gather(&mine)?.iter().enumerate() {
        let mut r = Reader::new(bytes);
        let read = || {
            let (name, uuid) = (r.text()?, r.bytes()?.try_into().ok()?);
            let (pci, arch) = (r.text()?, r.u32()?);
            Some(Member { name, uuid, pci, arch })
        };
        let read = { read }();
        members.push(read.ok_or_else(|| JoinError::Refused {
            reason: format!("rank {rank} says nothing of its GPU that can be read"),
        })?);
    }
    for (rank, member) in members.iter().enumerate() {
        let other = members[..rank].iter().position(|m| m.uuid == member.uuid);
        if let (Some(other), false) = (other, options.shared_gpus) {
            let reason = format!(
                "ranks {other} and {rank} are on the same GPU ({}, {}): give each its own, or allow shared_gpus",
                member.name, member.pci
            );
            return Err(CommError::Join(JoinError::Refused { reason }));
        }
    }
    Ok(members)
}

/// What fits, or why nothing does.
type Found = Result<(&'static Family, Vec<usize>, String, Facts), Vec<String>>;

/// Rank 0 looks and tells. That nothing fits is an error only where NCCL must not serve instead.
fn place(mesh: &mut Mesh, members: &[Member], options: &Options) -> Result<Found, CommError> {
    let told = if mesh.rank() == 0 {
        let mut w = Writer::default();
        match look(members, options) {
            Err(CommError::NoFamily { reasons }) if unmatched::allowed(options) => {
                w.text("").u32(reasons.len() as u32);
                for reason in &reasons {
                    w.text(reason);
                }
                w.done()
            }
            looked => {
                let (placed, facts) = looked?;
                w.text(placed.0.name).u32(placed.1.len() as u32);
                for place in &placed.1 {
                    w.u32(*place as u32);
                }
                w.text(&placed.2).text(&facts.driver).u64(facts.layout);
                w.u32(facts.cut.len() as u32);
                for (a, b) in &facts.cut {
                    w.u32(*a as u32).u32(*b as u32);
                }
                w.done()
            }
        }
    } else {
        Vec::new()
    };
    let all = mesh.all_gather(&told)?;
    let nothing = (|| {
        let mut r = Reader::new(&all[0]);
        let named = r.text()?;
        let reasons = (0..r.u32()?).map(|_| r.text()).collect::<Option<Vec<String>>>();
        reasons.filter(|_| named.is_empty())
    })();
    if let Some(reasons) = nothing {
        return Ok(Err(reasons));
    }
    let mut r = Reader::new(&all[0]);
    let mut read = || {
        let name = r.text()?;
        let count = r.u32()?;
        let placement: Vec<usize> = (0..count).map(|_| r.u32().map(|p| p as usize)).collect::<Option<_>>()?;
        let (fit, driver, layout) = (r.text()?, r.text()?, r.u64()?);
        let count = r.u32()?;
        let pair = |r: &mut Reader<'_>| Some((r.u32()? as usize, r.u32()? as usize));
        let cut: Vec<(usize, usize)> = (0..count).map(|_| pair(&mut r)).collect::<Option<_>>()?;
        Some((name, placement, fit, Facts { driver, layout, cut }))
    };
    let Some((name, placement, fit, facts)) = read() else {
        let reason = "rank 0 says nothing of the family that can be read".to_owned();
        return Err(CommError::Join(JoinError::Refused { reason }));
    };
    // The same kernels were agreed on, so the family is here too.
    let family = options.registry.family(&name).ok_or_else(|| CommError::NoFamily {
        reasons: vec![format!("{name}, which rank 0 chose: not in this build")],
    })?;
    let mut seen = placement.clone();
    seen.sort_unstable();
    if seen != (0..members.len()).collect::<Vec<_>>() {
        let reason = format!(
            "family {name} has {} ranks, but {} joined",
            placement.len(),
            members.len()
        );
        return Err(CommError::Misuse { reason });
    }
    Ok(Ok((family, placement, fit, facts)))
}

fn look(members: &[Member], options: &Options) -> Result<(Placed, Facts), CommError> {
    let known = |m: &Member| KnownGpu::elsewhere(m.name.clone(), m.uuid, m.pci.clone(), m.arch);
    let gpus: Vec<KnownGpu> = members.iter().map(known).collect();
    let live = probe_these(&gpus)?;
    let all: Vec<usize> = (0..members.len()).collect();
    let placed = match options.family.as_deref() {
        Some(name) => by_name(&options.registry, name, members.len())?,
        None => nearest(&options.registry, &live, &all)?,
    };
    let mut facts = Facts::of(&live, &all);
    // Ranks on one GPU share its memory.
    facts.cut.retain(|(a, b)| members[*a].uuid != members[*b].uuid);
    Ok((placed, facts))
}

/// The NCCL of all ranks: they must not differ, since NCCL refuses to join versions.
fn agreed_nccl(mesh: &mut Mesh) -> Result<Option<crate::routes::NcclIdentity>, CommError> {
    let here = nccl_here();
    let said = here
        .as_ref()
        .map_or_else(|| "none".to_owned(), |n| format!("{} from {}", n.version, n.path));
    let all = mesh.all_gather(said.as_bytes())?;
    let text = |rank: usize| String::from_utf8_lossy(&all[rank]).into_owned();
    match (1..all.len()).find(|rank| all[*rank] != all[0]) {
        None => Ok(here),
        Some(rank) => Err(CommError::Join(JoinError::Refused {
            reason: format!(
                "rank 0 has NCCL {}, rank {rank} has NCCL {}: use one",
                text(0),
                text(rank)
            ),
        })),
    }
}
