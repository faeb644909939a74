"""Compile without launching: every stage from TTIR to machine code, and its compile time.

    program = ditron.compile(kernel, signature={"x_ptr": "*fp32", "n": "i32"}, constexprs={"BLOCK": 1024},
                             target="cuda:90", transport="p2p")
    print(program.asm["ditron"], program.asm["ptx"])

Needs no GPU. A launch runs the same stages, by the same code.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ditron_compiler import knobs
from ditron_compiler.errors import CompileError
from ditron_compiler.frontend.targets import Target, backend_of, parse_target
from ditron_compiler.instrumentation import Instrumentation

__all__ = ["STAGES", "CompiledProgram", "check_passes", "compile", "known_stages"]

# Stages in order, by backend. ttir: after Triton's own passes; ditron: the mixed module of tt and ditron operations;
# lowered: without ditron operations; the rest as in Triton. sim-llvm: LLVM IR that the simulator runs.
STAGES: dict[str, tuple[str, ...]] = {
    "cuda": ("ttir", "ditron", "lowered", "ttgir", "llir", "ptx", "cubin"),
    "hip": ("ttir", "ditron", "lowered", "ttgir", "llir", "amdgcn", "hsaco"),
    "sim": ("ttir", "ditron", "lowered", "sim-llvm"),
}


def known_stages() -> list[str]:
    """Every stage of every backend."""
    return list(dict.fromkeys(stage for stages in STAGES.values() for stage in stages))


@dataclass
class CompiledProgram:
    """A kernel, compiled.

    Attributes:
        name: of the kernel. target: backend, architecture and transport.
        asm: text (or bytes: cubin, hsaco) of each stage that was reached.
        seconds: compile time of each stage.
        missing: stage -> why it could not be reached.
        metadata: Triton's metadata of the compiled kernel: shared memory, warps ...
    """

    name: str
    target: Target
    asm: dict[str, str | bytes] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def save(self, directory: str | Path) -> list[Path]:
        """Write each stage to ``directory/NAME.STAGE``, and the metadata to ``NAME.json``."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        paths = []
        for stage, code in self.asm.items():
            path = directory / f"{self.name}.{'ll' if stage == 'sim-llvm' else stage}"
            path.write_bytes(code) if isinstance(code, bytes) else path.write_text(code)
            paths.append(path)
        about = {
            "name": self.name,
            "target": str(self.target),
            "transport": self.target.transport,
            "seconds": self.seconds,
            "missing": self.missing,
            "metadata": self.metadata,
        }
        path = directory / f"{self.name}.json"
        path.write_text(json.dumps(about, indent=1, default=str) + "\n")
        return [*paths, path]

    def table(self) -> str:
        """A line per stage: milliseconds and size of the result; or why it is missing."""
        lines = [f"{self.name} for {self.target}, transport {self.target.transport}"]
        for stage in STAGES[self.target.backend]:
            if stage in self.asm:
                lines.append(f"  {stage:9}{1e3 * self.seconds[stage]:9.1f} ms{len(self.asm[stage]):9} bytes")
            elif stage in self.missing:
                lines.append(f"  {stage:9}  not made: {self.missing[stage]}")
        return "\n".join(lines)


def compile(
    fn: Any,
    signature: Mapping[str, str] | None = None,
    constexprs: Mapping[str, Any] | None = None,
    target: str = "cuda:90",
    transport: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    pipeline: str | Iterable[str] | None = None,
    stop_after: str | None = None,
    instrumentation: Instrumentation | None = None,
    locations: bool = False,
    sanitize: bool | None = None,
) -> CompiledProgram:
    """Compile a kernel without launching it, and without a GPU.

    Args:
        fn: a ``ditron.jit`` function (autotuned or not), or the path of an MLIR file that holds a mixed module; of
            several kernels in it, ``FILE.mlir:KERNEL`` names one. A program in it says the options of its kernels.
        signature: type of each parameter that is no constant: ``"*bf16"`` for pointers, ``"i32"``, ``"fp32"`` ...; a
            suffix says that the value is divisible by 16 (``"i32:16"``) or not known to be (``"*bf16:1"``); pointers
            are assumed to be, as those of tensors are. Default: the function's ``example``.
        constexprs: value of each ``tl.constexpr`` parameter that has no default.
        target: ``"cuda:90"``, ``"hip:gfx942"``, ``"sim"`` ... transport: ``"p2p"`` (default), ``"nvshmem"``,
            ``"rocshmem"``.
        options: Triton's ``num_warps``, ``num_stages`` ...
        pipeline: name of the passes between raising and lowering (docs/passes.md). Default: what the kernel was
            decorated with, or else the environment variable ``DITRON_PIPELINE``, or else ``"default"``.
        stop_after: the last stage, see :data:`STAGES`. Unless that is the machine code, SHMEM's own device library is
            not linked, and its calls remain in ``llir`` and ``ptx``.
        instrumentation: observes our passes: the module after each, their times, their statistics.
        locations: keep source locations in the text of the stages.
        sanitize: compile with the GPU sanitizer (docs/sanitizer.md). Default: the environment variable
            ``DITRON_SANITIZE``.

    Raises ValueError for an unknown target, transport, pipeline, stage, option or parameter; triton's CompilationError
    or ditron.CompileError, pointing at the Python line, when the kernel is wrong.
    """
    compiled_for = parse_target(target, transport, bool(knobs.sanitize.get() if sanitize is None else sanitize))
    stages = STAGES[compiled_for.backend]
    if stop_after is not None and stop_after not in stages:
        raise ValueError(f"unknown stage {stop_after!r} for target {target!r}: expected one of {', '.join(stages)}")
    wanted = stages[: stages.index(stop_after) + 1] if stop_after else stages
    instrumentation = instrumentation or Instrumentation()
    chosen = pipeline or _pipeline_of(fn)
    check_passes(compiled_for, instrumentation.print_after, chosen)
    run = _Compilation(compiled_for, chosen, wanted, instrumentation, locations)
    if isinstance(fn, (str, Path)):
        # The kernels of a program went through the pipeline of their decorators when it was traced.
        return run.file(str(fn), dict(options or {}), of_program=pipeline or "as-written")
    return run.function(fn, signature, constexprs, options)


def _pipeline_of(fn: Any) -> str:
    """The pipeline of a kernel when none is given."""
    from ditron_compiler.frontend.signature import unwrap

    own = None if isinstance(fn, (str, Path)) else getattr(unwrap(fn), "pipeline", None)
    return own or knobs.pipeline.get()


def check_passes(target: Target, names: Iterable[str], pipeline: str | Iterable[str] = "default") -> None:
    """Raise ValueError, listing the passes that run for the target, unless ``names`` are among them (or "all")."""
    from ditron_compiler.pipeline import TTGIR, front, lowering

    passes = front(pipeline) + lowering(target.backend, target.transport, target.arch, target.sanitize)
    passes += TTGIR if target.backend == "cuda" else ()
    known = list(dict.fromkeys(entry.partition("{")[0] for entry in passes))
    for name in names:
        if name not in known and name != "all":
            raise ValueError(
                f"no pass {name!r} runs for target {str(target)!r}: expected one of {', '.join(known)}, or all"
            )


class _Compilation:
    """One call of :func:`compile`: collects the stages in ``program``."""

    def __init__(
        self,
        target: Target,
        pipeline: str | Iterable[str],
        wanted: tuple[str, ...],
        instrumentation: Instrumentation,
        locations: bool,
    ):
        self.target, self.pipeline, self.wanted = target, pipeline, wanted
        self.instrumentation, self.locations = instrumentation, locations
        self.program = CompiledProgram("", target)

    def function(self, fn: Any, signature: Any, constexprs: Any, options: Any) -> CompiledProgram:
        from ditron_compiler.frontend.signature import specialize
        from ditron_compiler.frontend.source import DitronSource

        kernel, signature, constants, attrs, options = specialize(fn, signature, constexprs, options)
        self.program.name = kernel.__name__
        self._set_up(options)
        source = DitronSource(
            kernel,
            signature,
            constants,
            attrs,
            target=self.target,
            pipeline=self.pipeline,
            observer=self.observe,
            instrumentation=self.instrumentation,
        )
        codegen, modules = self.backend.get_codegen_implementation(self.options), self.backend.get_module_map()
        mixed = source.make_mixed(self.gpu, self.options, codegen, modules, self.context)
        return self.lower(mixed)

    def file(self, spelled: str, options: dict, of_program: str | Iterable[str]) -> CompiledProgram:
        """A kernel of an MLIR file; ``of_program``: the pipeline when the file holds a host program."""
        from ditron_compiler import ir, pipeline
        from ditron_compiler.frontend.diagnostics import raise_compile_errors
        from ditron_compiler.ir.kernels import keep_kernel, kernels_of, take_programs

        file, _, kernel = spelled.rpartition(":") if not Path(spelled).is_file() else (spelled, "", "")
        path = Path(file or spelled)
        start = time.perf_counter()
        with ir.Context() as context, raise_compile_errors():
            mixed = ir.Module.parse(path.read_text(), context, source_name=str(path))
            if (launched := take_programs(mixed)) is not None:
                self.pipeline = of_program
                if not kernel and len(launched) == 1:
                    (kernel,) = launched
                options = launched.get(kernel, {}) | options
            self.program.name = kernel or path.stem
            self._set_up(options)
            if kernel:
                keep_kernel(mixed, kernel)
            elif len(kernels := kernels_of(mixed)) > 1 and self.wanted[-1] not in ("ditron", "lowered"):
                raise ValueError(
                    f"expected one kernel for stage {self.wanted[-1]!r}, got {len(kernels)} in {path}: "
                    f"give {path}:KERNEL, one of {', '.join(kernels)}"
                )
            pipeline.run(mixed, pipeline.front(self.pipeline), self.instrumentation)
        self.observe("ditron", mixed, time.perf_counter() - start)
        return self.lower(mixed)

    def _check_options(self, options: dict) -> None:
        """Raise ValueError for an option that Triton's backend does not have."""
        known = sorted({f.name for f in fields(self.backend.parse_options({}))} - {"arch", "backend_name"})
        for name in options:
            if name not in known:
                raise ValueError(
                    f"unknown option {name!r} for target {str(self.target)!r}: expected one of {', '.join(known)}"
                )

    def _set_up(self, options: dict) -> None:
        """Make Triton's backend, its options, and a context with its dialects."""
        from triton._C.libtriton import ir as triton_ir

        from ditron_compiler.frontend.libraries import device_libraries

        self.gpu = self.target.gpu_target()
        self.backend = backend_of(self.target)
        # SHMEM's own library is linked for machine code only; in earlier stages its calls stay visible.
        shmem = self.wanted[-1] in ("cubin", "hsaco")
        self._check_options(options)
        options["extern_libs"] = dict(options.get("extern_libs") or {}) | device_libraries(self.target, shmem=shmem)
        try:
            self.options = self.backend.parse_options(options)
        except (AssertionError, TypeError) as error:  # a value that the backend rejects
            raise ValueError(f"options for target {str(self.target)!r}: {error}") from error
        self.context = triton_ir.context()
        triton_ir.load_dialects(self.context)
        self.backend.load_dialects(self.context)

    def lower(self, mixed: Any) -> CompiledProgram:
        """Compile the mixed module."""
        if "lowered" not in self.wanted:
            return self.program
        if self.target.is_sim:
            self._to_simulator(mixed)
        else:
            self._to_gpu(mixed)
        return self.program

    def _to_simulator(self, mixed: Any) -> None:
        from ditron_compiler.frontend.source import lower_to_llvm

        lower_to_llvm(mixed, self.observe, self.instrumentation)

    def _to_gpu(self, mixed: Any) -> None:
        from triton.backends.compiler import Language

        from ditron_compiler.frontend.libraries import missing_libraries
        from ditron_compiler.frontend.source import lower_to_triton
        from ditron_compiler.frontend.stages import add_passes

        module = lower_to_triton(mixed, self.target, self.options, self.context, self.observe, self.instrumentation)
        metadata: dict[str, Any] = {"target": self.gpu, **self.options.__dict__}
        stages: dict[str, Callable] = {}
        self.backend.add_stages(stages, self.options, Language.TRITON)
        if self.target.backend == "cuda":
            add_passes(stages, self.options, int(self.target.arch), self.instrumentation)
        for stage, lower in stages.items():
            if stage != "ttir" and stage not in self.wanted:
                break
            unresolved = missing_libraries(self.target) if stage in ("cubin", "hsaco") else None
            if unresolved:
                self.program.missing[stage] = unresolved
                break
            start = time.perf_counter()
            try:
                module = lower(module, metadata)
            except RuntimeError as error:  # Triton has printed why
                raise CompileError(f"Triton failed to make stage {stage!r} of {self.program.name}: {error}") from error
            if stage != "ttir":  # there it is Triton's passes run again over our result
                self.observe(stage, module, time.perf_counter() - start)
        self.program.metadata = {key: value for key, value in metadata.items() if _is_plain(value)}

    def observe(self, stage: str, module: Any, seconds: float) -> None:
        """Keep the text of a stage."""
        self.program.seconds[stage] = self.program.seconds.get(stage, 0.0) + seconds
        if stage not in self.wanted or module is None:
            return
        self.program.asm[stage] = self._text(module)

    def _text(self, module: Any) -> str | bytes:
        if isinstance(module, (str, bytes)):
            return module
        if hasattr(module, "str_nodebug"):
            return str(module) if self.locations else module.str_nodebug()
        return module.operation.get_asm(enable_debug_info=self.locations)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, tuple, dict))
