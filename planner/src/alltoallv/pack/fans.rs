//! Fans: groups as one end of lanes between nodes, and the rows in which fans and other lanes keep out of each other's way.
//!
//! No two fans meet at a port without meeting at what is shared (a NIC), so a fan is found by what is shared alone. Ports only
//! keep fans and other lanes apart: each end of a fan has a row that its fans mark and other lanes at its ports look at, and one
//! for the other way round. It knows nothing of bytes or rounds. Start at [`Rows::new`].

use crate::alltoallv::net::{Net, UNLIMITED};
use crate::alltoallv::spec::MAX_RANKS;

/// A piece by its number, or a fan: a mark, the receiving group, and the sending rank.
pub(super) type Item = u32;
pub(super) const FAN: Item = 1 << 31;
const RANK_BITS: u32 = 12;
const _: () = assert!(MAX_RANKS <= 1 << RANK_BITS);

/// Most shared resources at an end of a fan.
pub(super) const SHARED: usize = 4;

/// Groups as one end of lanes, where all groups can be.
#[derive(Clone, Debug)]
pub(super) struct Fans {
    /// First rank and size of each group.
    pub groups: Vec<(u16, u16)>,
    /// Group of each rank.
    pub group: Vec<u16>,
    /// Rows at each rank's sending end, and at each group's receiving end: all ranks of it.
    pub out: Vec<End>,
    pub into: Vec<End>,
    /// Every end has one shared resource.
    pub single: bool,
}

/// Rows at one end of a fan.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// What no two lanes use at once; the last one fills the rest.
    pub shared: [u16; SHARED],
    /// Marks of fans, and of other lanes at its ports.
    pub fans: u16,
    pub others: u16,
}

/// Rows of lanes that are no fans.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// Row of each resource that carries a certain number of lanes at a time.
    of: Vec<Option<u16>>,
    /// Ends of fans at each port: the rows to look at, and those to mark.
    at_port: Vec<Vec<(u16, u16)>>,
    pub count: usize,
    /// How many marks.
    pub marks: usize,
    /// Rows of lanes within a node: those to find a round by, to look at besides, and to mark besides.
    known: Vec<u16>,
    ends: Vec<[u32; 3]>,
    /// First of these of each rank.
    begins: Vec<u32>,
}

impl Rows {
    /// The rows of a machine, and its fans: none where a group's ranks do not share everything but their ports.
    pub fn new(net: &Net, groups: &[(usize, usize)]) -> (Self, Option<Fans>) {
        let mut rows = Self {
            of: vec![None; net.resources],
            at_port: vec![Vec::new(); net.resources],
            count: 0,
            marks: 0,
            known: Vec::new(),
            ends: Vec::new(),
            begins: Vec::new(),
        };
        let fans = rows.fans(net, groups);
        if fans.is_none() {
            rows.at_port.iter_mut().for_each(Vec::clear);
        }
        // Behind those of fans: seldom looked at.
        // Ports of leaf switches have none: what they carry is seen to later.
        for r in 0..net.leaf_ports {
            if rows.of[r].is_none() && (net.port[r] || net.slots[r] != UNLIMITED) {
                rows.of[r] = Some(rows.next());
            }
        }
        let [mut scan, mut also, mut mark] = [(); 3].map(|()| Vec::new());
        for &(begin, end) in &net.local {
            rows.begins.push(rows.ends.len() as u32);
            for lane in begin..end {
                rows.of_lane(net.uses(lane as usize), &mut scan, &mut also, &mut mark);
                let ends = [&scan, &also, &mark].map(|some| {
                    rows.known.extend(some);
                    rows.known.len() as u32
                });
                rows.ends.push(ends);
            }
        }
        (rows, fans)
    }

    /// Rows of a lane within a node: to find its round by, to look at besides, and to mark besides.
    #[inline]
    pub fn of_local(&self, net: &Net, lane: usize) -> (&[u16], &[u16], &[u16]) {
        let from = usize::from(net.from[lane]);
        let at = self.begins[from] as usize + lane - net.local[from].0 as usize;
        let begin = if at == 0 { 0 } else { self.ends[at - 1][2] as usize };
        let [scan, also, mark] = self.ends[at].map(|end| end as usize);
        (
            &self.known[begin..scan],
            &self.known[scan..also],
            &self.known[also..mark],
        )
    }

    /// Rows to find a lane's round by, those to look at besides, and those to mark besides.
    pub fn of_lane(&self, uses: &[u16], scan: &mut Vec<u16>, also: &mut Vec<u16>, mark: &mut Vec<u16>) {
        [&mut *scan, &mut *also, &mut *mark].into_iter().for_each(Vec::clear);
        for &r in uses {
            scan.extend(self.of[usize::from(r)]);
            for &(fans, others) in &self.at_port[usize::from(r)] {
                also.push(fans);
                mark.push(others);
            }
        }
    }

    fn next(&mut self) -> u16 {
        self.count += 1;
        (self.count - 1) as u16
    }

    fn fans(&mut self, net: &Net, groups: &[(usize, usize)]) -> Option<Fans> {
        let ends = net.any_ends()?;
        let is_port = |r: &u16| net.port[usize::from(*r)];
        let shared = |of: &[u16]| -> Vec<u16> { of.iter().copied().filter(|r| !is_port(r)).collect() };
        let mut group = vec![0; net.ranks];
        let mut into = Vec::with_capacity(groups.len());
        for (g, &(begin, end)) in groups.iter().enumerate() {
            let of_group = shared(&ends.into[begin]);
            if of_group.is_empty() || !(begin..end).all(|rank| shared(&ends.into[rank]) == of_group) {
                return None;
            }
            group[begin..end].fill(g as u16);
            let ports = ends.into[begin..end].iter().flatten().copied().filter(is_port);
            into.push((of_group, ports.collect::<Vec<u16>>()));
        }
        let out: Vec<_> = ends
            .out
            .iter()
            .map(|ids| (shared(ids), ids.iter().copied().filter(is_port).collect::<Vec<u16>>()))
            .collect();
        // Without anything shared at its sending end, a rank's fans would meet at its port alone.
        let limited = |r: &u16| net.slots[usize::from(*r)] != UNLIMITED;
        let of_end = |(shared, _): &(Vec<u16>, Vec<u16>)| shared.iter().filter(|r| limited(r)).count();
        let counts = || out.iter().chain(&into).map(of_end);
        if counts().any(|count| count == 0 || count > SHARED) {
            return None;
        }
        for &r in out
            .iter()
            .chain(&into)
            .flat_map(|(shared, _)| shared)
            .filter(|r| limited(r))
        {
            if self.of[usize::from(r)].is_none() {
                self.of[usize::from(r)] = Some(self.next());
            }
        }
        let single = counts().all(|count| count == 1);
        let [out, into] = [out, into].map(|ends| ends.iter().map(|end| self.end(end)).collect());
        Some(Fans {
            groups: groups
                .iter()
                .map(|&(begin, end)| (begin as u16, (end - begin) as u16))
                .collect(),
            group,
            out,
            into,
            single,
        })
    }

    /// An end's rows; its shared resources have theirs.
    fn end(&mut self, (shared, ports): &(Vec<u16>, Vec<u16>)) -> End {
        let (fans, others) = (self.marks as u16, self.marks as u16 + 1);
        self.marks += 2;
        for &r in ports {
            self.at_port[usize::from(r)].push((fans, others));
        }
        let mut all = [0; SHARED];
        let mut last = 0;
        let mut rows = shared.iter().filter_map(|&r| self.of[usize::from(r)]);
        for row in &mut all {
            last = rows.next().unwrap_or(last);
            *row = last;
        }
        End {
            shared: all,
            fans,
            others,
        }
    }
}

/// A fan as an item.
#[inline]
pub(super) fn fan(from: usize, group: usize) -> Item {
    FAN | (group as u32) << RANK_BITS | from as u32
}

/// The sender and the group of a fan.
#[inline]
pub(super) fn ends(item: Item) -> (usize, usize) {
    const RANK: u32 = (1 << RANK_BITS) - 1;
    ((item & RANK) as usize, (item >> RANK_BITS & RANK) as usize)
}
