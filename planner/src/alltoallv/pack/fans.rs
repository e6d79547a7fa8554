//! Fans: groups as one end of lanes between nodes, and what a fan takes of resources.
//!
//! It knows nothing of bytes or rounds. Start at [`Fans::new`].

use crate::alltoallv::net::{Ends, Net, UNLIMITED};
use crate::alltoallv::spec::MAX_RANKS;

/// A piece by its number, or a fan: a mark, how many groups on, and the sending rank.
pub(super) type Item = u32;
pub(super) const FAN: Item = 1 << 31;
pub(super) const RANK_BITS: u32 = 12;
const _: () = assert!(MAX_RANKS <= 1 << RANK_BITS);

/// A resource that carries a certain number of lanes at a time.
pub(super) fn is_limited(net: &Net, r: u16) -> bool {
    net.port[usize::from(r)] || net.slots[usize::from(r)] != UNLIMITED
}

/// Groups as one end of lanes, where all groups can be.
#[derive(Clone, Debug)]
pub(super) struct Fans {
    /// First rank and size of each group.
    pub groups: Vec<(u16, u16)>,
    /// Group of each rank.
    pub group: Vec<u16>,
    /// Limited resources of each rank's sending end, and of each group's receiving end, all ranks of it: ports, then others.
    ///
    /// No two fans meet at a port without meeting at what is shared, so ports only keep fans and other lanes apart.
    pub out: Vec<End>,
    pub into: Vec<End>,
    pub plain: Option<Plain>,
}

/// The same of a machine with one shared resource and ports in a row at every end: figures that stand together.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    /// What is shared, and the port.
    pub out: Vec<(u16, u16)>,
    /// What is shared, and the first port.
    pub into: Vec<(u16, u16)>,
    /// From a port's row to its second row.
    pub second: u16,
}

/// One end of a fan.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub shared: Vec<u16>,
    pub ports: Vec<u16>,
    /// The ports' second rows, which lanes that are no fans take.
    pub others: Vec<u16>,
}

impl End {
    fn new(net: &Net, ids: &[u16]) -> Self {
        let limited = ids.iter().copied().filter(|&r| is_limited(net, r));
        let (ports, shared): (Vec<u16>, Vec<u16>) = limited.partition(|&r| net.port[usize::from(r)]);
        let others = ports.iter().map(|&r| second(net, r)).collect();
        Self { shared, ports, others }
    }
}

/// The second row of a resource.
pub(super) fn second(net: &Net, r: u16) -> u16 {
    r + net.resources as u16
}

impl Fans {
    /// None where a group's ranks do not share everything but their ports.
    pub fn new(net: &Net, groups: &[(usize, usize)]) -> Option<Self> {
        let ends: &Ends = net.ends.as_ref()?;
        let mut fans = Self {
            groups: Vec::with_capacity(groups.len()),
            group: vec![0; net.ranks],
            out: ends.out.iter().map(|ids| End::new(net, ids)).collect(),
            into: Vec::with_capacity(groups.len()),
            plain: None,
        };
        for (g, &(begin, end)) in groups.iter().enumerate() {
            let shared = |rank: usize| ends.into[rank].iter().filter(|&&r| !net.port[usize::from(r)]);
            if shared(begin).count() == 0 || !(begin..end).all(|rank| shared(rank).eq(shared(begin))) {
                return None;
            }
            fans.group[begin..end].fill(g as u16);
            fans.groups.push((begin as u16, (end - begin) as u16));
            let mut into = ends.into[begin].clone();
            for rank in begin + 1..end {
                into.extend(ends.into[rank].iter().filter(|&&r| net.port[usize::from(r)]));
            }
            fans.into.push(End::new(net, &into));
        }
        // Without anything shared at its sending end, a rank's fans would meet at its port alone.
        let shares = |end: &End| !end.shared.is_empty();
        let plain = |end: &End| match (&end.shared[..], &end.ports[..]) {
            (&[shared], &[port, ..]) if end.ports.iter().zip(port..).all(|(&a, b)| a == b) => Some((shared, port)),
            _ => None,
        };
        let out: Option<Vec<_>> = fans.out.iter().map(plain).collect();
        let into: Option<Vec<_>> = fans.into.iter().map(plain).collect();
        fans.plain = out.zip(into).map(|(out, into)| Plain {
            out,
            into,
            second: net.resources as u16,
        });
        fans.out.iter().chain(&fans.into).all(shares).then_some(fans)
    }

    /// The sender and the group of a fan.
    #[inline]
    pub fn ends(&self, item: Item) -> (usize, usize) {
        let (from, shift) = (item & ((1 << RANK_BITS) - 1), (item & !FAN) >> RANK_BITS);
        let group = usize::from(self.group[from as usize]) + shift as usize;
        let groups = self.groups.len();
        (from as usize, if group < groups { group } else { group - groups })
    }
}
