"""How long importing the name tables and classifying names takes.

    python benchmarks/names.py [FILE]

FILE holds kernel names, one per line, anything behind a tab ignored. Random names up to 6,000 characters always run.
"""

from __future__ import annotations

import random
import string
import subprocess
import sys
import time
from pathlib import Path

from pytest_torchprof.kernels.names import decode

WORDS = """
void at::native:: |vectorized_elementwise_kernel<4, |gemm_|nvjet_tst_|128x64_|triton_poi_fused_|add_|_0
|(anonymous namespace)::|cutlass::Kernel2<|cutlass_80_tensorop_s1688gemm_|Cijk_Alik_Bljk_|lambda(float)#1}|> >(int,
|cudnn::|sm90_xmma_|fprop_|implicit_gemm_|float, |c10::BFloat16|_ZN2ck|ILi128E|flash_fwd_kernel<|1x|___
""".replace("\n", "").split("|")


def random_names(count: int, seed: int = 0) -> list[str]:
    """Return strings of up to 6,000 characters: half noise, half pieces of real names in any order."""
    chooser = random.Random(seed)
    names = []
    for at in range(count):
        length = chooser.randint(1, 6000)
        if at % 2:
            pieces = "".join(chooser.choices(WORDS, k=length // 4 + 1))
            names.append(pieces[:length])
        else:
            names.append("".join(chooser.choices(string.printable, k=length)))
    return names


def per_name(names: list[str]) -> tuple[float, float]:
    """Return the mean and the largest time per name, in microseconds, without the cache."""
    times = []
    for name in names:
        start = time.process_time()
        decode.__wrapped__(name)
        times.append(time.process_time() - start)
    return 1e6 * sum(times) / len(times), 1e6 * max(times)


def import_ms() -> float:
    """Return the processor time that a fresh interpreter needs for import and 100 names, best of five, in ms."""
    code = (
        "import re, functools, msgspec, time; start = time.process_time()\n"
        "from pytest_torchprof.kernels.names import decode\n"
        "for at in range(100): decode(f'ampere_bf16_s16816gemm_bf16_128x{at}_ldg8_f2f_stages_64x3_tn')\n"
        "print(1e3 * (time.process_time() - start))"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def main() -> None:
    print(f"import and 100 names: {import_ms():.1f} ms")
    mean, worst = per_name(random_names(2000))
    print(f"random names up to 6,000 characters: {mean:.1f} us on average, {worst:.1f} us at most")
    if len(sys.argv) > 1:
        lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
        names = sorted({line.partition("\t")[0] for line in lines if line})
        mean, worst = per_name(names)
        print(f"{len(names)} names of {sys.argv[1]}: {mean:.1f} us on average, {worst:.1f} us at most")


if __name__ == "__main__":
    main()
