"""Questions about the libraries and their bounds: versions, very many."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sessions import GPU, adds, record
from torch.autograd import DeviceType
from torch.profiler import profile

if TYPE_CHECKING:
    from questions import Said


def versions(_: str, *, quick: bool) -> Said:
    """Tell the libraries that are loaded, and all that stands in the file about one kernel."""
    recording = record(adds(3, torch.ones(8, device="cuda")))
    lines = Path("/proc/self/maps").read_text().splitlines()
    libraries = sorted({line.split()[-1] for line in lines if "/libcupti" in line or "/libcuda.so" in line})
    api = ctypes.c_uint32()
    cupti = next((path for path in libraries if "libcupti" in path), None)
    # As torch's own calls find it: what is preloaded is called in a library's place.
    ask = getattr(ctypes.CDLL(None), "cuptiGetVersion", None) or (ctypes.CDLL(cupti).cuptiGetVersion if cupti else None)
    if ask is not None:
        ask(ctypes.byref(api))
    name = torch.cuda.get_device_name()
    yield (
        f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}, CUPTI's API {api.value or 'not told'}",
        {"libraries": libraries, "arch": torch.cuda.get_device_capability()},
    )
    file = {key: value for key, value in recording.file.items() if not isinstance(value, list)}
    arguments = recording.gpu[-1]["args"] if recording.gpu else {}
    yield f"a kernel's event has {', '.join(arguments)}", {"arguments": arguments, "file": file}
    private = {
        "_is_kineto_stopped": hasattr(torch._C._autograd, "_is_kineto_stopped"),
        "register_graph_instantiate_hook": hasattr(torch.cuda.graphs, "register_graph_instantiate_hook"),
    }
    yield (
        f"torch has {', '.join(name for name, there in private.items() if there) or 'neither'} of {[*private]}",
        private,
    )


def many(_: str, *, quick: bool) -> Said:
    """Launch more and more in one session of the GPU alone; the file would be too large, so torch itself is asked."""
    x = torch.ones(8, device="cuda")
    for count in (200, 2_000) if quick else (20_000, 150_000, 450_000):
        with profile(activities=[GPU]) as session:
            adds(count, x)()
            torch.cuda.synchronize()
        stopped = getattr(torch._C._autograd, "_is_kineto_stopped", lambda: "not told")()
        events = session.profiler.kineto_results.events()
        seen = sum(one.device_type() == DeviceType.CUDA and one.name() != "Activity Buffer Request" for one in events)
        yield f"{count} launched: {seen} operations of the GPU recorded; kineto has stopped: {stopped}", {count: seen}
        del session, events
