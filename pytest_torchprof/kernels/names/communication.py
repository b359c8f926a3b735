"""Communication: NCCL and RCCL, NVSHMEM, symmetric memory, the all-reduce kernels of serving engines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import PRODUCTS, KernelName
from pytest_torchprof.kernels.names.text import Expression, contains, looked_up, word_list, word_table
from pytest_torchprof.kernels.names.words import end_of, names_product

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# ncclDevKernel_AllReduce_Sum_bf16_RING_LL(..), NCCL <= 2.18 ncclKernel_AllReduce_RING_LL_Sum_float(..), RCCL
# ncclDevKernel_Generic_1(..). Only a few entry points are compiled and dispatch inside (NVIDIA/nccl
# src/device/generate.py), so algorithm, protocol, operator and dtype in the name prove nothing.
_NCCL: Final = Expression(
    r"(?:nccl|rccl|msccl)(?:DevKernel|Kernel|SymkDevKernel|SymDevKernel|DevKernelDebug|KernelDebug)_(?P<what>[A-Za-z]+)"
)

# Part of the function's name -> collective; the first that occurs.
_WORDS: Final = word_table(
    """
    all_reduce: AllReduce all_reduce allreduce cross_device_reduce
    all_gather: AllGather all_gather allgather
    reduce_scatter: ReduceScatter reduce_scatter reducescatter
    all_to_all: AllToAll all_to_all alltoall
    send_recv: SendRecv
    broadcast: Broadcast broadcast
    barrier: barrier
    reduce: Reduce
    scatter: Scatter
    gather: Gather
    """
)

# What makes a name outside NCCL communication.
_OTHERS: Final = word_list(
    """
    multimem_ all_reduce AllReduce allreduce_ ::comm:: one_shot_all_reduce two_shot_all_reduce
    one_shot_reduce_scatter oneShotAllReduce twoShotAllReduce oneshotAllreduce twoshotAllreduce stream_write_value
    cross_device_reduce_ nvshmem symm_mem symmetric_memory allreduce_fusion allreduce_fused quick_all_reduce
    quickreduce:: allreduce_prototype allgather_ reduce_scatter_ userbuffers_ deep_ep:: mscclpp all_to_all_vdev
    rocshmem intra_node_all_reduce moe_all_to_all moeAllToAll
    allreduce all_gather allgather reduce_scatter reducescatter all_to_all alltoall AllGather ReduceScatter AllToAll
    """
)
# Copies into and out of the buffers of a collective.
_COPIES: Final = ("all_gather_copy",)
# Beside communication: what a fused kernel does with what it has got.
_BESIDE: Final = word_list(
    "rmsnorm rms_norm layernorm layer_norm softmax cross_entropy rotary rope silu gelu swiglu geglu embedding"
)

# What torch writes in the args of a communication kernel, letters only.
_COLLECTIVE_NAMES: Final = dict(
    word_table(
        """
        all_reduce: allreduce allreducecoalesced allreducesparse
        all_gather: allgather allgatherbase allgathercoalesced allgatherintotensorcoalesced
        reduce_scatter: reducescatter reducescatterbase reducescattertensorcoalesced
        all_to_all: alltoall alltoallbase alltoallv
        broadcast: broadcast
        reduce: reduce
        send_recv: send recv sendrecv
        gather: gather
        scatter: scatter
        barrier: barrier
        """
    )
)


def collective_of(name: str) -> str | None:
    """Return the collective for what torch calls it in an event's ``Collective name`` ("_allgather_base")."""
    return _COLLECTIVE_NAMES.get(re.sub(r"[^a-z]", "", name[:60].lower()))


def _collective(text: str) -> str | None:
    return looked_up(text, _WORDS)


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a communication kernel, None for any other."""
    base = text.base
    found = _NCCL.match(text.last) or _NCCL.match(base)
    if found:
        stem = base if len(base) < 40 else found[0]
        return KernelName(
            family="communication", library="nccl", collective=_collective(found["what"]), stem=stem, tensor_core=False
        )
    if not contains(base, _OTHERS) or contains(base, _COPIES):
        return None
    if names_product(text):
        return KernelName(by_word=True, stem=text.last)
    if contains(end_of(text), _BESIDE):
        return KernelName(never=PRODUCTS, by_word=True, stem=text.last)
    return KernelName(
        family="communication", by_word=True, collective=_collective(base), stem=text.last, tensor_core=False
    )
