//! `qualify`: proves every variant of the chosen families and counts what was compared.
//!
//! What is correct is the library's business. Start at [`run`].

use crate::args::QualifyArgs;
use crate::device::{Place, Virtual, resolve};
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use crate::report::proofs::{ControlLine, Failed, FamilyProof, QualifyReport, Skipped};
use topoforge::device::Executor;
use topoforge::qualify::controls::fault_name;
use topoforge::qualify::{Control, Outcome as Caught, Proof, QualifyPlan, Refusal, controls, qualify};
use topoforge::registry::{Family, Registry, Variant};

/// `topoforge qualify`
pub fn run(args: &QualifyArgs, output: &mut Output) -> Result<Outcome, Failure> {
    let registry = Registry::builtin();
    let all = args.family == "all";
    let families = if all {
        registry.families()
    } else {
        vec![names::family(&registry, &args.family)?]
    };
    let place = resolve(args.place.device.as_ref(), &registry, |text| output.note(text))?;
    let mut report = QualifyReport {
        device: place.name(),
        controls: args.controls.then(Vec::new),
        ..QualifyReport::default()
    };
    let mut tally = Tally::default();
    for family in families {
        let ranks = names::ranks(family)?;
        match place.devices(ranks, args.place.sharing()) {
            Ok(devices) => prove(family, ranks, &place, &devices, args, output, &mut report, &mut tally),
            Err(reason) if all => {
                output.note(&format!("skipping {}: {reason}", family.name));
                report.skipped.push(Skipped {
                    family: family.name.to_owned(),
                    reason,
                });
            }
            Err(reason) => {
                let text = format!("cannot qualify {}: {reason}", family.name);
                let asked = matches!(args.place.sharing(), Virtual::Exactly(_));
                return Err(if asked {
                    Failure::usage(text)
                } else {
                    Failure::work(text)
                });
            }
        }
    }
    report.finite_share = tally.finite_share();
    let (checked, refused) = (report.checked, report.failed.len());
    output.emit(&report)?;
    Ok(if checked == 0 {
        Outcome::Failed("nothing was checked".to_owned())
    } else if refused > 0 {
        Outcome::Failed(format!("{refused} of {checked} variants were refused"))
    } else {
        Outcome::Done
    })
}

/// All variants of one family on an executor of its own.
#[allow(clippy::too_many_arguments)]
fn prove(
    family: &'static Family,
    ranks: usize,
    place: &Place,
    devices: &[usize],
    args: &QualifyArgs,
    output: &mut Output,
    report: &mut QualifyReport,
    tally: &mut Tally,
) {
    let refuse = |report: &mut QualifyReport, variant: &str, reason: String| {
        report.failed.push(Failed {
            family: family.name.to_owned(),
            variant: variant.to_owned(),
            reason,
        });
    };
    let of = family.variants.len();
    report.checked += of;
    let mut line = FamilyProof {
        family: family.name.to_owned(),
        ranks,
        virtual_ranks: matches!(place, Place::Cuda { .. }) && devices.len() < ranks,
        checked: of,
        passed: 0,
        words: 0,
        finite_share: 0.0,
    };
    let mut own = Tally::default();
    match place.executors(devices, family, args.place.seed, args.thorough) {
        Err(error) => {
            for variant in family.variants {
                refuse(report, variant.name, error.to_string());
            }
        }
        Ok(mut executors) => {
            for (done, variant) in family.variants.iter().enumerate() {
                output.show(&format!("{} {}/{of}: {}", family.name, done + 1, variant.name));
                match proofs(&mut executors, variant, place, args) {
                    Ok(proofs) => {
                        line.passed += 1;
                        proofs.iter().for_each(|proof| own.add(proof));
                    }
                    Err(reason) => {
                        output.warn(&format!("{} {}: {reason}", family.name, variant.name));
                        refuse(report, variant.name, reason);
                    }
                }
                if let (Some(lines), Some(exec)) = (&mut report.controls, executors.first_mut()) {
                    output.show(&format!(
                        "{} {}/{of}: planting faults in {}",
                        family.name,
                        done + 1,
                        variant.name
                    ));
                    let plan = plan(place, false, args.place.seed);
                    lines.extend(
                        controls(exec.as_mut(), variant, &plan)
                            .iter()
                            .map(|c| control(family, c)),
                    );
                }
            }
        }
    }
    (line.words, line.finite_share) = (own.words, own.finite_share());
    report.passed += line.passed;
    report.words += own.words;
    report.chains += own.chains;
    report.calls += own.calls;
    tally.join(&own);
    report.families.push(line);
}

/// One variant's proofs, an executor each, or the first refusal.
fn proofs(
    executors: &mut [Box<dyn Executor>],
    variant: &'static Variant,
    place: &Place,
    args: &QualifyArgs,
) -> Result<Vec<Proof>, String> {
    let plan = plan(place, args.thorough, args.place.seed);
    let one = |exec: &mut Box<dyn Executor>| {
        let refused = |r: Refusal| format!("{} (after {} good chains)", r.reason, r.passed);
        qualify(exec.as_mut(), variant, &plan).map_err(refused)
    };
    executors.iter_mut().map(one).collect()
}

fn control(family: &Family, control: &Control) -> ControlLine {
    ControlLine {
        family: family.name.to_owned(),
        variant: control.variant.to_owned(),
        fault: fault_name(control.fault),
        outcome: match control.outcome {
            Caught::Caught { .. } => "caught",
            Caught::Missed { .. } => "missed",
            Caught::NotRun { .. } => "not run",
        },
        detail: control.to_string(),
    }
}

/// What is run. The host's threads are fibers, so that payloads stay small there however thorough it is.
fn plan(place: &Place, thorough: bool, seed: u32) -> QualifyPlan {
    let seeds = |n: u32| (0..n).map(|i| seed.wrapping_add(i)).collect();
    match (place, thorough) {
        (_, false) => QualifyPlan {
            seeds: seeds(1),
            ..QualifyPlan::quick()
        },
        (Place::Host, true) => QualifyPlan {
            rounds: 18,
            seeds: seeds(3),
            ..QualifyPlan::quick()
        },
        (Place::Cuda { .. }, true) => QualifyPlan {
            seeds: seeds(2),
            ..QualifyPlan::thorough()
        },
    }
}

/// Sums over proofs.
#[derive(Debug, Default)]
struct Tally {
    chains: u64,
    calls: u64,
    words: u64,
    finite: f64,
}

impl Tally {
    fn add(&mut self, proof: &Proof) {
        self.chains += u64::from(proof.chains);
        self.calls += proof.calls;
        self.words += proof.words;
        self.finite += proof.finite_share * proof.words as f64;
    }

    fn join(&mut self, other: &Self) {
        self.chains += other.chains;
        self.calls += other.calls;
        self.words += other.words;
        self.finite += other.finite;
    }

    fn finite_share(&self) -> f64 {
        self.finite / self.words.max(1) as f64
    }
}
