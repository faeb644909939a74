"""The hook into stock Triton: a source whose ``make_ir`` also runs our passes.

``triton.compile`` asks its source for TTIR, then lowers it. :class:`DitronSource` returns TTIR in which the primitives
are already lowered, so Triton compiles it like any kernel; no global state is changed.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton.runtime.jit import JITFunction

from ditron_compiler import ir, knobs, pass_registry
from ditron_compiler import pipeline as pipelines
from ditron_compiler.frontend import handover
from ditron_compiler.frontend.codegen import CODEGEN_MARK
from ditron_compiler.frontend.diagnostics import locate_frontend_errors, raise_compile_errors
from ditron_compiler.frontend.libraries import device_libraries, select_libraries
from ditron_compiler.frontend.local_names import KnowsItsLocals
from ditron_compiler.frontend.targets import Target
from ditron_compiler.instrumentation import Instrumentation

__all__ = ["CONTEXT_ARGUMENT", "CONTEXT_TYPE", "DitronSource", "lower_to_llvm", "lower_to_triton", "make_mixed"]

# The hidden last parameter of every kernel: the group's context, see ditron/distributed/context.py.
CONTEXT_ARGUMENT = "__ditron_ctx"
CONTEXT_TYPE = "*i64"

# Called with a stage's name, its module (Triton's or ours) and the seconds it took.
Observer = Callable[[str, Any, float], None]


class _KernelView(KnowsItsLocals):
    """A JIT function as a kernel, with the hidden parameter; called as a helper, it has none."""

    def parse(self) -> ast.Module:
        tree = super().parse()
        args = tree.body[0].args
        hidden = ast.copy_location(ast.arg(CONTEXT_ARGUMENT), tree.body[0])
        if args.vararg or args.kwonlyargs:
            args.kwonlyargs.append(hidden)
            args.kw_defaults.append(None)
        else:
            args.args.append(hidden)
            if args.defaults:  # they belong to the last parameters
                args.defaults.append(ast.copy_location(ast.Constant(None), tree.body[0]))
        return tree


def kernel_view(fn: JITFunction) -> JITFunction:
    """``fn`` with the hidden parameter appended to its names and to its syntax tree."""
    fn.cache_key  # noqa: B018 - finds the globals that it depends on, which each launch compares
    view = copy.copy(fn)
    view.__class__ = _KernelView
    view.arg_names = [*fn.arg_names, CONTEXT_ARGUMENT]
    return view


class DitronSource(ASTSource):
    """An ``ASTSource`` for ``triton.compile`` that also runs our passes.

    Args:
        fn: a ``ditron.jit`` function. signature, constexprs, attrs: as for Triton's, the hidden parameter included.
        target: the machine and transport that the primitives are lowered to.
        pipeline: the name of the passes before that; default: the function's, or else that of ``DITRON_PIPELINE``.
        observer: called after each of our stages; None in the launch path.
        instrumentation: observes our passes.
    """

    def __init__(
        self,
        fn: JITFunction,
        signature: dict,
        constexprs: dict | None = None,
        attrs: dict | None = None,
        *,
        target: Target,
        pipeline: str | Iterable[str] | None = None,
        observer: Observer | None = None,
        instrumentation: Instrumentation | None = None,
    ):
        super().__init__(kernel_view(fn), signature, constexprs, attrs)
        self.target = target
        self.passes = pipelines.front(pipeline or getattr(fn, "pipeline", None) or knobs.pipeline.get())
        self.observer = observer or (lambda *_: None)
        self.instrumentation = instrumentation

    def hash(self) -> str:
        """Triton's hash, and what else the result depends on: our sources, passes, transport and libraries."""
        key = f"{super().hash()}-{compiler_key(self.target, self.passes)}"
        return hashlib.sha256(key.encode()).hexdigest()

    def make_mixed(self, target: Any, options: Any, codegen_fns: dict, module_map: dict, context: Any) -> ir.Module:
        """The kernel as a mixed module, of ``tt`` and ``ditron`` operations."""
        # Primitives look for the mark: a plain @triton.jit kernel that uses them gets an error.
        return make_mixed(
            super().make_ir,
            self.language,
            target,
            options,
            {**codegen_fns, CODEGEN_MARK: True},
            module_map,
            context,
            self.observer,
            self.instrumentation,
            self.passes,
        )

    def make_ir(self, target: Any, options: Any, codegen_fns: dict, module_map: dict, context: Any) -> Any:
        mixed = self.make_mixed(target, options, codegen_fns, module_map, context)
        return lower_to_triton(mixed, self.target, options, context, self.observer, self.instrumentation)


def make_mixed(
    make_ir: Callable[..., Any],
    language: Any,
    target: Any,
    options: Any,
    codegen_fns: dict,
    module_map: dict,
    context: Any,
    observer: Observer = lambda *_: None,
    instrumentation: Instrumentation | None = None,
    passes: pipelines.Pipeline = pipelines.FRONT,
) -> ir.Module:
    """Run ``make_ir`` of a Triton source and Triton's TTIR passes, hand the module over to our MLIR, run ``passes``."""
    start = time.perf_counter()
    with locate_frontend_errors():
        module = make_ir(target, options, codegen_fns, module_map, context)
    module = _triton_passes(module, target, options, language)
    observer("ttir", module, time.perf_counter() - start)
    start = time.perf_counter()
    with ir.Context() as our_context, raise_compile_errors():
        mixed = handover.from_triton(module, our_context)
        pipelines.run(mixed, passes, instrumentation)
    observer("ditron", mixed, time.perf_counter() - start)
    return mixed


def _triton_passes(module: Any, target: Any, options: Any, language: Any) -> Any:
    """Run Triton's own TTIR passes, which inline the helpers; Triton runs them again on what we give back."""
    stages: dict = {}
    make_backend(target).add_stages(stages, options, language)
    return stages["ttir"](module, {})


def lower_to_triton(
    mixed: ir.Module,
    target: Target,
    options: Any,
    context: Any,
    observer: Observer,
    instrumentation: Instrumentation | None = None,
) -> Any:
    """Lower a mixed module for a GPU and hand it to Triton's ``context``; ``options`` are the backend's."""
    start = time.perf_counter()
    with mixed.context, raise_compile_errors():
        passes = pipelines.lowering(target.backend, target.transport, target.arch, target.sanitize)
        pipelines.run(mixed, passes, instrumentation)
        select_libraries(mixed, target, options)
        lowered = handover.to_triton(mixed, context)
    observer("lowered", lowered, time.perf_counter() - start)
    return lowered


def lower_to_llvm(mixed: ir.Module, observer: Observer, instrumentation: Instrumentation | None = None) -> str:
    """Lower a mixed module for the simulator, to LLVM IR as text."""
    start = time.perf_counter()
    with mixed.context, raise_compile_errors():
        pipelines.run(mixed, pipelines.lowering("sim", "sim"), instrumentation)
        observer("lowered", mixed, time.perf_counter() - start)
        start = time.perf_counter()
        text = ir.translate_module_to_llvmir(mixed)
    observer("sim-llvm", text, time.perf_counter() - start)
    return text


@lru_cache
def compiler_key(target: Target, passes: pipelines.Pipeline = pipelines.FRONT) -> str:
    """A hash of everything but the kernel and Triton that its code depends on; ``passes`` come before the lowering to
    ``target``.

    It covers our Python files and those of other packages' passes, so that editing a pass invalidates cached kernels;
    of the native module, which is large, size and modification time.
    """
    passes += pipelines.lowering(target.backend, target.transport, target.arch, target.sanitize)
    digest = hashlib.sha256(repr((target, passes)).encode())
    for entry in passes:
        digest.update(pass_registry.source(entry.partition("{")[0]))
    package = Path(__file__).resolve().parent.parent
    for path in sorted([*package.rglob("*.py"), *(package.parent / "ditron" / "language").glob("*.py")]):
        digest.update(path.read_bytes())
    for path in package.glob("_core*"):
        status = path.stat()
        digest.update(repr((path.name, status.st_size, status.st_mtime_ns)).encode())
    for path in device_libraries(target).values():
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()
