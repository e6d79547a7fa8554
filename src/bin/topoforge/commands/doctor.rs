//! `doctor`: what is wrong with this machine, and a verdict on every ordered pair of GPUs.
//!
//! Each pair is tested by this program in a process of its own (`--pair`), one pair after the other, so that a hang costs
//! only its own deadline; then disjoint pairs side by side. Start at [`run`].

use crate::args::DoctorArgs;
use crate::failure::{Failure, Outcome};
use crate::report::Output;
use crate::report::doctor::{DoctorReport, FindingLine, PairLine};
use std::process::Command;
use std::time::Duration;
use topoforge::comm::scratch_of;
use topoforge::device::cuda::{CudaExecutor, CudaOptions};
use topoforge::doctor::link::KernelLink;
use topoforge::doctor::rounds::{merge, rounds};
use topoforge::doctor::switches::Switches;
use topoforge::doctor::system::{Finding, State, findings};
use topoforge::doctor::{PairReport, cache, child, judge};
use topoforge::matching::match_families;
use topoforge::planner::matching::Options;
use topoforge::probe::{LiveTopology, probe};
use topoforge::registry::{Registry, Variant};

/// Rounds of patterns over each way; four sizes, each met four times.
const ROUNDS: u32 = 16;

/// `topoforge doctor`
pub fn run(args: &DoctorArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let registry = Registry::builtin();
    if let Some(ends) = args.pair {
        return pair(&registry, ends, args.deadline);
    }
    let live = probe();
    let mut found = findings(&live, &registry);
    found.extend(live.as_ref().ok().and_then(|live| scratch(live, &registry)));
    let (pairs, kept) = match &live {
        Ok(live) if registry.has_gpu_code() && !Switches::here().no_peer_access => {
            pairs(live, &registry, args, output)?
        }
        _ => (Vec::new(), false),
    };
    found.sort_by_key(|f| std::cmp::Reverse(f.state));
    output.emit(&DoctorReport {
        findings: found.iter().map(FindingLine::from).collect(),
        pairs: pairs.iter().map(PairLine::from).collect(),
        kept,
    })?;
    let bad = pairs.iter().filter(|p| p.write.is_bad() || p.read.is_bad()).count();
    let faults: Vec<&str> = found
        .iter()
        .filter(|f| f.state == State::Bad)
        .map(|f| f.topic)
        .collect();
    Ok(match (faults.first(), bad) {
        (None, 0) => Outcome::Done,
        (Some(topic), 0) => Outcome::Failed(format!("{topic}: see the findings")),
        (_, n) => Outcome::Failed(format!("{n} of {} peer edges failed and are not used", pairs.len())),
    })
}

/// What serving may take of each GPU's memory.
fn scratch(live: &LiveTopology, registry: &Registry) -> Option<Finding> {
    const MIB: u64 = 1 << 20;
    let matches = match_families(registry, &live.topology, &Options::default());
    let family = matches.first().filter(|m| m.is_feasible())?.family;
    let of = |v: &'static Variant| {
        let largest = v.classes.iter().copied().max().unwrap_or(0).min(MIB);
        scratch_of(v, 512, largest)
    };
    let largest = family.variants.iter().map(of).max()?;
    let limit = topoforge::comm::Options::default().scratch_limit;
    Some(Finding {
        topic: "scratch",
        state: State::Good,
        text: format!(
            "family {}: the largest variant takes {} KiB of each GPU for payloads up to 1 MiB; all routes together keep \
             within {} MiB unless scratch_limit says otherwise, `explain` of a communicator says what they take",
            family.name,
            largest.div_ceil(1024),
            limit / MIB
        ),
    })
}

/// The verdicts on all ordered pairs, and whether they are kept ones.
fn pairs(
    live: &LiveTopology,
    registry: &Registry,
    args: &DoctorArgs,
    output: &mut Output,
) -> Result<(Vec<PairReport>, bool), Failure> {
    let pci = live.gpus.iter().map(|g| g.pci.clone()).collect();
    let key = cache::Key::here(live.driver.as_deref().unwrap_or_default(), pci, registry.kernel_set());
    let place = cache::folder().zip(key);
    if let Some((folder, key)) = place.as_ref().filter(|_| !args.fresh)
        && let Some(kept) = cache::load(folder, key)
    {
        return Ok((kept, true));
    }
    let program = std::env::current_exe().map_err(|e| Failure::work(format!("cannot start a test process: {e}")))?;
    let test = |[a, b]: [usize; 2]| {
        let mut command = Command::new(&program);
        command.args([
            "doctor",
            "--pair",
            &format!("{a},{b}"),
            "--deadline",
            &args.deadline.to_string(),
        ]);
        child::run(command, [a, b], Duration::from_secs(args.deadline))
    };
    let rounds = rounds(live.gpus.len());
    let mut reports = Vec::new();
    let mut conclusive = true;
    for [a, b] in rounds.iter().flatten() {
        output.show(&format!("testing GPU {a} and GPU {b}"));
        let tested = test([*a, *b]);
        conclusive &= tested.conclusive;
        reports.extend(tested.reports);
    }
    // Side by side only once each works alone: a machine that freezes should freeze on a named pair.
    let good = conclusive && reports.iter().all(|r| !r.write.is_bad() && !r.read.is_bad());
    for round in rounds.iter().filter(|round| good && round.len() > 1) {
        output.show(&format!("testing {} pairs side by side", round.len()));
        let later: Vec<_> = std::thread::scope(|scope| {
            let children: Vec<_> = round.iter().map(|ends| scope.spawn(|| test(*ends))).collect();
            children.into_iter().filter_map(|child| child.join().ok()).collect()
        });
        for tested in later {
            conclusive &= tested.conclusive;
            merge(&mut reports, &tested.reports);
        }
    }
    reports.sort_by_key(|r| (r.from, r.to));
    if let Some((folder, key)) = place.filter(|_| conclusive)
        && let Err(e) = cache::store(&folder, &key, &reports)
    {
        output.warn(&format!("the verdicts are not kept: {}: {e}", folder.display()));
    }
    Ok((reports, false))
}

/// The child's side: tests one pair and prints lines.
fn pair(registry: &Registry, ends: [usize; 2], deadline: u64) -> Result<Outcome, Failure> {
    let options = CudaOptions {
        // The kernels give up first, so that the verdict can name the edge.
        deadline: Duration::from_secs((deadline / 8).clamp(1, 10)),
        ..CudaOptions::default()
    };
    let executor = CudaExecutor::new(&ends, 2, options).map_err(Failure::work)?;
    let reports = judge(&mut KernelLink::new(registry, executor, None), ends, ROUNDS);
    print_lines(&reports);
    Ok(Outcome::Done)
}

/// For the parent, which may be gone.
fn print_lines(reports: &[PairReport]) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = out
        .write_all(child::lines(reports).as_bytes())
        .and_then(|()| out.flush());
}
