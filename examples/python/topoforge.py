"""topoforge from Python, by ctypes alone: sums of torch tensors over the GPUs of one machine.

    torchrun --nproc-per-node 2 your_program.py

    import torch, topoforge
    comm = topoforge.Communicator.from_torchrun()      # sets this process's device to LOCAL_RANK
    x = torch.ones(2560, dtype=torch.float16, device="cuda")
    comm.all_reduce(x)                                 # in place, on torch's current stream; may be captured
    torch.cuda.synchronize(); comm.check()
    print(comm.explain())                              # which route serves which size, and why

The library is libtopoforge.so (`cargo build --release -p topoforge-capi`), found through TOPOFORGE_LIBRARY or the loader.
Nothing is imported from torch but its tensors' addresses and its current stream.
"""

import ctypes
import os

# Numbers of topoforge.h, which are NCCL's.
SUM, PROD, MAX, MIN, AVG = range(5)
DTYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}
OK = 0


class Error(RuntimeError):
    """A code of topoforge.h with its words."""

    def __init__(self, code, words):
        super().__init__(f"{words} (code {code})")
        self.code = code


def _open():
    name = os.environ.get("TOPOFORGE_LIBRARY", "libtopoforge.so")
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(
            f"{error}: build it with `cargo build --release -p topoforge-capi` and name it in TOPOFORGE_LIBRARY"
        ) from error
    address, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    for function, arguments in {
        "tf_id_new": [ctypes.c_char_p],
        "tf_comm_init": [ctypes.c_char_p, number, number, number, ctypes.POINTER(address)],
        "tf_comm_init_torchrun": [number, ctypes.POINTER(address)],
        "tf_all_reduce": [address, address, address, size, number, number, address],
        "tf_check": [address],
        "tf_comm_rank": [address, ctypes.POINTER(number), ctypes.POINTER(number)],
        "tf_explain": [address, ctypes.c_char_p, size, ctypes.POINTER(size)],
        "tf_comm_destroy": [address],
    }.items():
        found = getattr(library, function)
        found.argtypes, found.restype = arguments, number
    for function in ("tf_version", "tf_last_error"):
        found = getattr(library, function)
        found.argtypes, found.restype = [], ctypes.c_char_p
    return library


_library = _open()


def _checked(code):
    if code != OK:
        raise Error(code, _library.tf_last_error().decode(errors="replace"))


def version():
    return _library.tf_version().decode()


def new_id():
    """128 bytes for `Communicator.from_rank`: one rank makes them, all must have the same."""
    made = ctypes.create_string_buffer(128)
    _checked(_library.tf_id_new(made))
    return made.raw


class Communicator:
    """One rank. Call it from one thread at a time, in the same order on all ranks."""

    def __init__(self, handle):
        self._handle = handle
        rank, world = ctypes.c_int(), ctypes.c_int()
        _checked(_library.tf_comm_rank(handle, rank, world))
        self.rank, self.world_size = rank.value, world.value

    @classmethod
    def from_torchrun(cls, device=None):
        """Joins by RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. `device` instead of LOCAL_RANK."""
        import torch

        number = int(os.environ.get("LOCAL_RANK", "0")) if device is None else device
        if not torch.cuda.is_available():
            raise RuntimeError("torch finds no GPU: see torch.cuda.is_available() and CUDA_VISIBLE_DEVICES, or `topoforge doctor`")
        torch.cuda.set_device(number)
        handle = ctypes.c_void_p()
        _checked(_library.tf_comm_init_torchrun(number, handle))
        return cls(handle)

    @classmethod
    def from_rank(cls, rank, world_size, id, device):
        """Joins by an id that every rank was given."""
        handle = ctypes.c_void_p()
        _checked(_library.tf_comm_init(bytes(id), rank, world_size, device, handle))
        return cls(handle)

    def all_reduce(self, tensor, out=None, op=SUM, stream=None):
        """Reduces a tensor over all ranks, in place or into `out`, on torch's current stream or the given one. Returns the
        result. A tensor that is not contiguous goes through a contiguous copy."""
        import torch

        if not tensor.is_cuda:
            raise TypeError("the tensor is not on a GPU")
        dtype = DTYPES.get(str(tensor.dtype).removeprefix("torch."))
        if dtype is None:
            raise TypeError(f"{tensor.dtype} tensors have no all-reduce")
        if not tensor.is_contiguous():
            summed = self.all_reduce(tensor.contiguous(), op=op, stream=stream)
            return (tensor if out is None else out).copy_(summed)
        out = tensor if out is None else out
        if not out.is_contiguous() or out.dtype != tensor.dtype or out.numel() != tensor.numel():
            raise TypeError("the output must be contiguous, of the input's type and size")
        if stream is None:
            stream = torch.cuda.current_stream(tensor.device)
        _checked(
            _library.tf_all_reduce(
                self._handle, tensor.data_ptr(), out.data_ptr(), tensor.numel(), dtype, op, stream.cuda_stream
            )
        )
        return out

    def check(self):
        """After synchronising: raises if a rank was missing."""
        _checked(_library.tf_check(self._handle))

    def explain(self):
        """Which route serves which size, how often, and why."""
        needed = ctypes.c_size_t()
        _checked(_library.tf_explain(self._handle, None, 0, needed))
        text = ctypes.create_string_buffer(needed.value)
        _checked(_library.tf_explain(self._handle, text, needed.value, None))
        return text.value.decode()

    def close(self):
        """Ends it, once. Not while its calls or graphs run."""
        if self._handle:
            handle, self._handle = self._handle, None
            _checked(_library.tf_comm_destroy(handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
