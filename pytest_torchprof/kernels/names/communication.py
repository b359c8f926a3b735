"""Communication: NCCL and RCCL, NVSHMEM, symmetric memory, the all-reduce kernels of serving engines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import NO_PRODUCT, PRODUCTS, KernelName
from pytest_torchprof.kernels.names.text import word_list, word_table
from pytest_torchprof.kernels.names.words import end_of, names_product
from pytest_torchprof.text.expressions import Expression, contains

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

# ncclDevKernel_AllReduce_Sum_bf16_RING_LL(..), NCCL <= 2.18 ncclKernel_AllReduce_RING_LL_Sum_float(..), RCCL
# ncclDevKernel_Generic_1(..) and rcclGenericKernel<1, false>(..). Only a few entry points are compiled and dispatch
# inside (NVIDIA/nccl src/device/generate.py), so algorithm, protocol, operator and dtype in the name prove nothing.
_NCCL: Final = Expression(
    r"(?:nccl|rccl|msccl)(?:(?:Dev|Symk?Dev)?Kernel(?:Debug)?_(?P<what>[A-Za-z]+)|GenericKernel)", words="ccl"
)

# Words of a name without its underscores, in lower case -> collective. Each is removed before the next is looked for.
_WORDS: Final = word_table(
    """
    reduce_scatter: reducescatter
    all_gather: allgather
    all_to_all: alltoall a2a
    all_reduce: allreduce crossdevicereduce quickreduce
    send_recv: sendrecv pushsend pushrecv pullsend pullrecv
    broadcast: broadcast
    barrier: barrier
    """
)
# NCCL's names contain just one of these if they are about a single collective.
_NCCL_WORDS: Final = word_table(
    """
    reduce: reduce
    scatter: scatter
    gather: gather
    """
)
# one_shot_ar, TwoShotArRmsnorm: the kernels of an all-reduce in one step or two; userbuffers_.._ag, .._rs of TE.
_SHOTS: Final = Expression(
    r"(?:[Oo]ne|[Tt]wo)_?[Ss]hot_?(?:Ar(?=[A-Z_]|$)|ar(?=_|$)|AR(?=[A-Z]?[a-z]|_|$))", words="hot"
)
_USERBUFFERS: Final = Expression(r"userbuffers_\w*?_(?P<what>ag|rs)(?:_|$)")
_USERBUFFERS_DO: Final = {"ag": "all_gather", "rs": "reduce_scatter"}

# Expert parallelism: DeepEP and its forks (deep_ep::internode::dispatch, dpsk::ep::intranode::combine, uccl::..),
# MORI's EpDispatchIntraNodeKernel and mori_ep_dispatch_.., TensorRT-LLM's moeA2ADispatchKernel. Kernels that only
# count tokens are not among them.
_EXPERTS: Final = Expression(
    r"(?:(?:^|::)(?:internode|intranode)\w*|(?:^|::|_)ep(?:::\w+)*)::(?:cached_)?(?P<what>dispatch|combine|notify|barrier)"
    r"(?:_ll|_kernel|_dispatch|_combine|_pcie|_zcopy)*$|"
    r"(?:^|::)Ep(?:Dispatch|Combine)(?:(?:Intra|Inter)Node|LowLatencyAsync(?:Send|Recv)(?!Copy)|LL(?:Send|Recv|Sync)Phase)|"
    r"(?:^|::)Ep(?:Dispatch|Combine)\w*(?P<end>Barrier)|^mori_ep_(?:dispatch|combine)_",
    words="dispatch combine notify barrier EpDispatch EpCombine",
)
# MORI's kernels that add up the experts' answers. Their names do not show which of them also wait for other GPUs.
_GATHERS_ANSWERS: Final = Expression(r"(?:^|::)EpCombine(?:Sync|All|LowLatencyAsyncRecvCopy)", words="EpCombine")

# Words that make a kernel outside NCCL one of communication.
_OTHERS: Final = word_list(
    """
    multimem_ all_reduce AllReduce allreduce_ ::comm:: one_shot_all_reduce two_shot_all_reduce
    one_shot_reduce_scatter oneShotAllReduce twoShotAllReduce oneshotAllreduce twoshotAllreduce stream_write_value
    cross_device_reduce_ nvshmem symm_mem symmetric_memory allreduce_fusion allreduce_fused quick_all_reduce
    quickreduce:: mori_shmem_barrier allreduce_prototype allgather_ reduce_scatter_ userbuffers_ mscclpp all_to_all_vdev
    rocshmem intra_node_all_reduce moe_all_to_all moeAllToAll moeA2A amport _a2a_ a2a_kernel internode:: intranode::
    internode_ll::
    allreduce all_gather allgather reduce_scatter reducescatter all_to_all alltoall AllGather ReduceScatter AllToAll
    """
)
# Copies into and out of the buffers of a collective.
_COPIES: Final = ("all_gather_copy",)
# Kernels whose threads reduce among themselves (block_all_reduce_sum, warpAllReduceMax): no other GPU takes part.
_AMONG_THREADS: Final = Expression(r"(?i:block|warp|thread|cta|tile|wave)_?(?i:all)_?(?i:reduce)")
# Kernels that prepare a collective's memory and send nothing.
_PREPARES: Final = Expression("init(?:ialize)?(?=_|k|$)|dispatch_layout")
# The work of a fused kernel on the data that it received. A norm and a residual are always a part of it.
_BESIDE: Final = word_list("softmax cross_entropy rotary rope silu gelu swiglu geglu embedding")

# The names that torch writes into the args of a communication kernel, letters only.
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
    """Return the collective that torch means by an event's ``Collective name`` ("_allgather_base"); None if unknown."""
    return _COLLECTIVE_NAMES.get(re.sub(r"[^a-z]", "", name[:60].lower()))


def _collective(name: str, words: tuple[tuple[str, str], ...] = _WORDS) -> str | None:
    """Return the collective that a name contains; None if it contains none or several."""
    left, meanings = name.replace("_", "").lower(), []
    for word, meaning in words:
        if word in left:
            meanings.append(meaning)
            left = left.replace(word, "|")
    return meanings[0] if len(set(meanings)) == 1 else None


def decode(text: Text) -> KernelName | None:
    """Return the decoded name of a communication kernel; None for any other."""
    if match := _NCCL.match(text.last) or _NCCL.match(text.base):
        stem = text.base if len(text.base) < 40 else match[0]
        collective = _collective(match["what"] or "", (*_WORDS, *_NCCL_WORDS))
        return KernelName(family="communication", library="nccl", collective=collective, stem=stem, tensor_core=False)
    if (experts := _expert_parallelism(text)) is not None:
        return experts
    in_shots = _SHOTS.search(text.last) is not None
    is_named_so = in_shots or contains(text.base, _OTHERS)
    if not is_named_so or contains(text.base, _COPIES) or _AMONG_THREADS.search(text.last):
        return None
    if (beside := _possible_communication(text)) is not None:
        return beside
    if buffers := _USERBUFFERS.search(text.base):
        return _communication(text, _USERBUFFERS_DO[buffers["what"]])
    return _communication(text, _collective(text.last) or ("all_reduce" if in_shots else _collective(text.base)))


def _expert_parallelism(text: Text) -> KernelName | None:
    """Return the decoded name of a kernel of expert parallelism, which itself decides where tokens go; else None."""
    if experts := _EXPERTS.search(text.base):
        return _communication(text, "barrier" if experts["what"] == "barrier" or experts["end"] else None)
    if _GATHERS_ANSWERS.search(text.base):
        return KernelName(never=PRODUCTS, by_word=True, stem=text.last)
    return None


def _possible_communication(text: Text) -> KernelName | None:
    """Return the decoded name of a kernel that may do more than communicate; None for any other."""
    if _PREPARES.search(text.last.lower()):
        return KernelName(never=NO_PRODUCT, by_word=True, stem=text.last)
    if names_product(end_of(text)):
        return KernelName(by_word=True, stem=text.last)
    if contains(end_of(text), _BESIDE):
        return KernelName(never=PRODUCTS, by_word=True, stem=text.last)
    return None


def _communication(text: Text, collective: str | None) -> KernelName:
    return KernelName(family="communication", by_word=True, collective=collective, stem=text.last, tensor_core=False)
