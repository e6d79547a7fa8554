//! Which GPUs are measured together: a pair for each kind of link, and all of them.
//!
//! It opens nothing. Start at [`pick`].

use clap::ValueEnum;
use topoforge::planner::topology::Topology;

/// Which groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The first pair of every kind of link.
    Pairs,
    /// All visible GPUs, or all that were listed.
    Full,
}

/// GPUs that are measured together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// E.g. `pair over NV18` or `full`.
    pub name: String,
    /// CUDA ordinals.
    pub devices: Vec<usize>,
}

/// The groups among `ordinals`, which `topology` has as its ranks; pairs first. A group that is two kinds at once comes
/// once.
pub fn pick(topology: &Topology, ordinals: &[usize], kinds: &[Kind]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    if kinds.contains(&Kind::Pairs) {
        let mut seen = Vec::new();
        for (at, &a) in ordinals.iter().enumerate() {
            for &b in &ordinals[at + 1..] {
                let Some(link) = topology.link(a, b) else { continue };
                let class = link.class.to_string();
                if !seen.contains(&class) {
                    groups.push(Group {
                        name: format!("pair over {class}"),
                        devices: vec![a, b],
                    });
                    seen.push(class);
                }
            }
        }
    }
    if kinds.contains(&Kind::Full) {
        match groups.iter_mut().find(|g| g.devices == ordinals) {
            Some(known) => known.name.push_str(", full"),
            None => groups.push(Group {
                name: "full".to_owned(),
                devices: ordinals.to_vec(),
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use topoforge::registry::Registry;

    fn topology(name: &str) -> Topology {
        let family = Registry::builtin().family(name).expect("compiled");
        crate::names::topology(family).unwrap_or_else(|_| panic!("{name} parses"))
    }

    #[test]
    fn every_kind_of_link_has_one_pair_and_the_full_group_comes_last() {
        let quad = pick(&topology("nvlink-quad"), &[0, 1, 2, 3], &[Kind::Full, Kind::Pairs]);
        assert_eq!(quad.len(), 2, "{quad:?}");
        assert_eq!(
            (quad[0].devices.as_slice(), quad[1].devices.as_slice()),
            (&[0, 1][..], &[0, 1, 2, 3][..])
        );
        assert!(quad[0].name.starts_with("pair over ") && quad[1].name == "full");
        let listed = pick(&topology("nvlink-quad"), &[3, 1], &[Kind::Pairs]);
        assert_eq!(listed[0].devices, [3, 1]);
    }

    #[test]
    fn a_machine_that_is_a_pair_is_measured_once() {
        let pair = pick(&topology("nvlink-pair"), &[0, 1], &[Kind::Pairs, Kind::Full]);
        assert_eq!(pair.len(), 1);
        assert!(pair[0].name.ends_with(", full"), "{pair:?}");
        assert_eq!(pick(&topology("nvlink-pair"), &[0, 1], &[Kind::Full])[0].name, "full");
    }
}
