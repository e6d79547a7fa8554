//! Broken schedules and what the verifier says about each: the right fault at the right place.

mod schedule_support;

use schedule_support::{PIX, complete};
use topoforge_planner::schedule::generate::mixed_radix::{Mode, Shape, build};
use topoforge_planner::schedule::verify::{OutputFault, TransferFault, ValueFault};
use topoforge_planner::schedule::{
    Delivery, EdgePolicy, Protocol, Schedule, Stage, Transfer, Value, ValueId, VerifyError, verify,
};
use topoforge_planner::topology::{Link, LinkClass, PcieClass, Topology};

fn made(modes: &[(usize, Mode)]) -> Schedule {
    let shape = Shape(modes.to_vec());
    let placement: Vec<usize> = (0..shape.ranks()).collect();
    build(&shape, &placement, shape.name()).expect("a permutation")
}

fn one_shot(n: usize) -> Schedule {
    made(&[(n, Mode::Replicate)])
}

fn two_shot(n: usize) -> Schedule {
    made(&[(n, Mode::Scatter)])
}

fn square() -> Schedule {
    made(&[(2, Mode::Replicate), (2, Mode::Replicate)])
}

#[track_caller]
fn refused(schedule: Schedule) -> VerifyError {
    let topology = complete(schedule.ranks, PIX);
    verify(schedule, &topology, EdgePolicy::Peer, 2).expect_err("a broken schedule")
}

#[track_caller]
fn transfer_fault(schedule: Schedule) -> (usize, Transfer, TransferFault) {
    match refused(schedule) {
        VerifyError::Transfer { stage, transfer, fault } => (stage, transfer, fault),
        other => panic!("another fault: {other}"),
    }
}

#[test]
fn a_dropped_transfer_leaves_its_receiver_without_the_output() {
    for at in 0..12 {
        let mut schedule = one_shot(4);
        let dropped = schedule.stages[0].transfers.remove(at);
        let fault = OutputFault::NotHeld;
        assert_eq!(
            refused(schedule),
            VerifyError::Output {
                rank: dropped.to,
                chunk: 0,
                fault
            }
        );
    }
}

#[test]
fn a_dropped_transfer_shows_where_it_is_missed_first() {
    let mut schedule = square();
    let dropped = schedule.stages[0].transfers.remove(0);
    let (stage, transfer, fault) = transfer_fault(schedule);
    assert_eq!((stage, transfer.from, fault), (1, dropped.to, TransferFault::NotHeld));
}

#[test]
fn a_dropped_stage_is_refused() {
    for stage in 0..6 {
        let mut schedule = made(&[(2, Mode::Scatter), (2, Mode::Scatter), (2, Mode::Scatter)]);
        schedule.stages.remove(stage);
        assert!(matches!(
            refused(schedule),
            VerifyError::Transfer {
                fault: TransferFault::NotHeld,
                ..
            } | VerifyError::Output {
                fault: OutputFault::NotHeld,
                ..
            }
        ));
    }
}

#[test]
fn a_contribution_that_counts_twice_is_named() {
    let mut schedule = one_shot(3);
    let (total, twice) = (schedule.outputs[1][0], ValueId(2));
    assert_eq!(schedule.value(twice), Value::Input(2));
    schedule.values.push(Value::Sum(total, twice));
    schedule.outputs[1][0] = ValueId(schedule.values.len() as u32 - 1);
    assert_eq!(
        refused(schedule),
        VerifyError::Output {
            rank: 1,
            chunk: 0,
            fault: OutputFault::Repeats(2)
        }
    );
}

#[test]
fn a_contribution_that_is_left_out_is_named() {
    let mut schedule = one_shot(3);
    // (x0+x1), the partial sum before x2 is added.
    let partial = schedule
        .values
        .iter()
        .position(|v| *v == Value::Sum(ValueId(0), ValueId(1)))
        .expect("left fold");
    schedule.outputs[0][0] = ValueId(partial as u32);
    assert_eq!(
        refused(schedule),
        VerifyError::Output {
            rank: 0,
            chunk: 0,
            fault: OutputFault::Lacks(2)
        }
    );
}

#[test]
fn a_swapped_chunk_is_missed_by_its_owner() {
    let mut schedule = two_shot(3);
    let t = &mut schedule.stages[0].transfers[0];
    let (owner, chunk) = (t.to, t.chunk);
    t.chunk = (chunk + 1) % 3;
    let (stage, transfer, fault) = transfer_fault(schedule);
    assert_eq!(
        (stage, transfer.from, transfer.chunk, fault),
        (1, owner, chunk, TransferFault::NotHeld)
    );
}

#[test]
fn nothing_is_sent_on_in_the_stage_it_arrives_in() {
    let mut schedule = square();
    let early = schedule.stages[1].transfers.remove(0);
    schedule.stages[0].transfers.push(early);
    assert_eq!(transfer_fault(schedule), (0, early, TransferFault::NotHeld));
    let mut merged = two_shot(4);
    let gather = merged.stages.pop().expect("two stages");
    merged.stages[0].transfers.extend(gather.transfers);
    assert_eq!(transfer_fault(merged).2, TransferFault::NotHeld);
}

#[test]
fn malformed_transfers_are_refused_before_anything_is_indexed_with_them() {
    let good = one_shot(3).stages[0].transfers[0];
    let faults = [
        (Transfer { from: 3, ..good }, TransferFault::Rank),
        (Transfer { to: usize::MAX, ..good }, TransferFault::Rank),
        (Transfer { chunk: 1, ..good }, TransferFault::Chunk),
        (
            Transfer {
                value: ValueId(u32::MAX),
                ..good
            },
            TransferFault::Value,
        ),
        (Transfer { to: good.from, ..good }, TransferFault::ToItself),
        (good, TransferFault::Twice),
    ];
    for (transfer, fault) in faults {
        let mut schedule = one_shot(3);
        schedule.stages[0].transfers.push(transfer);
        assert_eq!(transfer_fault(schedule), (0, transfer, fault));
    }
}

#[test]
fn the_value_table_must_be_hash_consed_and_in_order() {
    let with = |value| {
        let mut schedule = one_shot(3);
        schedule.values.push(value);
        refused(schedule)
    };
    let id = ValueId(one_shot(3).values.len() as u32);
    let fails = |fault| VerifyError::Value { id, fault };
    assert_eq!(with(Value::Input(3)), fails(ValueFault::RankOutOfRange(3)));
    assert_eq!(with(Value::Input(1)), fails(ValueFault::Repeats(ValueId(1))));
    assert_eq!(
        with(Value::Sum(ValueId(0), id)),
        fails(ValueFault::OperandNotEarlier(id))
    );
    assert_eq!(
        with(Value::Rounded(ValueId(99))),
        fails(ValueFault::OperandNotEarlier(ValueId(99)))
    );
}

#[test]
fn outputs_must_be_there_for_each_rank_and_chunk() {
    let mut short = two_shot(3);
    short.outputs.pop();
    assert_eq!(refused(short), VerifyError::OutputShape);
    let mut narrow = two_shot(3);
    narrow.outputs[1].pop();
    assert_eq!(refused(narrow), VerifyError::OutputShape);
    let mut wild = two_shot(3);
    wild.outputs[2][1] = ValueId(1000);
    assert_eq!(
        refused(wild),
        VerifyError::Output {
            rank: 2,
            chunk: 1,
            fault: OutputFault::Value
        }
    );
}

#[test]
fn names_chunks_buffers_and_sizes_are_checked() {
    let named = |name: &str| {
        refused(Schedule {
            name: name.into(),
            ..one_shot(2)
        })
    };
    for name in ["", "-a", "One", "a b", "a_b"] {
        assert_eq!(named(name), VerifyError::Name(name.into()));
    }
    assert_eq!(
        refused(Schedule {
            chunks: 0,
            ..one_shot(2)
        }),
        VerifyError::Empty("chunk")
    );
    let pair = complete(2, PIX);
    assert_eq!(
        verify(one_shot(2), &pair, EdgePolicy::Peer, 0),
        Err(VerifyError::Empty("buffer"))
    );
    let trio = complete(3, PIX);
    let fault = VerifyError::Ranks {
        schedule: 2,
        topology: 3,
    };
    assert_eq!(verify(one_shot(2), &trio, EdgePolicy::Peer, 2), Err(fault));
    let none = Schedule {
        ranks: 0,
        outputs: vec![],
        values: vec![],
        stages: vec![],
        ..one_shot(2)
    };
    let fault = VerifyError::Ranks {
        schedule: 0,
        topology: 0,
    };
    assert_eq!(verify(none, &Topology::new("none", 0), EdgePolicy::Peer, 2), Err(fault));
}

#[test]
fn a_single_rank_needs_no_transfer() {
    let alone = Schedule {
        name: "alone".into(),
        ranks: 1,
        chunks: 1,
        delivery: Delivery::Push,
        values: vec![Value::Input(0)],
        stages: vec![],
        outputs: vec![vec![ValueId(0)]],
    };
    verify(alone, &Topology::new("one", 1), EdgePolicy::Peer, 1).expect("nothing to do");
}

#[test]
fn a_removed_edge_is_named_with_its_stage() {
    let mut topology = complete(4, PIX);
    let edge = square().stages[1].transfers[2];
    topology.links.retain(|l| (l.from, l.to) != (edge.from, edge.to));
    let fault = VerifyError::MissingEdge {
        stage: 1,
        from: edge.from,
        to: edge.to,
        delivery: Delivery::Push,
    };
    assert_eq!(verify(square(), &topology, EdgePolicy::Peer, 2), Err(fault));
    verify(square(), &topology, EdgePolicy::Host, 2).expect("host staging reaches every pair");
}

#[test]
fn push_needs_write_access_and_pull_needs_the_reader_to_read() {
    let link = |from, to, read, write| Link {
        read,
        write,
        ..Link::new(from, to, PIX)
    };
    let deaf = Topology::new("deaf", 2)
        .with_link(link(0, 1, true, false))
        .with_link(link(1, 0, true, true));
    let fault = VerifyError::MissingEdge {
        stage: 0,
        from: 0,
        to: 1,
        delivery: Delivery::Push,
    };
    assert_eq!(verify(one_shot(2), &deaf, EdgePolicy::Peer, 2), Err(fault));
    let pull = Schedule {
        delivery: Delivery::Pull,
        ..one_shot(2)
    };
    verify(pull.clone(), &deaf, EdgePolicy::Peer, 2).expect("both may read");
    // Rank 0 cannot load from rank 1, so what rank 1 holds cannot come to rank 0.
    let blind = Topology::new("blind", 2)
        .with_link(link(0, 1, false, true))
        .with_link(link(1, 0, true, true));
    let fault = VerifyError::MissingEdge {
        stage: 0,
        from: 1,
        to: 0,
        delivery: Delivery::Pull,
    };
    assert_eq!(verify(pull, &blind, EdgePolicy::Peer, 2), Err(fault));
}

#[test]
fn only_inputs_are_pulled_and_only_at_once() {
    let pulled = Schedule {
        delivery: Delivery::Pull,
        ..square()
    };
    assert_eq!(transfer_fault(pulled).2, TransferFault::PullOfSum);
    let mut late = Schedule {
        delivery: Delivery::Pull,
        ..one_shot(2)
    };
    late.stages.insert(0, Stage::default());
    assert_eq!(transfer_fault(late).2, TransferFault::LatePull);
}

#[test]
fn more_peers_than_the_platform_allows_are_refused() {
    let mut topology = complete(5, PIX);
    topology.peer_degree_limit = Some(3);
    let fault = VerifyError::TooManyPeers {
        rank: 0,
        peers: 4,
        most: 3,
    };
    assert_eq!(verify(one_shot(5), &topology, EdgePolicy::Peer, 2), Err(fault));
    verify(one_shot(5), &topology, EdgePolicy::Host, 2).expect("host staging enables no peers");
}

#[test]
fn one_buffer_is_too_few_for_an_exchange_and_two_are_enough() {
    let exchanges = (2..=9)
        .map(one_shot)
        .chain([square(), made(&[(2, Mode::Scatter), (4, Mode::Replicate)])]);
    for schedule in exchanges {
        let (topology, name) = (complete(schedule.ranks, PIX), schedule.name.clone());
        let one = verify(schedule.clone(), &topology, EdgePolicy::Peer, 1);
        assert!(
            matches!(one, Err(VerifyError::SlotReuse { buffers: 1, .. })),
            "{name}: {one:?}"
        );
        let two = verify(schedule, &topology, EdgePolicy::Peer, 2).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((two.buffers(), two.policy()), (2, EdgePolicy::Peer));
    }
}

#[test]
fn an_owner_that_hears_from_all_before_it_answers_needs_one_buffer_only() {
    for n in 2..=9 {
        verify(two_shot(n), &complete(n, PIX), EdgePolicy::Peer, 1).expect("each slot's reset is known to its writer");
    }
}

#[test]
fn a_broadcast_is_no_all_reduce() {
    let mut broadcast = one_shot(3);
    broadcast.stages[0].transfers.retain(|t| t.from == 0);
    broadcast.outputs = vec![vec![ValueId(0)]; 3];
    assert_eq!(
        refused(broadcast),
        VerifyError::Output {
            rank: 0,
            chunk: 0,
            fault: OutputFault::Lacks(1)
        }
    );
}

#[test]
fn a_reduce_to_one_rank_is_no_all_reduce() {
    let mut reduce = one_shot(3);
    reduce.stages[0].transfers.retain(|t| t.to == 0);
    assert_eq!(
        refused(reduce),
        VerifyError::Output {
            rank: 1,
            chunk: 0,
            fault: OutputFault::NotHeld
        }
    );
}

#[test]
fn messages_name_stage_rank_and_chunk() {
    let mut schedule = two_shot(3);
    schedule.stages[0].transfers[0].chunk = 2;
    assert_eq!(
        refused(schedule).to_string(),
        "stage 1, rank 1 to 2, chunk 1, value 5: the sender cannot know the value yet"
    );
    let one = verify(one_shot(2), &complete(2, PIX), EdgePolicy::Peer, 1).expect_err("one buffer");
    let text = "stage 0, chunk 0: with 1 buffer(s) rank 0 may overwrite a slot that rank 1 has not read yet";
    assert_eq!(one.to_string(), text);
}

/// Every way of making one link of a machine one that may cut lines, under every schedule of its plan.
#[test]
fn lines_over_any_one_link_that_may_cut_them_are_refused_by_name() {
    let nvlink = LinkClass::NvLink { lanes: 2, r#gen: 2 };
    let (mut refused, mut kept) = (0, 0);
    for schedule in [one_shot(3), two_shot(3), square(), two_shot(4)] {
        let whole = complete(schedule.ranks, nvlink);
        let verified = verify(schedule.clone(), &whole, EdgePolicy::Peer, 2).expect("generated");
        assert_eq!(verified.admits(Protocol::Packet128), Ok(()));
        for at in 0..whole.links.len() {
            let (from, to) = (whole.links[at].from, whole.links[at].to);
            let used = schedule.transfers().any(|t| (t.from, t.to) == (from, to));
            let mutants: [&dyn Fn(&mut Link); 3] = [
                &|l| l.class = PIX,
                &|l| l.class = LinkClass::Pcie(PcieClass::Sys),
                // What doctor has seen, whatever the class.
                &|l| l.lines = false,
            ];
            for mutant in mutants {
                let mut broken = whole.clone();
                mutant(&mut broken.links[at]);
                let verified = verify(schedule.clone(), &broken, EdgePolicy::Peer, 2).expect("the same edges");
                for other in [Protocol::Packet, Protocol::Sentinel, Protocol::Flag] {
                    assert_eq!(verified.admits(other), Ok(()));
                }
                match verified.admits(Protocol::Packet128) {
                    Ok(()) => {
                        assert!(!used, "{} over {from} to {to}", schedule.name);
                        kept += 1;
                    }
                    Err(VerifyError::CutLines { from: f, to: t, .. }) => {
                        assert_eq!((f, t), (from, to));
                        refused += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    assert!(refused > 40 && kept > 0, "{refused} {kept}");
}

#[test]
fn lines_through_host_memory_are_refused_whatever_the_links() {
    let pair = complete(2, LinkClass::NvLink { lanes: 2, r#gen: 2 });
    let staged = verify(one_shot(2), &pair, EdgePolicy::Host, 2).expect("generated");
    assert!(matches!(
        staged.admits(Protocol::Packet128),
        Err(VerifyError::CutLines { stage: 0, .. })
    ));
}
