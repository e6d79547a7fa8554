//! A recorded sequence with the bytes of a demand: exact, whatever the demand.
//!
//! Shares of a pair are turned into chunks that follow each other without a gap. Pairs that a sequence lacks are told apart,
//! so that whoever scales it can append them. Start at [`scaled`], or at [`Room`] for the planner's own tables.

use super::super::demand::Demand;
use super::super::net::Net;
use super::super::plan::{ALIGN, Chunk, Plan, PlanFault};
use super::super::profile::UNIFORM;
use super::super::sequence::{Activations, Lane, Step, WHOLE};
use super::{BYTES, Sequences};

/// A demand with more than this part of its bytes in pairs that a profile lacks is not like it.
const FEW_LACKING: u64 = 10;

/// How much of each pair has been handed out.
#[derive(Clone, Debug)]
struct Given {
    shares: Vec<u32>,
    bytes: Vec<u64>,
}

impl Given {
    fn new(pairs: usize) -> Self {
        Self {
            shares: vec![0; pairs],
            bytes: vec![0; pairs],
        }
    }

    /// Where a pair's next chunk begins, and its bytes: the last share takes what rounding leaves.
    #[inline]
    fn next(&mut self, pair: usize, share: u32, whole: u64) -> (u64, u64) {
        let given = self.bytes[pair];
        self.shares[pair] = (self.shares[pair] + share).min(WHOLE);
        let until = if self.shares[pair] == WHOLE {
            whole
        } else {
            (u128::from(whole) * u128::from(self.shares[pair]) / u128::from(WHOLE)) as u64 / ALIGN * ALIGN
        };
        let until = until.max(given);
        self.bytes[pair] = until;
        (given, until - given)
    }
}

/// Sequences as lanes of a planner's tables, with room to scale one.
#[derive(Clone, Debug)]
pub(in crate::alltoallv) struct Room {
    all: Vec<Base>,
    given: Given,
    /// Bytes of pairs that the sequence scaled last has no lanes for.
    lacking: Vec<u64>,
}

/// One sequence and the demand that it is for.
#[derive(Clone, Debug)]
struct Base {
    name: String,
    /// Relative bytes of each pair.
    wanted: Vec<u64>,
    /// Lane and share; a step ends where the lane is no lane.
    lanes: Vec<(u32, u32)>,
}

const END: u32 = u32::MAX;

impl Room {
    /// For a machine of one node.
    ///
    /// # Errors
    /// Another number of nodes or ranks, or a lane that the machine lacks.
    pub fn new(net: &Net, nodes: usize, sequences: &Sequences) -> Result<Self, PlanFault> {
        let n = net.ranks;
        let mut all = Vec::new();
        if !sequences.uniform.is_empty() {
            let wanted = (0..n * n).map(|pair| u64::from(pair / n != pair % n)).collect();
            all.push(Base::new(net, nodes, UNIFORM, wanted, &sequences.uniform)?);
        }
        for recorded in &sequences.profiles {
            let (name, demand) = (recorded.profile.name(), recorded.profile.demand());
            if demand.ranks() != n {
                return Err(PlanFault(format!(
                    "profile {name} is for {} ranks, the machine has {n}",
                    demand.ranks()
                )));
            }
            all.push(Base::new(net, nodes, name, demand.bytes().to_vec(), &recorded.steps)?);
        }
        Ok(Self {
            all,
            given: Given::new(n * n),
            lacking: vec![0; n * n],
        })
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// What a sequence is called.
    pub fn name(&self, which: usize) -> &str {
        &self.all[which].name
    }

    /// At most so many lanes, and activations, but for pairs that a sequence lacks.
    pub fn lanes(&self) -> usize {
        self.all.iter().map(|base| base.lanes.len()).max().unwrap_or(0)
    }

    /// A demand that a sequence is made for.
    pub fn example(&self, which: usize) -> Vec<u64> {
        let wanted = &self.all[which].wanted;
        let sum: u128 = wanted.iter().map(|&part| u128::from(part)).sum();
        let pairs = wanted.iter().filter(|part| **part > 0).count() as u128;
        let scale = |&part: &u64| (u128::from(part) * pairs * u128::from(BYTES) / sum.max(1)) as u64;
        wanted.iter().map(scale).collect()
    }

    /// By which factor pairs differ at most from what a sequence is for, once scaled, and whether pairs have bytes that it
    /// lacks. Without end where a pair has nothing that it has lanes for, or where it lacks much.
    pub fn likeness(&self, which: usize, bytes: &[u64]) -> (f64, bool) {
        let (mut least, mut most) = (f64::INFINITY, 0.0f64);
        let (mut lacking, mut total) = (0, 0);
        for (&wanted, &bytes) in self.all[which].wanted.iter().zip(bytes) {
            total += bytes;
            if wanted == 0 {
                lacking += bytes;
                continue;
            }
            let ratio = bytes as f64 / wanted as f64;
            least = if ratio < least { ratio } else { least };
            most = if ratio > most { ratio } else { most };
        }
        if least <= 0.0 || least == f64::INFINITY || lacking.saturating_mul(FEW_LACKING) > total {
            return (f64::INFINITY, lacking > 0);
        }
        (most / least, lacking > 0)
    }

    /// The sequence that a demand is most like, and how much: the first of equals, the first of all if it is like none.
    pub fn nearest(&self, bytes: &[u64]) -> Option<(usize, (f64, bool))> {
        let all = (0..self.len()).map(|which| (which, self.likeness(which, bytes)));
        all.reduce(|best, other| if other.1.0 < best.1.0 { other } else { best })
    }

    /// Appends a demand in the order of a sequence; what [`Room::lacking`] says is left out.
    pub fn run(&mut self, net: &Net, which: usize, bytes: &[u64], plan: &mut Plan) {
        let base = &self.all[which];
        self.given.shares.fill(0);
        self.given.bytes.fill(0);
        for &(lane, share) in &base.lanes {
            if lane == END {
                plan.end();
                continue;
            }
            let lane = lane as usize;
            let pair = net.pair[lane] as usize;
            let (offset, bytes) = self.given.next(pair, share, bytes[pair]);
            if bytes > 0 {
                plan.lanes.push(Chunk {
                    from: net.from[lane],
                    to: net.to[lane],
                    path: (lane - net.first[pair] as usize) as u16,
                    turn: 0,
                    offset,
                    bytes,
                });
            }
        }
        for ((lacking, &share), &bytes) in self.lacking.iter_mut().zip(&self.given.shares).zip(bytes) {
            *lacking = if share == 0 { bytes } else { 0 };
        }
    }

    /// Bytes of pairs that the sequence scaled last has no lanes for; none if there are none.
    pub fn lacking(&self) -> Option<&[u64]> {
        let any = self.lacking.iter().any(|bytes| *bytes > 0);
        any.then_some(&self.lacking)
    }
}

impl Base {
    fn new(net: &Net, nodes: usize, name: &str, wanted: Vec<u64>, steps: &[Step]) -> Result<Self, PlanFault> {
        let mut lanes = Vec::new();
        for (activation, step) in steps.iter().enumerate() {
            for share in &step.lanes {
                let (from, to, class) = (usize::from(share.from), usize::from(share.to), usize::from(share.class));
                let known = nodes == 1 && from.max(to) < net.ranks && class < net.lanes(from * net.ranks + to).len();
                if !known {
                    return Err(PlanFault(format!(
                        "{name}, step {activation}, lane {from} to {to} by path {class}: not of this machine's {nodes} nodes"
                    )));
                }
                lanes.push(((net.first[from * net.ranks + to] as usize + class) as u32, share.share));
            }
            lanes.push((END, 0));
        }
        Ok(Self {
            name: name.to_owned(),
            wanted,
            lanes,
        })
    }
}

/// The lanes of a sequence with their bytes for a demand in the same node: every byte of every pair once, in chunks that begin
/// at multiples of [`ALIGN`] and follow each other. Lanes without bytes are left out; pairs that the sequence lacks follow one
/// by one over their first path.
///
/// It is exact for any demand; how fast it is depends on how much the demand is like the one that the sequence was made for.
pub fn scaled(steps: &[Step], demand: &Demand) -> Activations {
    let n = demand.ranks();
    let mut given = Given::new(n * n);
    let mut out = Vec::with_capacity(steps.len());
    for step in steps {
        let mut lanes = Vec::with_capacity(step.lanes.len());
        for share in &step.lanes {
            let (from, to) = (usize::from(share.from), usize::from(share.to));
            if from >= n || to >= n {
                continue;
            }
            let (_, bytes) = given.next(from * n + to, share.share, demand.get(from, to));
            if bytes > 0 {
                let lane = Lane {
                    from: from as u32,
                    to: to as u32,
                    class: share.class,
                };
                lanes.push((lane, bytes));
            }
        }
        if !lanes.is_empty() {
            out.push(lanes);
        }
    }
    for (pair, &bytes) in demand.bytes().iter().enumerate() {
        if bytes > 0 && given.shares[pair] == 0 {
            let lane = Lane {
                from: (pair / n) as u32,
                to: (pair % n) as u32,
                class: 0,
            };
            out.push(vec![(lane, bytes)]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::super::spec::TreeSpec;
    use super::super::super::{Fabric, Profile, Recorded};
    use super::*;

    /// A room that knows a profile of rank 0, which sends 8 parts to rank 1 and 2 to rank 2, and equal pairs.
    fn room() -> Room {
        let net = Net::new(&Fabric::new(&TreeSpec::pcie_2x2()).expect("a machine"));
        let demand = Demand::new(4, [vec![0, 8, 2, 0], vec![0; 12]].concat()).expect("a demand");
        let profile = Profile::new("two-pairs", &demand).expect("a profile");
        let uniform = vec![Step::default()];
        let recorded = Recorded {
            profile,
            steps: Vec::new(),
        };
        let sequences = Sequences {
            uniform,
            profiles: vec![recorded],
        };
        Room::new(&net, 1, &sequences).expect("of this machine")
    }

    #[test]
    fn pairs_that_a_profile_lacks_may_make_up_a_tenth_of_a_demand() {
        let room = room();
        let like = |row: [u64; 4]| room.likeness(1, &[row.to_vec(), vec![0; 12]].concat());
        assert_eq!(like([0, 8, 2, 0]), (1.0, false));
        assert_eq!(
            like([0, 900, 300, 0]),
            (4.0 / 3.0, false),
            "300 to 2 is more than 900 to 8"
        );
        assert_eq!(like([0, 72, 18, 10]), (1.0, true), "ten of a hundred");
        assert_eq!(like([0, 72, 18, 11]), (f64::INFINITY, true));
        assert_eq!(
            like([0, 72, 0, 0]),
            (f64::INFINITY, false),
            "a pair of the profile has nothing"
        );
        assert_eq!(like([0; 4]), (f64::INFINITY, false), "nobody sends anything");
    }

    #[test]
    fn a_demand_is_nearest_to_what_it_is_most_like_and_to_the_first_where_it_is_like_none() {
        let room = room();
        let nearest = |bytes: &[u64]| {
            room.nearest(bytes)
                .map(|(which, (factor, _))| (room.name(which), factor))
        };
        let even: Vec<u64> = (0..16).map(|pair| if pair % 5 == 0 { 0 } else { 7 }).collect();
        assert_eq!(nearest(&even), Some((UNIFORM, 1.0)));
        assert_eq!(
            nearest(&[vec![0, 80, 21, 0], vec![0; 12]].concat()),
            Some(("two-pairs", 1.05))
        );
        assert_eq!(nearest(&[0; 16]), Some((UNIFORM, f64::INFINITY)));
    }
}
