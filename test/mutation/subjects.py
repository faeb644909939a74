"""What is mutated: every shipped kernel and program, with what runs it and says whether the result is right."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from expert_operators import expert_operators
from operators import operators
from subject import GROUPS, ONE_NODE, Subject

import ditron

__all__ = ["subjects"]

_ROOT = Path(__file__).resolve().parents[2]
#: Of what is imported.
_FOLDERS = (
    "examples",
    "test/python/support",
    "test/python/ditron/sim",
    "test/python/ditron/kernels",
    "test/python/ditron_compiler/passes",
)


def subjects() -> dict[str, Subject]:
    """By name. Importing the examples takes a moment."""
    for folder in _FOLDERS:
        path = str(_ROOT / folder)
        if path not in sys.path:
            sys.path.insert(0, path)
    found = [*_examples(), *_programs(), *operators(), *expert_operators(), *_clean_kernels(), *_patterns()]
    return {subject.name: subject for subject in found}


def _examples() -> list[Subject]:
    tile = dict(block=(16, 16, 16))

    def example(
        module: str, tolerance: float, *args: int, name: str = "", groups: tuple = GROUPS, **config: object
    ) -> Subject:
        check = importlib.import_module(module).check

        def run() -> float:
            ditron.init()
            return check(*args, **config)

        return Subject(name or module, run, tolerance, groups)

    return [
        example("ag_gemm_in_kernel", 8e-3, 20, 16, 16, num_push=2, push_rows=8, **tile),
        example("gemm_rs", 1.5e-2, 20, 16, 16, **tile),
        example("all_gather", 0.0, 600, chunk=256),
        example("put_signal", 0.0, 1500),
        example("ring", 1e-5, 400),
        example("ll_all_gather", 0.0, 600, name="ll_all_gather, ll", groups=ONE_NODE, protocol="ll"),
        example("ll_all_gather", 0.0, 600, name="ll_all_gather, simple", groups=ONE_NODE, protocol="simple"),
    ]


def _programs() -> list[Subject]:
    def program(module: str, name: str, tolerance: float, **facts: str) -> Subject:
        example = importlib.import_module(module)
        check = importlib.import_module(facts.pop("check", module)).check
        how = {key: getattr(example, value) for key, value in facts.items()}

        def run() -> float:
            ditron.init()
            return check(20, 16, 16, block=(16, 16, 16), **how)

        return Subject(module, run, tolerance, ONE_NODE, getattr(example, name))

    def library() -> Subject:
        """One whose kernels are a library's."""
        example = importlib.import_module("library_program")

        def run() -> float:
            ditron.init()
            return example.check()

        return Subject("library_program", run, 1e-6, ONE_NODE, example.gather_and_multiply)

    return [
        program("ag_gemm", "ag_gemm", 8e-3),
        program("ag_gemm_ring", "ag_gemm_ring", 8e-3, check="ag_gemm", multiply="ring_gemm"),
        program("gemm_rs_chunks", "gemm_rs", 1.5e-2, make="GemmReduceScatterChunks"),
        library(),
        *_after_passes(),
    ]


def _after_passes() -> list[Subject]:
    """Programs as the passes leave them: an all-gather that was decomposed, with streams assigned."""
    tests = importlib.import_module("test_pass_assign_streams")

    def program(name: str, variant: str) -> Subject:
        made = tests.PROGRAMS[name, variant]
        made.sample_args = lambda ranks: {"a": "f32[5]", "out": f"f32[{5 * ranks}]"}

        def run() -> float:
            return 0.0 if all(tests.run_rank(name, variant)) else 1.0

        return Subject(f"{name}, {variant}", run, 0.0, ONE_NODE, made)

    return [program("gather_and_scale", "two"), program("gather_and_scale", "ring"), program("scale_and_send", "two")]


def _clean_kernels() -> list[Subject]:
    kernels = importlib.import_module("test_clean_kernels")

    def clean(kernel: object, grid: int) -> Subject:
        def run() -> float:
            kernels.on_rank(kernel, grid)
            return 0.0

        return Subject(kernel.__name__, run, groups=((2, None),))

    return [clean(kernel, grid) for kernel, grid in kernels.KERNELS.items()]


def _patterns() -> list[Subject]:
    """Protocols that people write by hand: with fixed counts, and with tables, queues, resets and epochs."""
    modules = ("check_patterns", "data_patterns", "exchange_patterns", "reset_patterns")
    patterns = {
        name: pattern for module in modules for name, pattern in importlib.import_module(module).PATTERNS.items()
    }

    def pattern(name: str) -> Subject:
        def run() -> float:
            try:
                patterns[name].run("")
            except AssertionError:
                return 1.0
            return 0.0

        return Subject(name, run, groups=ONE_NODE)

    return [pattern(name) for name in patterns]
