"""A first program: torchrun --nproc-per-node 2 examples/python/sum.py

Sums a tensor over all ranks, eagerly and in a CUDA graph, and says which route served.
"""

import torch

import topoforge

with topoforge.Communicator.from_torchrun() as comm:
    want = float(sum(range(1, comm.world_size + 1)))
    x = torch.full((2560,), comm.rank + 1.0, dtype=torch.float16, device="cuda")
    comm.all_reduce(x)
    torch.cuda.synchronize()
    comm.check()
    assert bool((x == want).all()), x

    source, sums = torch.full_like(x, comm.rank + 1.0), torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        comm.all_reduce(source, out=sums)
    for _ in range(3):
        sums.zero_()
        graph.replay()
        torch.cuda.synchronize()
        comm.check()
        assert bool((sums == want).all()), sums
    if comm.rank == 0:
        print(comm.explain())
        print("right, eagerly and from a graph")
    torch.cuda.synchronize()
    del graph
