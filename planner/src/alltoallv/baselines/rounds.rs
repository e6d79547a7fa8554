//! Peers in fixed order, and all peers at once.
//!
//! Start at [`shifted`].

use crate::alltoallv::demand::Demand;
use crate::alltoallv::fabric::Fabric;
use crate::alltoallv::simulate::Traffic;

/// Rounds of equal distance with a barrier before each; `adaptive` chooses each round's paths, else the fastest serves.
pub(super) fn shifted(fabric: &Fabric, demand: &Demand, adaptive: bool) -> Traffic {
    let n = demand.ranks();
    let alpha = f64::from(fabric.alpha_ns());
    let mut traffic = Traffic::default();
    let mut gate = None;
    for shift in 1..n {
        let begin = traffic.flows.len();
        let pairs = (0..n).map(|from| (demand.get(from, (from + shift) % n), from, (from + shift) % n));
        let mut pairs: Vec<_> = pairs.filter(|(bytes, ..)| *bytes > 0).collect();
        if adaptive {
            pairs.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        }
        let mut load = vec![0.0; fabric.resources()];
        for (bytes, from, to) in pairs {
            let classes = if adaptive { fabric.path_count(from, to) } else { 1 };
            let hold = |r: u32, inv_fs: u32| {
                let resource = fabric.resource(r);
                f64::from(resource.hold_fs(inv_fs)) / f64::from(resource.slots().unwrap_or(1))
            };
            // The path whose busiest resource is done first.
            let done = |class: usize| {
                let path = fabric.path(from, to, class);
                let most = path.resources().iter().map(|&r| load[r as usize]).fold(0.0, f64::max);
                most + bytes as f64 * f64::from(path.inv_fs)
            };
            let class = (0..classes).min_by(|&a, &b| done(a).total_cmp(&done(b))).unwrap_or(0);
            let path = fabric.path(from, to, class);
            path.resources()
                .iter()
                .for_each(|&r| load[r as usize] += bytes as f64 * hold(r, path.inv_fs));
            let id = traffic.send(fabric, from, to, class, bytes as f64, 0.0);
            traffic.flows[id as usize].after.extend(gate);
            if gate.is_none() {
                traffic.flows[id as usize].delay_ns = alpha;
            }
        }
        if traffic.flows.len() > begin {
            gate = Some(traffic.barrier(begin, alpha));
        }
    }
    // The last barrier is nobody's.
    if gate.is_some() {
        traffic.flows.pop();
    }
    traffic
}

/// Every pair at once, by its fastest path.
pub(super) fn at_once(fabric: &Fabric, demand: &Demand) -> Traffic {
    let n = demand.ranks();
    let mut traffic = Traffic::default();
    // Distances in turn, so that a serial machine does not serve one rank after the other.
    for shift in 1..n {
        for from in 0..n {
            let to = (from + shift) % n;
            if demand.get(from, to) > 0 {
                let alpha = f64::from(fabric.alpha_ns());
                traffic.send(fabric, from, to, 0, demand.get(from, to) as f64, alpha);
            }
        }
    }
    traffic
}
