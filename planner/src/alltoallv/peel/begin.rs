//! A demand comes in: loads, paths, the unit of durations.
//!
//! Packing and fluid plans take the path plan alone, of any number of ranks. Start at [`Peel::begin`] and
//! [`Peel::plan_paths`].

use super::{Effort, Peel, largest};
use crate::alltoallv::demand::Demand;
use crate::alltoallv::net::{Ends, Net};

impl Peel {
    /// Takes a demand and plans its paths; for up to `PEEL_MOST` ranks.
    pub fn begin(&mut self, net: &Net, demand: &Demand, effort: Effort) {
        self.balance_paths(net, demand.bytes(), effort, net.ends.as_ref());
        self.find_quick(net);
        // Of sending ports it is found when their lanes are weighed.
        self.heaviest.fill(f32::INFINITY);
        let bytes = demand.bytes();
        self.rem.copy_from_slice(bytes);
        self.whole.copy_from_slice(bytes);
        if self.quick {
            for &(begin, end) in &net.local {
                let lanes = begin as usize..end as usize;
                self.weight[lanes.clone()].fill(0.0);
                self.rest[lanes].fill(0.0);
            }
        } else {
            self.weight.fill(0.0);
            self.rest.fill(0.0);
        }
        self.local_left.fill(0);
        let nodes = self.local_left.len();
        for &pair in &self.active {
            let pair = pair as usize;
            self.rest[net.lanes(pair)].fill(bytes[pair] as f32);
            self.local_left[pair / net.ranks * nodes / net.ranks] += 1;
        }
        self.far_left = 0;
        let (Some(far), Some(ends)) = (&mut self.far, &net.ends) else {
            return;
        };
        far.begin(net, ends, bytes);
        for (from, runs) in ends.runs.iter().enumerate() {
            for &(to, lane, count) in runs {
                let (at, lane) = (from * net.ranks + to as usize, lane as usize);
                let bytes = &bytes[at..at + count as usize];
                self.far_left += bytes.iter().filter(|&&bytes| bytes > 0).count();
                if self.quick {
                    // Nothing of such lanes is looked up.
                    continue;
                }
                let lanes = lane..lane + bytes.len();
                let figures = self.rest[lanes.clone()].iter_mut().zip(&mut self.share[lanes]);
                for ((rest, share), &bytes) in figures.zip(bytes) {
                    (*rest, *share) = (bytes as f32, bytes as f32);
                }
            }
        }
    }

    /// Plans the paths of a demand: shares of lanes, loads, and the unit of durations.
    pub fn plan_paths(&mut self, net: &Net, bytes: &[u64], effort: Effort) {
        self.balance_paths(net, bytes, effort, net.any_ends());
    }

    /// The same; with `ends`, pairs between nodes are loads alone.
    fn balance_paths(&mut self, net: &Net, bytes: &[u64], effort: Effort, ends: Option<&Ends>) {
        self.effort = effort;
        self.steps = 0;
        self.next_node = 0;
        self.find_active(net, bytes, ends);
        self.find_live(bytes);
        self.base.fill(0.0);
        self.degrees.fill(0);
        if let Some(ends) = ends {
            self.load_far(net, ends, bytes);
        }
        for &pair in &self.active {
            self.degrees[pair as usize / net.ranks] += 1;
            self.degrees[net.ranks + pair as usize % net.ranks] += 1;
        }
        // The most peers of a rank, either way.
        let peers = self.degrees.iter().copied().max().unwrap_or(0).max(1);
        if peers == 1 {
            self.one_path_each(net, bytes);
        } else {
            self.reload(net);
            self.sweep_all(net, effort.initial_sweeps);
        }
        self.reload(net);
        self.busiest = self.most;
        self.quantum = self.most / (effort.rho * peers as f32);
    }

    /// Pairs with something to send, but for those whose ends say all about them; their first paths take everything.
    fn find_active(&mut self, net: &Net, bytes: &[u64], ends: Option<&Ends>) {
        self.active.clear();
        let n = net.ranks;
        let around = ends.map_or(n, |ends| ends.per_node);
        for from in 0..n {
            let first = from * n + from / around * around;
            let row = bytes[first..first + around].iter().enumerate();
            for (k, &bytes) in row.filter(|(_, bytes)| **bytes > 0) {
                let pair = first + k;
                self.active.push(pair as u32);
                let lanes = net.lanes(pair);
                self.share[lanes.clone()].fill(0.0);
                self.share[lanes.start] = bytes as f32;
            }
        }
    }

    /// Those with several paths, by node.
    fn find_live(&mut self, bytes: &[u64]) {
        self.live.clear();
        self.live_ends.clear();
        let mut begin = 0;
        for &end in &self.node_ends {
            let of_node = &self.several[begin..end as usize];
            self.live
                .extend(of_node.iter().filter(|&&pair| bytes[pair as usize] > 0));
            self.live_ends.push(self.live.len() as u32);
            begin = end as usize;
        }
    }

    /// Loads and peers of pairs between nodes, rank by rank.
    fn load_far(&mut self, net: &Net, ends: &Ends, bytes: &[u64]) {
        let n = net.ranks;
        // Prices are not in use yet: room for a sum of each receiver's.
        let into = &mut self.price[..n];
        into.fill(0.0);
        for (from, runs) in ends.runs.iter().enumerate() {
            let (mut out, mut peers) = (0.0f32, 0);
            for &(to, lane, count) in runs {
                let (to, lane, count) = (to as usize, lane as usize, count as usize);
                let bytes = &bytes[from * n + to..from * n + to + count];
                let figures = bytes.iter().zip(&net.inv[lane..lane + count]);
                let sums = into[to..to + count]
                    .iter_mut()
                    .zip(&mut self.degrees[n + to..n + to + count]);
                for ((&bytes, &inv), (sum, degree)) in figures.zip(sums) {
                    // Signed: one instruction, and no demand comes near the sign.
                    let time = bytes as i64 as f32 * inv;
                    let some = u32::from(bytes > 0);
                    out += time;
                    *sum += time;
                    peers += some;
                    *degree += some;
                }
            }
            self.degrees[from] += peers;
            for &r in &ends.out[from] {
                self.base[usize::from(r)] += out * ends.hold[usize::from(r)];
            }
        }
        for (ids, &sum) in ends.into.iter().zip(into.iter()) {
            for &r in ids {
                self.base[usize::from(r)] += sum * ends.hold[usize::from(r)];
            }
        }
        if net.resources > net.leaf_ports {
            self.load_leaves(net, ends, bytes);
        }
    }

    /// Loads of leaf switches' ports: sums of consecutive receivers, so that small figures meet small ones.
    fn load_leaves(&mut self, net: &Net, ends: &Ends, bytes: &[u64]) {
        for (from, runs) in ends.runs.iter().enumerate() {
            for &(to, lane, count) in runs {
                let (mut ports, mut sums) = (&[][..], [0.0f32; 2]);
                for k in 0..count as usize {
                    let bytes = bytes[from * net.ranks + to as usize + k];
                    let uses = net.leaf_uses(lane as usize + k);
                    if uses != ports {
                        self.add_loads(ports, &sums);
                        (ports, sums) = (uses, [0.0; 2]);
                    }
                    for (sum, &r) in sums.iter_mut().zip(uses) {
                        *sum += bytes as f32 * net.hold(lane as usize + k, r);
                    }
                }
                self.add_loads(ports, &sums);
            }
        }
    }

    fn add_loads(&mut self, ports: &[u16], sums: &[f32]) {
        for (&r, sum) in ports.iter().zip(sums) {
            self.base[usize::from(r)] += sum;
        }
    }

    /// Loads from the path plan, from scratch.
    pub(super) fn reload(&mut self, net: &Net) {
        self.load.copy_from_slice(&self.base);
        for &pair in &self.active {
            for lane in net.lanes(pair as usize) {
                let bytes = self.share[lane];
                if bytes > 0.0 {
                    for &r in net.uses(lane) {
                        self.load[usize::from(r)] += bytes * net.hold(lane, r);
                    }
                }
            }
        }
        self.find_tops(net);
    }

    /// The largest load of each node, and of all.
    pub(super) fn find_tops(&mut self, net: &Net) {
        let (nodes, leaves) = self.load.split_at(net.leaf_ports);
        let loads = nodes.chunks(net.per_node.max(1)).chain(std::iter::once(leaves));
        for (top, load) in self.tops.iter_mut().zip(loads) {
            *top = largest(load);
        }
        self.most = largest(&self.tops);
    }
}
