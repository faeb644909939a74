"""Who a program runs as, and where its peers' memory is."""

from __future__ import annotations

from triton.language import core as tl

from ditron.language._core import attributes, emit, enum, integers, pointer, primitive

__all__ = ["local_rank", "multicast_ptr", "node", "num_local_ranks", "num_ranks", "rank", "symm_at"]


@primitive
def rank(team="group", _semantic=None):
    """This rank's number in a team, as an int32 scalar.

    Args:
        team: ``"group"`` (the group the kernel was launched in), ``"node"`` (those of the group on this node) or
            ``"world"`` (all ranks).

    OpenSHMEM: ``shmem_my_pe`` / ``shmem_team_my_pe``.

        right = (dl.rank() + 1) % dl.num_ranks()
    """
    return emit("rank", [], tl.int32, _semantic, attributes(team=enum("rank", team, "team")), pure=True)


@primitive
def num_ranks(team="group", _semantic=None):
    """How many ranks a team has, as an int32 scalar. ``team`` as in :func:`rank`.

    OpenSHMEM: ``shmem_n_pes`` / ``shmem_team_n_pes``.
    """
    return emit("num_ranks", [], tl.int32, _semantic, attributes(team=enum("num_ranks", team, "team")), pure=True)


@primitive
def local_rank(_semantic=None):
    """This rank's number among the ranks of its group on its node, as an int32 scalar."""
    return emit("local_rank", [], tl.int32, _semantic, pure=True)


@primitive
def num_local_ranks(_semantic=None):
    """How many ranks of this group run on this node, as an int32 scalar."""
    return emit("num_local_ranks", [], tl.int32, _semantic, pure=True)


@primitive
def node(_semantic=None):
    """The number of this rank's node, as an int32 scalar."""
    return emit("node", [], tl.int32, _semantic, pure=True)


@primitive
def symm_at(ptr, rank, _semantic=None):
    """The address at which ``rank`` holds what ``ptr`` is here: loads and stores through it go over the links.

    Args:
        ptr: pointer into a symmetric tensor, or a tensor of such pointers.
        rank: rank in the group (int scalar), or a tensor of ranks: both are broadcast against each other, and each
            pointer is translated to the rank beside it. Every rank is in ``[0, num_ranks)``, also where a mask will
            turn the access off: take ``ranks % dl.num_ranks()``.

    Returns a pointer of the same type, or a tensor of them; null when that rank is on another node: use :func:`putmem`
    and :func:`getmem` there. OpenSHMEM: ``shmem_ptr``.

        tl.store(dl.symm_at(inbox_ptr, right) + offsets, x)
        rows = dl.symm_at(inbox_ptr + offsets[None, :], ranks[:, None])  # one row from each rank
    """
    pointer("symm_at", ptr, "ptr", tensors=True)
    rank = integers("symm_at", rank, "rank", tl.int32, _semantic)
    if rank.type.is_block():
        ptr, rank = _semantic.broadcast_impl_value(ptr, rank)
    return emit("symm_at", [ptr, rank], ptr.type, _semantic, pure=True)


@primitive
def multicast_ptr(ptr, team="group", _semantic=None):
    """The multicast address of a symmetric object: a store through it goes to every rank of the team (NVLink Sharp).

    Args:
        ptr: pointer into a symmetric tensor, or a tensor of such pointers. team: as in :func:`rank`.

    Returns a pointer of the same type, for the ``multimem_*`` functions only; null where the team has no multicast.
    """
    pointer("multicast_ptr", ptr, "ptr", tensors=True)
    return emit(
        "multicast_ptr", [ptr], ptr.type, _semantic, attributes(team=enum("multicast_ptr", team, "team")), pure=True
    )
