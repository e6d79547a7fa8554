//! A planner allocates nothing once it is made: an allocator that counts says so.
//!
//! Each thread counts its own: what starts the tests may still be at work beside them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use topoforge_planner::alltoallv::{
    Catalogue, Demand, Effort, Fabric, Kind, Leaves, Machine, Mode, Network, Planner, Profile, Selector, Sequences,
    Strategy, TreeSpec, base,
};

struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    CALLS.set(CALLS.get() + 1);
}

// SAFETY: every call goes to the system's allocator as it came; the counter touches no memory of the caller, and being a
// constant at first and nothing to drop, it needs no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, that is from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the pointer came from `alloc` above, and the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn planning_allocates_nothing_after_set_up() {
    let mut forward = TreeSpec::pcie_2x2x2().cluster(2);
    forward.forward = true;
    let leaves = |up, mode| Network {
        leaves: Leaves::Nodes(2),
        up,
        mode,
    };
    let machines = [
        TreeSpec::pcie_2x2().cluster(4).behind(leaves(96_000, Mode::Fluid)),
        TreeSpec::pcie_2x2().cluster(17).behind(leaves(96_000, Mode::Slots(2))),
        TreeSpec::pcie_2x2(),
        TreeSpec::pcie_2x2x2(),
        TreeSpec::pcie_2x2x2().cluster(4),
        TreeSpec::pcie_2x2().cluster(17),
        forward,
        TreeSpec::crossbar(8, 400_000),
    ];
    for spec in machines {
        let fabric = Fabric::new(&spec).expect("a machine");
        // One of the profiles lacks pairs, which are appended.
        let profile = |(name, kind)| {
            let demand = Demand::make(kind, fabric.ranks(), 1 << 20, 7).expect("a demand");
            Profile::new(name, &demand).expect("a profile")
        };
        let single = spec.nodes == 1 && !fabric.is_fluid();
        let kinds = [("skewed", Kind::Zipf(0.8)), ("few", Kind::Sparse(0.6))].into_iter();
        let profiles: Vec<Profile> = kinds.filter(|_| single).map(profile).collect();
        let all = base::recorded(&Machine {
            spec,
            any_nodes: false,
            profiles,
        });
        let mut planner = (Planner::new(&fabric).with_sequences(&all)).expect("the machine's own sequences");
        let alone = all.profiles.last().map(|few| Sequences {
            uniform: Vec::new(),
            profiles: vec![few.clone()],
        });
        let mut few = (Planner::new(&fabric).with_sequences(&alone.unwrap_or_default())).expect("one of them");
        let mut cheap = Planner::new(&fabric).with_effort(Effort::CHEAP);
        let selecting = |selector| {
            Planner::new(&fabric).with_effort(Effort {
                selector,
                ..Effort::FULL
            })
        };
        let mut selectors = vec![selecting(Selector::Greedy)];
        if fabric.nodes() == 1 {
            let catalogue = Catalogue::build(&fabric, false, Vec::new()).expect("a catalogue");
            let planner = selecting(Selector::Family).with_catalogue(&fabric, &catalogue);
            selectors.push(planner.expect("its own catalogue"));
        }
        let n = planner.ranks();
        let mut demands = vec![Demand::zero(n), Demand::new(n, vec![1 << 40; n * n]).expect("a demand")];
        for kind in [
            Kind::Uniform,
            Kind::Zipf(0.8),
            Kind::Hot(0.5),
            Kind::Sparse(0.6),
            Kind::Random,
        ] {
            for bytes in [999, 1 << 28] {
                demands.push(Demand::make(kind, n, bytes, 7).expect("a demand"));
            }
        }
        let before = CALLS.get();
        for demand in &demands {
            let mut lanes = planner.plan(demand).map_or(0, |plan| plan.lanes().len());
            lanes += planner.plan_cached(demand).map_or(0, |plan| plan.lanes().len());
            lanes += planner.plan_cached(demand).map_or(0, |plan| plan.lanes().len());
            for strategy in Strategy::ALL {
                lanes += planner.plan_by(demand, strategy).map_or(0, |plan| plan.lanes().len());
                lanes += planner.predict().hand_off_ns as usize % 2;
            }
            lanes += few.plan_by(demand, Strategy::Base).map_or(0, |plan| plan.lanes().len());
            lanes += few.plan(demand).map_or(0, |plan| plan.lanes().len());
            for planner in &mut selectors {
                let plan = planner.plan_by(demand, Strategy::Peel);
                lanes += plan.map_or(0, |plan| plan.lanes().len());
            }
            lanes += usize::from(cheap.begin(demand).is_ok());
            while let Some(activation) = cheap.advance() {
                lanes += activation.len();
            }
            std::hint::black_box((lanes, planner.last().hash()));
        }
        let calls = CALLS.get() - before;
        assert_eq!(calls, 0, "{n} ranks: {calls} allocations");
    }
}
