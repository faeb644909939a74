"""Groups of torch, a ``ProcessGroup`` or a one-dimensional ``DeviceMesh``, as groups of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

from ditron.distributed import state
from ditron.distributed.group import Group, NonMember, require_group
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["AnyGroup", "as_group", "group_name", "group_named"]

#: What operators take as ``group``: a group of ours or of torch's, or its ``name``; None is the current group.
AnyGroup: TypeAlias = Union[Group, "ProcessGroup", "DeviceMesh", str, None]


def as_group(group: AnyGroup) -> Group:
    """The ditron group of the ranks of a ``ProcessGroup`` or a one-dimensional ``DeviceMesh``, after ``ditron.init()``.

    It is made when a process group is first given, and kept until :func:`ditron.finalize`. That is collective over the
    ranks of the process group, and over them alone: all of them must come to it, in the same order if they make
    several, and not first within the capture of a CUDA graph. A mesh of more dimensions is refused: name one, as in
    ``mesh["tp"]``. The ranks of the world give the world group. Other groups of ranks have symmetric memory of their
    own, as large as the world's. A group of ours is returned as it is, None gives the current one.

        group = ditron.as_group(init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))["tp"])
    """
    if group is None or isinstance(group, Group | NonMember):
        return require_group(group, "ditron.as_group()")
    if isinstance(group, str):
        return group_named(group)
    return require_group(state.world(), "ditron.as_group()").of_process_group(_process_group(group))


def _process_group(group: Any) -> Any:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.distributed_c10d import _resolve_process_group

    if isinstance(group, ProcessGroup):
        return _resolve_process_group(group.group_name)  # itself, where torch.compile shows a stand-in
    if not isinstance(group, DeviceMesh):
        raise DitronError(f"expected a ditron.Group, a ProcessGroup or a DeviceMesh, got {group!r}")
    if group.ndim != 1:
        raise DitronError(
            f"expected a DeviceMesh of one dimension, got {group}: name the dimension that operators work along, as in "
            'mesh["tp"]'
        )
    return group.get_group()


def group_named(name: str) -> Group:
    """This rank's group of that name, the current one for ``""``. Raises DitronError when there is none."""
    group = state.group_named(name)
    if group is None:
        if not name:
            return require_group(None, "an operator of torch.ops.ditron was called")
        raise DitronError(
            f"there is no group named {name!r}: the program that called ditron.new_group for these ranks must keep "
            "the group as long as operators use it, and ditron.finalize() ends them all"
        )
    return group


def group_name(group: AnyGroup) -> str:
    """The name of a group. ``torch.compile`` traces this, and compiles anew for a group of another name."""
    if isinstance(group, str):
        return group
    if group is None or isinstance(group, Group | NonMember):
        return require_group(group, "an operator was called").name
    return _name_of_torch_group(group)


def _name_of_torch_group(group: Any) -> str:
    return as_group(group).name


# A process group is a constant of a compiled function, and torch.compile calls this when it compiles.
_name_of_torch_group._dynamo_marked_constant = True  # type: ignore[attr-defined]
