//! The family selector: families of the catalogue by what they could be worth, the best of them with ranks assigned.
//!
//! A family says how many lanes there are from group to group over which shared resources, so whatever ranks take them, they
//! fit. Only the best few are bound, and what is then free is filled. Made for one node: between nodes a family says nothing
//! about who is at the other end. Start at [`Families`].

mod assign;
mod bind;
mod fault;
mod score;

use super::Peel;
use super::selector::Select;
use crate::alltoallv::catalogue::{Catalogue, NodeCatalogue, template::OUTSIDE};
use crate::alltoallv::fabric::Fabric;
use crate::alltoallv::net::Net;
use bind::{Binder, Slot};
pub use fault::FamilyFault;
use score::{NO_SLOT, Scores};

/// By what part a lane counts less for each path of its pair that is faster. Bytes that the path plan gives to another lane
/// are worth the same on both, and a family must not prefer the slower one by the order of its types.
const SLOWER: f32 = 1.0 / 1024.0;
/// A lane that no family counts.
const NO_KIND: u8 = u8::MAX;

/// Lanes that families count together: of a lane type, or below one switch.
#[derive(Clone, Copy, Debug)]
struct Kind {
    from: u16,
    to: u16,
    class: u16,
    /// Its slots.
    first: u8,
    end: u8,
}

/// The families of a node and room to choose among them.
#[derive(Clone, Debug)]
pub(in crate::alltoallv) struct Families {
    kinds: Vec<Kind>,
    kind_of_slot: Vec<u8>,
    kind_of_lane: Vec<u8>,
    /// What part of its weight a lane counts with.
    part: Vec<f32>,
    /// The two heaviest lanes of each kind, and what each slot is worth.
    heaviest: Vec<[f32; 2]>,
    worth: [f32; 256],
    scores: Scores,
    binder: Binder,
    lanes: Vec<u32>,
}

impl Families {
    /// The families that a catalogue has for a machine.
    ///
    /// # Errors
    /// See [`FamilyFault`].
    pub fn new(net: &Net, fabric: &Fabric, catalogue: &Catalogue) -> Result<Self, FamilyFault> {
        if fabric.nodes() != 1 {
            return Err(FamilyFault::Nodes(fabric.nodes()));
        }
        let same = (net.ranks, net.resources) == (fabric.ranks(), fabric.resources());
        if !same || !catalogue.is_of(fabric) {
            return Err(FamilyFault::Machine);
        }
        let part = catalogue.of_nodes(1).ok_or(FamilyFault::Alone)?;
        let kinds = kinds(fabric, part)?;
        let mut kind_of_slot = Vec::new();
        for (k, kind) in kinds.iter().enumerate() {
            kind_of_slot.resize(usize::from(kind.end), k as u8);
        }
        let groups = (0..fabric.groups()).map(|g| fabric.group(g).ranks);
        let groups: Vec<_> = groups.map(|ranks| (ranks.start as u16, ranks.end as u16)).collect();
        let group_of = |rank: u16| fabric.group_of(usize::from(rank)) as u16;
        let kind_of_lane = (0..net.len()).map(|lane| {
            let class = lane as u32 - net.first[net.pair[lane] as usize];
            let (from, to) = (group_of(net.from[lane]), group_of(net.to[lane]));
            let found = |kind: &Kind| (kind.from, kind.to, u32::from(kind.class)) == (from, to, class);
            kinds.iter().position(found).map_or(NO_KIND, |kind| kind as u8)
        });
        let class = |lane: usize| (lane as u32 - net.first[net.pair[lane] as usize]) as f32;
        let families: Vec<Vec<u8>> = part
            .families
            .iter()
            .map(|&family| slots(part, &kinds, family))
            .collect();
        let scores = Scores::new(&families);
        Ok(Self {
            kind_of_lane: kind_of_lane.collect(),
            part: (0..net.len()).map(|lane| 1.0 - SLOWER * class(lane)).collect(),
            kind_of_slot,
            heaviest: vec![[0.0; 2]; kinds.len()],
            worth: [0.0; 256],
            binder: Binder::new(groups, scores.width()),
            lanes: Vec::with_capacity(scores.width()),
            scores,
            kinds,
        })
    }

    /// What each slot is worth at best.
    fn appraise(&mut self, weights: &[f32]) {
        self.heaviest.fill([0.0; 2]);
        for ((&kind, &weight), &part) in self.kind_of_lane.iter().zip(weights).zip(&self.part) {
            let weight = weight * part;
            if let Some([most, second]) = self.heaviest.get_mut(usize::from(kind)) {
                if weight > *most {
                    (*most, *second) = (weight, *most);
                } else if weight > *second {
                    *second = weight;
                }
            }
        }
        for (kind, [most, second]) in self.kinds.iter().zip(&self.heaviest) {
            let slots = &mut self.worth[usize::from(kind.first)..usize::from(kind.end)];
            slots.fill(*second);
            if let Some(first) = slots.first_mut() {
                *first = *most;
            }
        }
    }
}

impl Select for Families {
    fn select(&mut self, peel: &mut Peel, net: &Net, _cap: f32) {
        peel.release();
        self.appraise(&peel.weight);
        let Self {
            kinds,
            kind_of_slot,
            worth,
            part,
            scores,
            binder,
            lanes,
            ..
        } = self;
        let weights = &peel.weight;
        let weight = |lane: usize| weights[lane] * part[lane];
        lanes.clear();
        let mut most = 0.0;
        for (score, family) in scores.run(worth) {
            // No binding is worth more than its family's score.
            if score <= most {
                break;
            }
            binder.slots.clear();
            binder.slots.extend(scores.of(family as usize).map(|slot| {
                let kind = kinds[usize::from(kind_of_slot[usize::from(slot)])];
                Slot {
                    from: kind.from,
                    to: kind.to,
                    class: kind.class,
                    source: 0,
                    target: 0,
                    worth: worth[usize::from(slot)],
                }
            }));
            let total = binder.bind(net, &weight);
            if total > most {
                most = total;
                lanes.clear();
                lanes.extend(binder.lanes(net, &weight));
            }
        }
        for &lane in &*lanes {
            if peel.fits(net, lane as usize) {
                peel.take(net, lane as usize);
            }
        }
        // Slots whose pairs have nothing left may keep others out.
        for at in 0..peel.order.len() {
            let resource = usize::from(peel.order[at]);
            if peel.egress[resource]
                && let Some(lane) = peel.heaviest(net, resource)
            {
                peel.take(net, lane);
            }
        }
    }
}

/// The kinds of lanes: types of the template in its order, then what lies below each switch.
fn kinds(fabric: &Fabric, part: &NodeCatalogue) -> Result<Vec<Kind>, FamilyFault> {
    let template = &part.template;
    let mut kinds: Vec<Kind> = Vec::new();
    let mut end = 0_usize;
    let mut add = |from: u8, to: u8, mids: &[u16], copies: u8| {
        let first = end;
        end += usize::from(copies);
        let (from, to) = (u16::from(from), u16::from(to));
        let classes = fabric.classes(usize::from(from), usize::from(to));
        let class = (classes.iter()).position(|class| class.mids().map(|(id, _)| id).eq(mids.iter().copied()));
        if end >= usize::from(NO_SLOT) {
            return Err(FamilyFault::Lanes(end));
        }
        kinds.push(Kind {
            from,
            to,
            class: class.unwrap_or(usize::from(u16::MAX)) as u16,
            first: first as u8,
            end: end as u8,
        });
        Ok(class)
    };
    for lane in &template.types {
        if lane.from == OUTSIDE || lane.to == OUTSIDE || add(lane.from, lane.to, &lane.mids, lane.copies)?.is_none() {
            return Err(FamilyFault::Machine);
        }
    }
    for (g, &size) in template.sizes.iter().enumerate() {
        add(g as u8, g as u8, &[], size)?;
    }
    Ok(kinds)
}

/// The slots that a family fills: those of its types, and below each switch as many as have a rank at both ends.
fn slots(part: &NodeCatalogue, kinds: &[Kind], family: u128) -> Vec<u8> {
    let template = &part.template;
    let mut slots: Vec<u8> = Vec::new();
    let (mut out, mut into) = (vec![0; template.sizes.len()], vec![0; template.sizes.len()]);
    for (t, kind) in kinds[..template.types.len()].iter().enumerate() {
        let count = template.count(family, t) as u8;
        slots.extend(kind.first..kind.first + count);
        out[usize::from(kind.from)] += count;
        into[usize::from(kind.to)] += count;
    }
    for (g, kind) in kinds[template.types.len()..].iter().enumerate() {
        // Without peer access below the switch there is no such path.
        if kind.class != u16::MAX && template.sizes[g] > 1 {
            slots.extend(kind.first..kind.first + template.sizes[g].saturating_sub(out[g].max(into[g])));
        }
    }
    slots
}
