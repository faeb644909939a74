"""infer-scope changes no result, and makes a scope that is too weak strong enough."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from pass_helpers import count, pipeline, run

import ditron
import ditron.language as dl

N = 16
SIGNATURE = {"box_ptr": "*fp32", "ready_ptr": "*i64", "out_ptr": "*fp32"}


@ditron.jit
def tell_right(box_ptr, ready_ptr, out_ptr, N: tl.constexpr):
    """Scope gpu, to and from another GPU."""
    right = (dl.rank() + 1) % dl.num_ranks()
    i = tl.arange(0, N)
    tl.store(dl.symm_at(box_ptr, right) + i, dl.rank() * 100.0 + i)
    dl.notify(ready_ptr, right, 1, scope="gpu")
    box = dl.consume_token(box_ptr, dl.wait(ready_ptr, 1, 1, scope="gpu"))
    tl.store(out_ptr + i, tl.load(box + i))


@ditron.jit
def tell_own(box_ptr, ready_ptr, out_ptr, N: tl.constexpr):
    """Program 0 to program 1 of the same rank, with the default scope."""
    i = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(box_ptr + i, dl.rank() * 100.0 + i)
        dl.notify(ready_ptr, dl.rank(), 1)
    else:
        box = dl.consume_token(box_ptr, dl.wait(ready_ptr, 1, 1))
        tl.store(out_ptr + i, tl.load(box + i))


def _main(kernel, programs):
    ditron.init()
    box, ready = ditron.symm_empty(N, dtype=torch.float32), ditron.symm_zeros(1, dtype=torch.int64)
    out = torch.empty(N)
    kernel[(programs,)](box, ready, out, N=N)
    return out.tolist()


@pytest.mark.filterwarnings("ignore:scope 'gpu'")
def test_too_weak_a_scope_is_widened():
    with pytest.raises(ditron.SimulationError), pipeline("as-written"):
        for seed in range(20):
            ditron.sim.run(lambda: _main(tell_right, 1), ranks=2, seed=seed)
    assert run("default", lambda: _main(tell_right, 1), ranks=3)[1] == [float(i) for i in range(N)]


def test_the_user_is_warned_at_the_line():
    with pytest.warns(UserWarning, match="scope 'gpu' of 'ditron.notify' is too narrow") as caught:
        ditron.compile(tell_right, signature=SIGNATURE, constexprs={"N": N}, stop_after="ditron", pipeline="default")
    warning = next(w for w in caught if "notify" in str(w.message))
    assert warning.filename == __file__
    assert 'dl.notify(ready_ptr, right, 1, scope="gpu")' in open(__file__).read().splitlines()[warning.lineno - 1]


def test_no_notify_is_narrowed_to_the_gpu():
    """A stream may wait for it, too."""

    def scopes(name):
        return count(tell_own, "scope gpu", name, signature=SIGNATURE, constexprs={"N": N})

    assert (scopes("as-written"), scopes("default")) == (0, 0)
    expected = run("as-written", lambda: _main(tell_own, 2), ranks=2)
    assert (
        run("default", lambda: _main(tell_own, 2), ranks=2)
        == expected
        == [[r * 100.0 + i for i in range(N)] for r in range(2)]
    )


@ditron.jit
def pull_left(box_ptr, ready_ptr, out_ptr, N: tl.constexpr):
    """Each rank tells itself that its box is full; the one on its right waits for that, and reads it there."""
    left = (dl.rank() + dl.num_ranks() - 1) % dl.num_ranks()
    i = tl.arange(0, N)
    tl.store(box_ptr + i, dl.rank() * 100.0 + i)
    dl.notify(ready_ptr, dl.rank(), 1)
    token = dl.wait(dl.symm_at(ready_ptr, left), 1, 1, scope="node")
    tl.store(out_ptr + i, tl.load(dl.consume_token(dl.symm_at(box_ptr, left), token) + i))


def test_what_another_rank_waits_for_is_not_narrowed():
    expected = run("as-written", lambda: _main(pull_left, 1), ranks=3)
    assert run("default", lambda: _main(pull_left, 1), ranks=3) == expected
    assert expected[1] == [float(i) for i in range(N)]
