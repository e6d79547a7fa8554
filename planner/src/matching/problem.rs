//! A matching question as numbers: what it costs to put two family ranks on two live ones.
//!
//! It settles what needs no search: rank counts, listed devices, links that nothing live can serve.
//! Start reading at [`Problem`].

use std::collections::BTreeMap;

use super::Devices;
use super::distance::distance;
use super::pattern::Pattern;
use super::report::Reason;
use crate::topology::{Link, LinkClass, Topology};

/// Cost of what cannot be; larger than any sum of link distances.
pub(super) const BLOCKED: u32 = u32::MAX;

/// Adds costs; blocked stays blocked.
pub(super) fn plus(a: u32, b: u32) -> u32 {
    a.saturating_add(b)
}

/// A family rank's used links to one other family rank.
pub(super) struct Neighbour {
    pub rank: usize,
    /// Index into `Problem::tables` of the link to, and from, `rank`.
    pub out: Option<usize>,
    pub back: Option<usize>,
    /// The least that both together cost anywhere.
    pub least: u32,
    /// Index of the row in `Problem::ahead`: the least by the own rank's slot.
    pub ahead: usize,
}

pub(super) struct Problem {
    /// Live rank of each slot; the search works on slots, in ascending order of live ranks.
    pub slots: Vec<usize>,
    /// For each family rank, its neighbours in ascending order.
    pub neighbours: Vec<Vec<Neighbour>>,
    /// For each different need, the cost of each ordered pair of slots (row-major).
    tables: Vec<Vec<u32>>,
    /// For each different pair of needs and each slot, the least that a neighbour costs from there.
    pub ahead: Vec<Vec<u32>>,
    /// Used links with what the family makes them of, for reasons.
    classes: Vec<(usize, usize, LinkClass)>,
}

impl Problem {
    pub(super) fn new(pattern: &Pattern<'_>, live: &Topology, devices: &Devices) -> Result<Self, Reason> {
        let family = pattern.family();
        let slots = slots(family.ranks, live, devices)?;
        let mut problem = Self {
            slots,
            neighbours: (0..family.ranks).map(|_| Vec::new()).collect(),
            tables: Vec::new(),
            ahead: Vec::new(),
            classes: Vec::new(),
        };
        let mut needs: Vec<(LinkClass, bool, bool)> = Vec::new();
        for used in pattern.uses() {
            let (from, to) = (used.from, used.to);
            let in_family = family
                .link(from, to)
                .filter(|_| from != to && from.max(to) < family.ranks);
            let Some(link) = in_family else {
                return Err(Reason::NotInFamily { from, to });
            };
            let need = (link.class, used.read, used.write);
            let table = needs.iter().position(|&known| known == need).unwrap_or(needs.len());
            if table == needs.len() {
                needs.push(need);
                problem.tables.push(problem.table(live, need));
            }
            if problem.tables[table].iter().all(|&cost| cost == BLOCKED) {
                return Err(Reason::NoLink {
                    from,
                    to,
                    class: link.class,
                    alone: true,
                });
            }
            problem.classes.push((from, to, link.class));
            problem.neighbour(from, to).out = Some(table);
            problem.neighbour(to, from).back = Some(table);
        }
        problem.find_least();
        problem.never_together().map_or(Ok(problem), Err)
    }

    /// Cost of the links between a family rank on `slot` and `neighbour` on `other`.
    pub(super) fn cost(&self, neighbour: &Neighbour, slot: usize, other: usize) -> u32 {
        let n = self.slots.len();
        let out = neighbour.out.map_or(0, |table| self.tables[table][slot * n + other]);
        let back = neighbour.back.map_or(0, |table| self.tables[table][other * n + slot]);
        plus(out, back)
    }

    /// The reason for which `a` and `b`, neighbours in the family, found no place together.
    pub(super) fn no_link(&self, a: usize, b: usize) -> Option<Reason> {
        let joins = |&&(from, to, _): &&(usize, usize, LinkClass)| (from, to) == (a, b) || (from, to) == (b, a);
        self.classes
            .iter()
            .find(joins)
            .map(|&(from, to, class)| Reason::NoLink {
                from,
                to,
                class,
                alone: false,
            })
    }

    fn table(&self, live: &Topology, (class, read, write): (LinkClass, bool, bool)) -> Vec<u32> {
        // Staging through host memory asks nothing of a peer link.
        let staged = |link: &Link| class == LinkClass::Host && link.class.is_peer();
        let serves = |link: &Link| staged(link) || (link.read || !read) && (link.write || !write);
        let one = |from, to| {
            let link = live.link(from, to).filter(|link| from != to && serves(link));
            link.and_then(|link| distance(class, link.class)).unwrap_or(BLOCKED)
        };
        self.slots
            .iter()
            .flat_map(|&from| self.slots.iter().map(move |&to| one(from, to)))
            .collect()
    }

    fn neighbour(&mut self, of: usize, rank: usize) -> &mut Neighbour {
        let list = &mut self.neighbours[of];
        let at = list
            .binary_search_by_key(&rank, |neighbour| neighbour.rank)
            .unwrap_or_else(|at| {
                list.insert(
                    at,
                    Neighbour {
                        rank,
                        out: None,
                        back: None,
                        least: 0,
                        ahead: 0,
                    },
                );
                at
            });
        &mut list[at]
    }

    fn find_least(&mut self) {
        let n = self.slots.len();
        // Few pairs of tables occur, so each is worked out once.
        let mut known: BTreeMap<_, usize> = BTreeMap::new();
        for rank in 0..self.neighbours.len() {
            for i in 0..self.neighbours[rank].len() {
                let neighbour = &self.neighbours[rank][i];
                let ahead = match known.get(&(neighbour.out, neighbour.back)) {
                    Some(&ahead) => ahead,
                    None => {
                        let least_from = |slot| {
                            let others = (0..n).filter(|&other| other != slot);
                            others
                                .map(|other| self.cost(neighbour, slot, other))
                                .min()
                                .unwrap_or(BLOCKED)
                        };
                        let row: Vec<u32> = (0..n).map(least_from).collect();
                        known.insert((neighbour.out, neighbour.back), self.ahead.len());
                        self.ahead.push(row);
                        self.ahead.len() - 1
                    }
                };
                let least = self.ahead[ahead].iter().copied().min().unwrap_or(BLOCKED);
                let neighbour = &mut self.neighbours[rank][i];
                (neighbour.least, neighbour.ahead) = (least, ahead);
            }
        }
    }

    /// Two neighbours whose links are each there somewhere, but nowhere both ways at once.
    fn never_together(&self) -> Option<Reason> {
        let all = self
            .neighbours
            .iter()
            .enumerate()
            .flat_map(|(rank, list)| list.iter().map(move |n| (rank, n)));
        let (rank, neighbour) = all.into_iter().find(|(_, neighbour)| neighbour.least == BLOCKED)?;
        self.no_link(rank, neighbour.rank)
    }
}

/// The live ranks that take part, ascending.
fn slots(ranks: usize, live: &Topology, devices: &Devices) -> Result<Vec<usize>, Reason> {
    let (mut slots, may_idle) = match devices {
        Devices::All => ((0..live.ranks).collect(), false),
        Devices::These(these) => (these.clone(), false),
        Devices::AnyOf(these) => (these.clone(), true),
    };
    slots.sort_unstable();
    let outside = slots.last().copied().filter(|&device| device >= live.ranks);
    let twice = slots.windows(2).find(|two| two[0] == two[1]).map(|two| two[0]);
    if let Some(device) = outside.or(twice) {
        return Err(Reason::BadDevice { device });
    }
    if ranks == slots.len() || (may_idle && ranks < slots.len()) {
        Ok(slots)
    } else {
        Err(Reason::RankCount {
            family: ranks,
            live: slots.len(),
        })
    }
}
