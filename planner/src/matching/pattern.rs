//! What a family needs of a machine: its ranks and the directed links its schedules use.
//!
//! It never looks at a live machine. Start reading at [`Pattern`].

use crate::topology::Topology;

/// A directed link that a family's schedules use, and what they do over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Use {
    /// The family rank that stores or loads.
    pub from: usize,
    /// The family rank whose memory it is.
    pub to: usize,
    /// Loads are needed.
    pub read: bool,
    /// Stores are needed.
    pub write: bool,
}

/// A family's topology together with the links in use; what is not used is not asked for.
#[derive(Clone, Debug)]
pub struct Pattern<'a> {
    family: &'a Topology,
    uses: Vec<Use>,
}

impl<'a> Pattern<'a> {
    /// Every link of the family with all its capabilities: the strictest reading.
    pub fn all_links(family: &'a Topology) -> Self {
        let every: Vec<_> = family.links.iter().map(|link| (link.from, link.to)).collect();
        Self::of_links(family, &every)
    }

    /// These directed links of the family, with all capabilities the family states for them.
    pub fn of_links(family: &'a Topology, used: &[(usize, usize)]) -> Self {
        let one = |&(from, to): &(usize, usize)| {
            let link = family.link(from, to);
            Use {
                from,
                to,
                read: link.is_some_and(|link| link.read),
                write: link.is_some_and(|link| link.write),
            }
        };
        Self::of_uses(family, used.iter().map(one).collect())
    }

    /// These links with these capabilities; the needs of a link that is named twice are added up.
    ///
    /// A use of a link that the family lacks is kept: matching then answers
    /// [`Reason::NotInFamily`](super::Reason::NotInFamily).
    pub fn of_uses(family: &'a Topology, mut uses: Vec<Use>) -> Self {
        uses.sort_unstable();
        uses.dedup_by(|next, kept| {
            let same = (next.from, next.to) == (kept.from, kept.to);
            if same {
                kept.read |= next.read;
                kept.write |= next.write;
            }
            same
        });
        Self { family, uses }
    }

    /// The family's topology.
    pub fn family(&self) -> &'a Topology {
        self.family
    }

    /// The links in use, sorted by their ends, each once.
    pub fn uses(&self) -> &[Use] {
        &self.uses
    }
}
