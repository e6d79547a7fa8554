//! `plan --show-cuda` and `plan --check`: the text that a family is compiled from, and whether this binary holds just that.
//!
//! Both lower the descriptor again, as the build did; neither compiles or runs anything. Start at [`show`] and [`check`].

use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::Output;
use crate::report::cuda::{CheckReport, CudaReport, Difference, FamilyCheck, KernelLine};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use topoforge::planner::names::nearest;
use topoforge::planner::topology::Topology;
use topoforge::registry::{Family, Registry};
use topoforge_codegen::Element;
use topoforge_codegen::manifest::family_hash;
use topoforge_codegen::select::{Selection, select};
use topoforge_codegen::toolkit::sha256;

/// What stands for every kernel, or every family.
pub const ALL: &str = "all";

/// A descriptor: its text and what it says.
struct Subject {
    text: String,
    topology: Topology,
}

impl Subject {
    fn of_family(family: &Family) -> Result<Self, Failure> {
        Ok(Self {
            text: family.descriptor.to_owned(),
            topology: names::topology(family)?,
        })
    }

    fn of(target: &str) -> Result<Self, Failure> {
        if !names::is_file(target) {
            return Self::of_family(names::family(&Registry::builtin(), target)?);
        }
        let topology = names::descriptor(Path::new(target))?;
        let text = std::fs::read_to_string(target).map_err(|e| Failure::usage(format!("cannot read {target}: {e}")))?;
        Ok(Self { text, topology })
    }
}

/// `topoforge plan FAMILY --show-cuda`: every kernel's text, or those of a variant or a hash.
pub fn show(target: &str, what: &str, output: &mut Output) -> Result<Outcome, Failure> {
    let topology = Subject::of(target)?.topology;
    output.show(&format!("lowering {}", topology.name));
    let selection = select(&topology, &elements(&Registry::builtin()));
    let mut kernels = lines(&selection);
    if what != ALL {
        let wanted = |k: &KernelLine| k.hash == what || k.symbol == what || k.variants.iter().any(|v| v == what);
        if !kernels.iter().any(wanted) {
            return Err(no_such(what, &topology.name, &kernels));
        }
        kernels.retain(wanted);
    }
    if kernels.is_empty() {
        return Ok(Outcome::Failed(super::plan::unserved(&topology)));
    }
    let topology = topology.name;
    output.emit(&CudaReport { topology, kernels })?;
    Ok(Outcome::Done)
}

fn no_such(what: &str, topology: &str, kernels: &[KernelLine]) -> Failure {
    let known: Vec<&str> = (kernels.iter().flat_map(|k| &k.variants)).map(String::as_str).collect();
    let near = nearest(what, &known);
    let hint = if near.is_empty() { known } else { near };
    Failure::usage(format!(
        "{topology} has no variant or kernel `{what}`: there are {}",
        hint.join(", ")
    ))
}

/// The kernels in the order of the variants that use them.
fn lines(selection: &Selection) -> Vec<KernelLine> {
    let mut lines: Vec<KernelLine> = Vec::new();
    for variant in &selection.variants {
        if let Some(line) = lines.iter_mut().find(|l| l.hash == variant.kernel) {
            line.variants.push(variant.name.clone());
        } else if let Some(kernel) = selection.kernels.get(&variant.kernel) {
            lines.push(KernelLine {
                hash: kernel.hash.clone(),
                symbol: kernel.symbol.clone(),
                protocol: kernel.protocol.name().to_owned(),
                variants: vec![variant.name.clone()],
                text: kernel.text.clone(),
            });
        }
    }
    lines
}

/// `topoforge plan FAMILY --check`: lowers anew and compares with what is compiled into this binary, hash by hash.
pub fn check(target: &str, output: &mut Output) -> Result<Outcome, Failure> {
    let registry = Registry::builtin();
    let subjects: Vec<Subject> = if target == ALL {
        let all = registry.families();
        all.into_iter().map(Subject::of_family).collect::<Result<_, _>>()?
    } else {
        vec![Subject::of(target)?]
    };
    let mut families = Vec::new();
    for subject in &subjects {
        output.show(&format!("lowering {}", subject.topology.name));
        let family = names::family(&registry, &subject.topology.name)?;
        families.push(compare(subject, family, &elements(&registry)));
    }
    let differing: Vec<&str> = (families.iter())
        .filter(|f| !f.equal)
        .map(|f| f.family.as_str())
        .collect();
    let outcome = if differing.is_empty() {
        Outcome::Done
    } else {
        let which = differing.join(", ");
        Outcome::Failed(format!(
            "what is compiled in is not what {which} would be now: build again"
        ))
    };
    output.emit(&CheckReport { families })?;
    Ok(outcome)
}

/// The element types of this build, which both compare like with like.
fn elements(registry: &Registry) -> Vec<Element> {
    let held = |e: &&Element| {
        let names = registry.builds().flat_map(|b| b.elements).map(|h| h.name());
        names.into_iter().any(|name| name == e.name())
    };
    Element::ALL.iter().filter(held).copied().collect()
}

fn compare(subject: &Subject, family: &Family, elements: &[Element]) -> FamilyCheck {
    let selection = select(&subject.topology, elements);
    let now: BTreeMap<&str, &str> = (selection.variants.iter())
        .map(|v| (v.name.as_str(), v.kernel.as_str()))
        .collect();
    let held: BTreeMap<&str, &str> = family.variants.iter().map(|v| (v.name, v.kernel.hash)).collect();
    let all: BTreeSet<&str> = now.keys().chain(held.keys()).copied().collect();
    let difference = |name: &str, lowered: Option<&str>, compiled: Option<&str>| {
        (lowered != compiled).then(|| Difference {
            name: name.to_owned(),
            lowered: lowered.map(str::to_owned),
            compiled: compiled.map(str::to_owned),
        })
    };
    let mut differences: Vec<Difference> = (all.into_iter())
        .filter_map(|name| difference(name, now.get(name).copied(), held.get(name).copied()))
        .collect();
    let digest = sha256::hex(subject.text.as_bytes());
    let held_digest = sha256::hex(family.descriptor.as_bytes());
    differences.extend(difference("descriptor", Some(&digest[..16]), Some(&held_digest[..16])));
    // Ports and tables are no text of a kernel; the family's hash covers them.
    let hash = family_hash(&digest, &selection.variants);
    if differences.is_empty() {
        differences.extend(difference("ports", Some(&hash), Some(family.hash)));
    }
    FamilyCheck {
        family: family.name.to_owned(),
        equal: differences.is_empty(),
        variants: selection.variants.len(),
        kernels: selection.kernels.len(),
        differences,
    }
}
