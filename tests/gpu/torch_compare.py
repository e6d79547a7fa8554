#!/usr/bin/env python3
"""topoforge beside torch.distributed + NCCL in one run, one process per GPU, from Python.

    tests/gpu/torch_compare.py target/release/libtopoforge.so [--ranks 2] [--quick]

Proves sums of three types in and out of place, eagerly and in graphs, on side streams, misaligned, of sizes without a
route, and other types and operations; then times both on the same buffers, interleaved. Exits non-zero on the first wrong
number, and after --limit seconds whatever happens. Last a short table.
"""

import argparse
import os
import statistics
import sys
import time

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/python")
SIZES = [1 << 10, 5 << 10, 10 << 10, 20 << 10, 40 << 10, 80 << 10, 160 << 10, 320 << 10, 1 << 20, 4 << 20]
CALLS = 64


def values(torch, count, rank, dtype, salt=0):
    """Sixteenths below 2, exact in every order of sums over 16 ranks, in bf16 too: small multiples of a quarter there."""
    step = 4 if dtype == torch.bfloat16 else 16
    i = torch.arange(count, device="cuda", dtype=torch.int64)
    return (((i * 7 + rank * 13 + salt * 3) % 8).to(torch.float32) / step).to(dtype)


def want(torch, count, world, dtype, salt=0):
    return sum(values(torch, count, r, torch.float32 if dtype != torch.bfloat16 else dtype, salt).float() for r in range(world)).to(dtype)


class Wrong(Exception):
    pass


def same(torch, comm, got, right, what):
    torch.cuda.synchronize()
    comm.check()
    if not torch.equal(got, right):
        at = int((got != right).flatten().nonzero()[0])
        raise Wrong(f"{what}: {got.flatten()[at].item()} at {at} where {right.flatten()[at].item()} is right")


def prove(torch, comm, topoforge):
    """Each kind of call against the exact sum. Returns how many were made."""
    world, rank, proven = comm.world_size, comm.rank, 0
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for count in (1, 7, 512, 2560, 2563, 40_000, 1 << 19, 3_000_001):
            right = want(torch, count, world, dtype)
            x = values(torch, count, rank, dtype)
            out = torch.empty_like(x)
            comm.all_reduce(x, out=out)
            same(torch, comm, out, right, f"{count} {dtype} out of place")
            comm.all_reduce(x)
            same(torch, comm, x, right, f"{count} {dtype} in place")
            # Off the 16-byte boundary, on all ranks alike.
            room = torch.zeros(count + 1, dtype=dtype, device="cuda")
            room[1:] = values(torch, count, rank, dtype)
            comm.all_reduce(room[1:])
            same(torch, comm, room[1:], right, f"{count} {dtype} misaligned")
            comm.check()
            proven += 3
    matrix = values(torch, 64 * 48, rank, torch.float16).view(64, 48)
    comm.all_reduce(matrix.t())
    same(torch, comm, matrix, want(torch, 64 * 48, world, torch.float16).view(64, 48), "a transposed tensor")
    whole = torch.full((1000,), rank + 1, dtype=torch.int32, device="cuda")
    comm.all_reduce(whole)
    same(torch, comm, whole, torch.full_like(whole, world * (world + 1) // 2), "int32, by NCCL")
    most = torch.full((1000,), float(rank), dtype=torch.float16, device="cuda")
    comm.all_reduce(most, op=topoforge.MAX)
    same(torch, comm, most, torch.full_like(most, float(world - 1)), "a maximum, by NCCL")
    return proven + 3


def prove_graphs(torch, comm):
    """Two graphs of several sizes, interleaved with eager calls and side streams."""
    world, rank = comm.world_size, comm.rank
    sizes = (512, 2560, 40_000, 1 << 19)
    graphs = []
    for salt in (1, 2):
        sources = [values(torch, n, rank, torch.float16, salt) for n in sizes]
        results = [torch.empty_like(s) for s in sources]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        with torch.cuda.graph(graph):
            main = torch.cuda.current_stream()
            for i, (source, result) in enumerate(zip(sources, results)):
                if i % 2:
                    # A branch of the capture: the communicator's calls stay in order.
                    side.wait_stream(main)
                    with torch.cuda.stream(side):
                        comm.all_reduce(source, out=result)
                    main.wait_stream(side)
                else:
                    comm.all_reduce(source, out=result)
        # The sources too: a graph keeps addresses, not tensors.
        graphs.append((salt, graph, sources, results))
    eager = values(torch, 2560, rank, torch.float16)
    other = torch.cuda.Stream()
    for round_ in range(20):
        for salt, graph, _sources, results in graphs:
            for result in results:
                result.zero_()
            graph.replay()
            out = torch.empty_like(eager)
            if round_ % 2:
                other.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(other):
                    comm.all_reduce(eager, out=out)
                torch.cuda.current_stream().wait_stream(other)
            else:
                comm.all_reduce(eager, out=out)
            same(torch, comm, out, want(torch, 2560, world, torch.float16), f"eager beside graphs, round {round_}")
            for n, result in zip(sizes, results):
                same(torch, comm, result, want(torch, n, world, torch.float16, salt), f"{n} in graph {salt}, round {round_}")
            comm.check()
    del graphs
    torch.cuda.synchronize()


def captured(torch, call):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def microseconds(torch, dist, run):
    """The slowest rank's microseconds a call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    dist.barrier()
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    mine = torch.tensor([start.elapsed_time(end) * 1000 / CALLS], device="cuda")
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return mine.item()


def measure(torch, dist, comm, samples):
    rows = []
    for size in SIZES:
        x = torch.zeros(size // 2, dtype=torch.float16, device="cuda")
        sides = {"nccl": lambda: dist.all_reduce(x), "topoforge": lambda: comm.all_reduce(x)}
        for call in sides.values():
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        graphs = {name: captured(torch, call) for name, call in sides.items()}
        times = {(mode, name): [] for mode in ("graph", "eager") for name in sides}
        for sample in range(samples + 3):
            for name, call in sides.items():
                for mode in ("graph", "eager"):
                    run = graphs[name].replay if mode == "graph" else (lambda: [call() for _ in range(CALLS)])
                    us = microseconds(torch, dist, run)
                    if sample >= 3:
                        times[mode, name].append(us)
        comm.check()
        rows.append((size, {key: statistics.median(us) for key, us in times.items()}))
        del graphs
    return rows


def work(rank, arguments):
    """One rank. Both ranks' errors are shown: the first to be seen need not be the cause."""
    try:
        serve(rank, arguments)
    except Exception as error:
        print(f"rank {rank}: {type(error).__name__}: {error}", flush=True)
        raise


def serve(rank, arguments):
    sys.path.insert(0, EXAMPLES)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), TOPOFORGE_LIBRARY=os.path.abspath(arguments.library))
    import torch
    import torch.distributed as dist

    import topoforge

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    # Warmed before anything of ours: NCCL connects at its first call.
    warm = torch.zeros(1024, device="cuda")
    dist.all_reduce(warm)
    torch.cuda.synchronize()
    began = time.time()
    comm = topoforge.Communicator.from_torchrun(rank)
    set_up = time.time() - began
    proven = prove(torch, comm, topoforge)
    prove_graphs(torch, comm)
    rows = measure(torch, dist, comm, 3 if arguments.quick else 9)
    if rank == 0:
        print(comm.explain())
        print(f"topoforge {topoforge.version()}, torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}")
        print(f"set up in {set_up:.1f} s; {proven} kinds of calls and 2 graphs of 4 sizes are right\n")
        print(f"{'bytes':>9} {'graph: nccl':>12} {'topoforge':>10} {'ratio':>6} {'eager: nccl':>12} {'topoforge':>10} {'ratio':>6}")
        for size, us in rows:
            cells = []
            for mode in ("graph", "eager"):
                nccl, ours = us[mode, "nccl"], us[mode, "topoforge"]
                cells.append(f"{nccl:>12.2f} {ours:>10.2f} {nccl / ours:>6.2f}")
            print(f"{size:>9} {' '.join(cells)}")
    dist.barrier()
    torch.cuda.synchronize()
    comm.close()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", help="libtopoforge.so")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="three samples instead of nine")
    parser.add_argument("--limit", type=int, default=240, help="seconds until it is given up")
    arguments = parser.parse_args()
    import torch.multiprocessing as processes

    os.environ.update(WORLD_SIZE=str(arguments.ranks), MASTER_ADDR="127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(20_000 + os.getpid() % 20_000))
    started = processes.spawn(work, args=(arguments,), nprocs=arguments.ranks, join=False)
    deadline = time.time() + arguments.limit
    while not started.join(timeout=1):
        if time.time() > deadline:
            for process in started.processes:
                process.kill()
            sys.exit(f"given up after {arguments.limit} s")


if __name__ == "__main__":
    main()
