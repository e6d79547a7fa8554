//! A second opinion on a catalogue: every family is feasible, maximal and different, and the symmetry is one.
//!
//! It shares no code with the search: what a family uses is added up resource by resource, and every lane that could be added
//! is tried. Start reading at [`Catalogue::verify`].

use std::fmt;

use super::super::fabric::Fabric;
use super::template::{OUTSIDE, Template};
use super::{Catalogue, NodeCatalogue, symmetry};

/// What is wrong with a catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsound {
    /// It is of another machine.
    Machine,
    /// Its lane types are not those of the machine.
    Types,
    /// An exchange of groups changes the machine.
    Exchange(usize),
    /// A family has more lanes over a resource, or at a group, than fit.
    Capacity(u128),
    /// A family to which a lane can be added.
    NotMaximal(u128),
    /// An exchange turns a family into one that is not listed.
    NotClosed(u128),
    /// A family is listed twice, or orbits do not make up the families.
    Orbits,
    /// A recorded sequence does not fit: which, and why, in words.
    Sequence(String),
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the catalogue is of another machine: build it again"),
            Self::Types => f.write_str("the catalogue's lane types are not the machine's: build it again"),
            Self::Exchange(k) => write!(f, "exchange {k} of groups changes the machine"),
            Self::Capacity(family) => write!(f, "family {family:x} has more lanes than fit"),
            Self::NotMaximal(family) => write!(f, "a lane can be added to family {family:x}"),
            Self::NotClosed(family) => write!(
                f,
                "an exchange of groups makes family {family:x} one that is not listed"
            ),
            Self::Orbits => f.write_str("orbits do not make up the families"),
            Self::Sequence(e) => f.write_str(e),
        }
    }
}

impl std::error::Error for Unsound {}

impl Catalogue {
    /// Checks everything that can be checked without searching again.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self, fabric: &Fabric) -> Result<(), Unsound> {
        if !self.is_of(fabric) {
            return Err(Unsound::Machine);
        }
        for part in self.alone.iter().chain(&self.member) {
            part.verify(fabric)?;
        }
        if self.sequences.is_empty() {
            return Ok(());
        }
        let node = Fabric::new(&fabric.spec().clone().cluster(1)).map_err(|_| Unsound::Machine)?;
        self.check_sequences(&node).map_err(Unsound::Sequence)
    }
}

impl NodeCatalogue {
    /// As [`Catalogue::verify`], for one part.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self, fabric: &Fabric) -> Result<(), Unsound> {
        let template = Template::new(fabric, self.template.scope).map_err(|_| Unsound::Types)?;
        if template.types != self.template.types || template.sizes != self.template.sizes {
            return Err(Unsound::Types);
        }
        for (k, groups) in self.symmetry.groups.iter().enumerate() {
            if symmetry::image(fabric, &template, groups).as_deref() != self.symmetry.types.get(k).map(Vec::as_slice) {
                return Err(Unsound::Exchange(k));
            }
        }
        if !self.families.is_sorted_by(|a, b| a < b) || !self.orbits.is_sorted_by(|a, b| a < b) {
            return Err(Unsound::Orbits);
        }
        for &family in &self.families {
            check(&template, family)?;
        }
        let exchanges = self.symmetry.exchanges(&template);
        let mut reached = vec![false; self.families.len()];
        for &family in &self.orbits {
            for exchange in &exchanges {
                let image = exchange.map(family);
                let at = self
                    .families
                    .binary_search(&image)
                    .map_err(|_| Unsound::NotClosed(family))?;
                reached[at] = true;
            }
        }
        if reached.contains(&false) {
            return Err(Unsound::Orbits);
        }
        Ok(())
    }
}

/// Whether a family is feasible and maximal.
fn check(template: &Template, family: u128) -> Result<(), Unsound> {
    let groups = template.sizes.len();
    let mut used = vec![0_u32; template.capacity.len()];
    // Ranks of each group that send to and receive from other groups.
    let (mut out, mut into) = (vec![0_u32; groups], vec![0_u32; groups]);
    for (t, lane) in template.types.iter().enumerate() {
        let n = template.count(family, t);
        lane.mids.iter().for_each(|&id| used[usize::from(id)] += n);
        if lane.from != OUTSIDE {
            out[usize::from(lane.from)] += n;
        }
        if lane.to != OUTSIDE {
            into[usize::from(lane.to)] += n;
        }
    }
    let over = |id: usize| template.capacity[id].is_some_and(|most| used[id] > most);
    let size = |g: usize| u32::from(template.sizes[g]);
    if (0..used.len()).any(over) || (0..groups).any(|g| out[g].max(into[g]) > size(g)) {
        return Err(Unsound::Capacity(family));
    }
    // Lanes below each switch take the ranks that are left at both ends.
    for g in 0..groups {
        let below = (size(g) - out[g]).min(size(g) - into[g]);
        (out[g], into[g]) = (out[g] + below, into[g] + below);
    }
    for (t, lane) in template.types.iter().enumerate() {
        let room = lane.mids.iter().all(|&id| {
            let id = usize::from(id);
            template.capacity[id].is_none_or(|most| used[id] < most)
        });
        let sender = lane.from == OUTSIDE || out[usize::from(lane.from)] < size(usize::from(lane.from));
        let receiver = lane.to == OUTSIDE || into[usize::from(lane.to)] < size(usize::from(lane.to));
        if room && sender && receiver && template.count(family, t) < u32::from(lane.copies) {
            return Err(Unsound::NotMaximal(family));
        }
    }
    Ok(())
}
