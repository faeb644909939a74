"""``@ditron.jit``: ``triton.jit`` for kernels that communicate.

    @ditron.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr): ...

    kernel[grid](x, n, BLOCK=1024)                # in the current group
    kernel[grid](x, n, BLOCK=1024, group=group)   # in another one

The same launch runs on this rank's GPU or, when the group is a simulated one, on the simulator. A ``ditron.jit``
function may also be called from a kernel, as a helper, like a ``triton.jit`` one.

Everything is local to the decorated function, ``triton.jit`` kernels are compiled as ever: a Triton hook is set only
while one of ours is compiled, and is for that thread.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import triton
from triton import knobs
from triton.compiler import CompiledKernel
from triton.compiler.compiler import make_backend
from triton.runtime.driver import driver
from triton.runtime.jit import KernelParam, create_function_from_signature

from ditron._jit.scratch import with_scratch
from ditron._jit.tracing import active
from ditron.distributed.group import require_group
from ditron.distributed.packets import guarded
from ditron_compiler.analysis.packet_layout import PacketArgument
from ditron_compiler.errors import CompileError, DitronError
from ditron_compiler.frontend.libraries import device_libraries
from ditron_compiler.frontend.local_names import KnowsItsLocals
from ditron_compiler.frontend.source import CONTEXT_ARGUMENT, CONTEXT_TYPE, DitronSource
from ditron_compiler.frontend.stages import passes_on_ttgir
from ditron_compiler.frontend.targets import Target
from ditron_compiler.pipeline import front

__all__ = ["DitronJITFunction", "jit", "attach_group"]


class DitronJITFunction(KnowsItsLocals):
    """What :func:`jit` returns: a Triton JIT function with one more, hidden parameter when it is a kernel."""

    def __init__(
        self,
        fn: Callable,
        *,
        example: dict | None = None,
        pipeline: str | tuple[str, ...] | None = None,
        **options: Any,
    ):
        try:
            super().__init__(fn, **options)
        except (ValueError, OSError, TypeError) as error:
            if not isinstance(error, OSError) and not isinstance(error.__cause__, OSError):
                raise
            raise DitronError(
                f"@ditron.jit needs the source of {fn.__qualname__!r}, which cannot be read: define it "
                "in a Python file (not by exec, nor at an interactive prompt)"
            ) from error
        self.example, self.pipeline = example, pipeline
        hidden = inspect.Parameter(
            CONTEXT_ARGUMENT, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=CONTEXT_TYPE
        )
        # Launching and compiling see the hidden parameter; self.signature and self.arg_names, by which helpers are
        # called, do not.
        self.params.append(KernelParam(len(self.params), hidden, True, True))
        self.launch_signature = self.signature.replace(parameters=[*self.signature.parameters.values(), hidden])
        self._transport = ""
        self._sanitize = False
        # The group of the latest launch (not kept alive by it) and where its context lies.
        self._latest_group: Callable[[], Any] = lambda: None
        self._context = 0
        self._caches_by_mode: dict[tuple[str, bool], Any] = {}
        self.simulated = None  # state of ditron.sim.launch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """An error: a kernel is launched on a grid. (Calls in a kernel are compiled, and do not come here.)"""
        name = self.__name__
        message = f"kernel {name!r} is called without a grid: write {name}[grid](...), where grid is 1 to 3 numbers"
        if (trace := active()) is not None:
            trace.fail(message)
        raise DitronError(message)

    def run(self, *args: Any, grid: Any, warmup: bool, group: Any = None, **kwargs: Any) -> Any:
        """Launch in ``group``, or the current one; the other arguments are the kernel's and Triton's options.

        While a program is traced, the launch becomes an operation of the program instead.
        """
        if (trace := active()) is not None:
            return trace.record_launch(self, grid, args, kwargs)
        if not group:
            group = require_group(group, f"kernel {self.__name__!r} was launched")
        return group.launch(self, grid, args, kwargs, warmup)

    def launch_on_gpu(self, group: Any, grid: Any, args: tuple, kwargs: dict, warmup: bool) -> CompiledKernel:
        """Launch on this rank's GPU in ``group``, by Triton's own launcher."""
        if group is not self._latest_group():
            self._enter(group)
        kwargs[CONTEXT_ARGUMENT] = self._context
        return super().run(*args, grid=grid, warmup=warmup, **kwargs)

    def _enter(self, group: Any) -> None:
        """Switch to another group: seldom, so that a launch costs one comparison."""
        if (group.transport, bool(group.sanitize)) != (self._transport, self._sanitize):
            self._use_transport(group.transport, bool(group.sanitize))
        # An address is quicker to pass than a tensor, whose address the launcher asks the driver about.
        self._context = group.context.data_ptr()
        self._latest_group = weakref.ref(group)

    def _use_transport(self, transport: str, sanitize: bool = False) -> None:
        """Kernels are compiled for a transport, with the sanitizer or without; each has caches of its own."""
        if self._transport:
            self._caches_by_mode[self._transport, self._sanitize] = self.device_caches  # type: ignore[has-type]
        fresh = type(self.device_caches)(self.create_binder)  # type: ignore[has-type]
        self.device_caches = self._caches_by_mode.get((transport, sanitize), fresh)
        self._transport, self._sanitize = transport, sanitize

    def create_binder(self) -> tuple:
        gpu = driver.active.get_current_target()
        backend = make_backend(gpu)
        target = Target(gpu.backend, gpu.arch, self._transport, self._sanitize)
        self.CompiledKernel = CompiledKernel
        self.compile = partial(self._compile_for, target)
        self.ASTSource = partial(DitronSource, target=target)
        binder = create_function_from_signature(self.launch_signature, self.params, backend)
        return {}, {}, gpu, backend, binder

    def _compile_for(
        self, ditron_target: Target, src: DitronSource, target: Any = None, options: dict | None = None, **kwargs: Any
    ) -> CompiledKernel:
        """``triton.compile`` with the transport's device libraries linked."""
        options = dict(options or {})
        options["extern_libs"] = dict(options.get("extern_libs") or {}) | device_libraries(ditron_target)
        with passes_on_ttgir():
            compiled = triton.compile(src, target=target, options=options, **kwargs)
        return attach_group(compiled, lambda: self._latest_group())

    def __repr__(self) -> str:
        return f"DitronJITFunction({self.module}:{self.fn.__qualname__})"


class _GroupKernel(CompiledKernel):
    """A compiled kernel that notifies its group when the driver has loaded its code (NVSHMEM initialises modules)."""

    group: Callable[[], Any]

    def _init_handles(self) -> None:
        if self.module is None:
            super()._init_handles()
            group = self.group()
            group.on_module_loaded(self)
            if getattr(self.metadata, "global_scratch_size", 0):
                self._run = with_scratch(self._run, self.group)  # type: ignore[has-type]
            if packets := PacketArgument.all_in(self.asm["source"]):
                self._run = guarded(self._run, packets, self.group, self.name, self.src)  # type: ignore[has-type]


def attach_group(kernel: CompiledKernel, group: Callable[[], Any]) -> CompiledKernel:
    """Let a compiled kernel notify the group ``group()`` when its code is loaded."""
    kernel.__class__, kernel.group = _GroupKernel, group
    return kernel


def jit(
    fn: Callable | None = None,
    *,
    version: Any = None,
    repr: Callable | None = None,
    launch_metadata: Callable | None = None,
    do_not_specialize: Iterable[int | str] | None = None,
    do_not_specialize_on_alignment: Iterable[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
    example: dict | None = None,
    pipeline: str | Iterable[str] | None = None,
) -> Any:
    """Make a kernel (or a helper of kernels) of a Python function: ``triton.jit``, and ``ditron.language`` in it.

    Takes what ``triton.jit`` takes, and works under ``triton.heuristics`` and :func:`autotune`.

    Args:
        example: how ``ditron compile`` and ``ditron dump`` specialize it when they are not told: a dict with
            ``signature`` (parameter -> type as ``"*bf16"`` or ``"i32"``), ``constexprs`` and ``options``.
        pipeline: name of the passes that it is compiled by (docs/passes.md): ``"default"``, ``"swizzled"``,
            ``"as-written"``, ``"low-latency"``, ``"pcie"``; or a tuple of passes, of which some may be your own.
            Default: the environment variable ``DITRON_PIPELINE``, or else ``"default"``. A helper has that of the
            kernel it is called from.

    Raises CompileError for an unknown pipeline, DitronError when the function's source cannot be read.
    """
    if pipeline is not None and not isinstance(pipeline, str):
        pipeline = tuple(pipeline)

    def decorate(function: Callable) -> DitronJITFunction:
        if pipeline is not None:
            try:
                front(pipeline)
            except (ValueError, TypeError) as error:
                code = function.__code__
                raise CompileError(
                    f"kernel {function.__name__!r}: {error}", code.co_filename, code.co_firstlineno, 1
                ) from None
        if knobs.runtime.interpret:
            raise DitronError(
                "@ditron.jit does not run under Triton's interpreter: unset TRITON_INTERPRET and run on "
                "DITRON's simulator instead (ditron run --sim 4 SCRIPT)"
            )
        return DitronJITFunction(
            function,
            example=example,
            pipeline=pipeline,
            version=version,
            repr=repr,
            launch_metadata=launch_metadata,
            do_not_specialize=do_not_specialize,
            do_not_specialize_on_alignment=do_not_specialize_on_alignment,
            debug=debug,
            noinline=noinline,
        )

    return decorate if fn is None else decorate(fn)
