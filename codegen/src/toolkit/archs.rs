//! Shares the wanted architectures out among the toolkits. Pure: lists in, a plan out.
//!
//! Each architecture is built by the oldest toolkit that has it: 11.8 and 13.0 together give sm_70 to sm_121, and the code
//! for sm_70 to sm_90 loads on every driver since 11.8's, where 13.0's would ask for a driver of CUDA 13. What no toolkit
//! has is left out, with the release that would have it; nothing is dropped in silence. PTX is a last resort for GPUs newer
//! than the build, so only the toolkit of the newest architecture makes it. Start at [`plan_archs`].

use super::{Toolkit, ToolkitError};

/// What is built when nobody says otherwise: every data-centre and desktop architecture from sm_70 on.
pub const STANDARD_ARCHS: &[u32] = &[70, 75, 80, 86, 89, 90, 100, 103, 110, 120, 121];

/// Architectures whose PTX serves the later ones of their generation. Kernels that differ at all, differ between these.
const GENERATIONS: &[u32] = &[70, 80, 90, 100, 120];

/// A CUDA release, as (11, 8).
type Release = (u32, u32);

/// First and last CUDA release that builds an architecture.
const RELEASES: &[(u32, Release, Option<Release>)] = &[
    (70, (9, 0), Some((12, 9))),
    (72, (9, 2), Some((12, 9))),
    (75, (10, 0), None),
    (80, (11, 0), None),
    (86, (11, 1), None),
    (87, (11, 4), None),
    (89, (11, 8), None),
    (90, (11, 8), None),
    (100, (12, 8), None),
    (103, (12, 9), None),
    (110, (13, 0), None),
    (120, (12, 8), None),
    (121, (12, 9), None),
];

/// The architectures to build, and what to do about PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    archs: Vec<u32>,
    ptx: Ptx,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Ptx {
    ForNewest,
    For(Option<u32>),
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted::of(STANDARD_ARCHS)
    }
}

impl Wanted {
    /// Reads `70,80,90+ptx`. `sm_` before a number is allowed; without a `+ptx` no PTX is built.
    ///
    /// `native` is refused: a build never asks the machine it runs on, which is rarely the one that serves.
    pub fn parse(text: &str) -> Result<Wanted, ToolkitError> {
        let fault = |why: String| ToolkitError::Archs {
            text: text.to_owned(),
            why,
        };
        let mut archs = Vec::new();
        let mut ptx = None;
        for item in text.split([',', ';', ' ']).filter(|item| !item.is_empty()) {
            if item == "native" {
                return Err(fault(
                    "`native` is not supported, since a build never looks at the machine's GPUs".to_owned(),
                ));
            }
            let (number, with_ptx) = match item.strip_suffix("+ptx") {
                Some(number) => (number, true),
                None => (item, false),
            };
            let number = number.strip_prefix("sm_").unwrap_or(number);
            let arch: u32 = number
                .parse()
                .map_err(|_| fault(format!("`{item}` is no architecture")))?;
            if arch < 70 {
                return Err(fault(format!("sm_{arch} is older than sm_70, the first supported")));
            }
            if with_ptx && ptx.replace(arch).is_some() {
                return Err(fault("`+ptx` stands twice".to_owned()));
            }
            archs.push(arch);
        }
        if archs.is_empty() {
            return Err(fault("it names no architecture".to_owned()));
        }
        archs.sort_unstable();
        archs.dedup();
        Ok(Wanted {
            archs,
            ptx: Ptx::For(ptx),
        })
    }

    /// These architectures with PTX for the newest that a toolkit has.
    pub fn of(archs: &[u32]) -> Wanted {
        let mut archs = archs.to_vec();
        archs.sort_unstable();
        archs.dedup();
        Wanted {
            archs,
            ptx: Ptx::ForNewest,
        }
    }

    /// The value of `TOPOFORGE_ARCHS`, else [`STANDARD_ARCHS`] with PTX for the newest.
    pub fn from_env(env: &crate::env::Env) -> Result<Wanted, ToolkitError> {
        match env.text(crate::env::TOPOFORGE_ARCHS) {
            Some(text) => Wanted::parse(&text),
            None => Ok(Wanted::default()),
        }
    }

    /// The architectures, ascending.
    pub fn archs(&self) -> &[u32] {
        &self.archs
    }
}

/// Who builds what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchPlan {
    /// One entry for each toolkit that has work, in the order of the toolkits.
    pub builds: Vec<ToolkitBuild>,
    /// What was wanted and no toolkit has.
    pub left_out: Vec<LeftOut>,
}

/// One toolkit's share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolkitBuild {
    /// Index into the list of toolkits.
    pub toolkit: usize,
    /// Architectures to make machine code for, ascending.
    pub sms: Vec<u32>,
    /// The virtual architecture to add PTX for.
    pub ptx: Option<u32>,
    /// `sms` by the virtual architecture they are compiled through: front end and optimiser run once for each.
    pub groups: Vec<(u32, Vec<u32>)>,
}

/// A wanted architecture that is not built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The architecture, as 100 for sm_100.
    pub sm: u32,
    /// Why, and which CUDA would have it.
    pub reason: String,
}

impl ArchPlan {
    /// Every architecture with machine code, ascending.
    pub fn archs(&self) -> Vec<u32> {
        let mut archs: Vec<u32> = self.builds.iter().flat_map(|build| &build.sms).copied().collect();
        archs.sort_unstable();
        archs
    }

    /// The virtual architecture of the PTX, if any is built.
    pub fn ptx(&self) -> Option<u32> {
        self.builds.iter().find_map(|build| build.ptx)
    }
}

impl ToolkitBuild {
    /// The `-gencode` arguments.
    pub(crate) fn gencode(&self) -> Vec<String> {
        let mut args = Vec::new();
        for (base, sms) in &self.groups {
            let codes: Vec<String> = sms.iter().map(|sm| format!("sm_{sm}")).collect();
            args.push("-gencode".to_owned());
            args.push(format!("arch=compute_{base},code=[{}]", codes.join(",")));
        }
        if let Some(ptx) = self.ptx {
            args.push("-gencode".to_owned());
            args.push(format!("arch=compute_{ptx},code=compute_{ptx}"));
        }
        args
    }
}

/// Gives each wanted architecture to the oldest toolkit that has it (of equals, the first).
pub fn plan_archs(toolkits: &[Toolkit], wanted: &Wanted) -> ArchPlan {
    let oldest_with = |sm: u32| {
        let has = |toolkit: &Toolkit| toolkit.archs.contains(&sm);
        let oldest = toolkits.iter().filter(|t| has(t)).map(|t| t.version).min()?;
        toolkits.iter().position(|t| has(t) && t.version == oldest)
    };
    let mut shares: Vec<Vec<u32>> = vec![Vec::new(); toolkits.len()];
    let mut left_out = Vec::new();
    for &sm in &wanted.archs {
        match oldest_with(sm) {
            Some(index) => shares[index].push(sm),
            None => left_out.push(LeftOut {
                sm,
                reason: why_not(sm, toolkits),
            }),
        }
    }
    let ptx = ptx_of(toolkits, &shares, wanted);
    let builds = shares
        .into_iter()
        .enumerate()
        .filter(|(_, sms)| !sms.is_empty())
        .map(|(toolkit, sms)| ToolkitBuild {
            toolkit,
            ptx: ptx.filter(|(index, _)| *index == toolkit).map(|(_, arch)| arch),
            groups: groups(&sms, &toolkits[toolkit]),
            sms,
        })
        .collect();
    ArchPlan { builds, left_out }
}

/// (toolkit, virtual architecture) of the PTX. By default it is the generation of the newest architecture built:
/// compute_120 serves all that compute_121 does, and costs no further run of the front end.
fn ptx_of(toolkits: &[Toolkit], shares: &[Vec<u32>], wanted: &Wanted) -> Option<(usize, u32)> {
    let owner = |sm: u32| shares.iter().position(|share| share.contains(&sm));
    match wanted.ptx {
        Ptx::For(arch) => arch.and_then(|sm| Some((owner(sm)?, sm))),
        Ptx::ForNewest => {
            let newest = *shares.iter().flatten().max()?;
            let index = owner(newest)?;
            Some((index, virtual_base(newest, &toolkits[index])))
        }
    }
}

fn groups(sms: &[u32], toolkit: &Toolkit) -> Vec<(u32, Vec<u32>)> {
    let mut groups: Vec<(u32, Vec<u32>)> = Vec::new();
    for &sm in sms {
        let base = virtual_base(sm, toolkit);
        match groups.iter_mut().find(|(known, _)| *known == base) {
            Some((_, members)) => members.push(sm),
            None => groups.push((base, vec![sm])),
        }
    }
    groups
}

fn virtual_base(sm: u32, toolkit: &Toolkit) -> u32 {
    let generation = GENERATIONS.iter().copied().filter(|base| *base <= sm).max();
    generation.filter(|base| toolkit.archs.contains(base)).unwrap_or(sm)
}

fn why_not(sm: u32, toolkits: &[Toolkit]) -> String {
    let found: Vec<String> = toolkits.iter().map(Toolkit::release).collect();
    let found = if found.is_empty() {
        "no CUDA was found".to_owned()
    } else {
        format!("found CUDA {}", found.join(" and "))
    };
    match RELEASES.iter().find(|(arch, ..)| *arch == sm) {
        Some((_, (major, minor), None)) => {
            format!("sm_{sm} needs CUDA {major}.{minor} or newer; {found}")
        }
        Some((_, (major, minor), Some((last, last_minor)))) => {
            format!("sm_{sm} needs CUDA {major}.{minor} to {last}.{last_minor}, the last that has it; {found}")
        }
        None => format!("sm_{sm} is not known to any CUDA found; {found}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolkit(version: (u32, u32), archs: &[u32]) -> Toolkit {
        Toolkit {
            nvcc: format!("/cuda-{}.{}/bin/nvcc", version.0, version.1).into(),
            version,
            full_version: format!("{}.{}.1", version.0, version.1),
            archs: archs.to_vec(),
            id: format!("{version:?}"),
        }
    }

    fn cuda_11_8() -> Toolkit {
        toolkit((11, 8), &[52, 60, 61, 70, 72, 75, 80, 86, 87, 89, 90])
    }

    fn cuda_13_0() -> Toolkit {
        toolkit((13, 0), &[75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121])
    }

    #[test]
    fn one_old_toolkit_builds_70_to_90_and_names_the_rest() {
        let plan = plan_archs(&[cuda_11_8()], &Wanted::default());
        assert_eq!(plan.archs(), [70, 75, 80, 86, 89, 90]);
        assert_eq!(plan.ptx(), Some(90));
        let left: Vec<u32> = plan.left_out.iter().map(|l| l.sm).collect();
        assert_eq!(left, [100, 103, 110, 120, 121]);
        assert_eq!(
            plan.left_out[0].reason,
            "sm_100 needs CUDA 12.8 or newer; found CUDA 11.8"
        );
    }

    #[test]
    fn a_new_toolkit_alone_leaves_70_out_and_says_why() {
        let plan = plan_archs(&[cuda_13_0()], &Wanted::default());
        assert_eq!(plan.left_out.len(), 1);
        assert_eq!(
            plan.left_out[0].reason,
            "sm_70 needs CUDA 9.0 to 12.9, the last that has it; found CUDA 13.0"
        );
        assert_eq!(plan.builds[0].groups[0], (75, vec![75]));
        assert_eq!(plan.builds[0].groups[3], (100, vec![100, 103, 110]));
    }

    #[test]
    fn two_toolkits_cover_everything_each_by_the_oldest_that_has_it() {
        for (toolkits, old, new) in [([cuda_11_8(), cuda_13_0()], 0, 1), ([cuda_13_0(), cuda_11_8()], 1, 0)] {
            let plan = plan_archs(&toolkits, &Wanted::default());
            assert!(plan.left_out.is_empty());
            let of = |index| plan.builds.iter().find(|b| b.toolkit == index).unwrap();
            assert_eq!(of(old).sms, [70, 75, 80, 86, 89, 90]);
            assert_eq!(of(old).ptx, None);
            assert_eq!(of(new).sms, [100, 103, 110, 120, 121]);
            assert_eq!(of(new).ptx, Some(120));
        }
    }

    #[test]
    fn one_generation_is_compiled_once() {
        let plan = plan_archs(&[cuda_11_8()], &Wanted::default());
        assert_eq!(
            plan.builds[0].gencode(),
            [
                "-gencode",
                "arch=compute_70,code=[sm_70,sm_75]",
                "-gencode",
                "arch=compute_80,code=[sm_80,sm_86,sm_89]",
                "-gencode",
                "arch=compute_90,code=[sm_90]",
                "-gencode",
                "arch=compute_90,code=compute_90",
            ]
        );
    }

    #[test]
    fn no_toolkit_plans_nothing_and_says_so_for_each() {
        let plan = plan_archs(&[], &Wanted::default());
        assert!(plan.builds.is_empty());
        assert_eq!(plan.left_out.len(), STANDARD_ARCHS.len());
        assert!(plan.left_out[0].reason.ends_with("no CUDA was found"));
    }

    #[test]
    fn an_explicit_list_is_taken_as_said() {
        let wanted = Wanted::parse("90+ptx, sm_70,80").unwrap();
        let plan = plan_archs(&[cuda_11_8()], &wanted);
        assert_eq!(plan.archs(), [70, 80, 90]);
        assert_eq!(plan.ptx(), Some(90));
        let plan = plan_archs(&[cuda_11_8()], &Wanted::parse("70,86").unwrap());
        assert_eq!(plan.ptx(), None);
        assert_eq!(plan.builds[0].groups, [(70, vec![70]), (80, vec![86])]);
    }

    #[test]
    fn a_faulty_list_is_refused_in_words() {
        for (text, word) in [
            ("native", "never looks"),
            ("70,90a", "`90a` is no architecture"),
            ("60", "older than sm_70"),
            ("80+ptx,90+ptx", "twice"),
            (" ,", "names no architecture"),
        ] {
            let message = Wanted::parse(text).unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
