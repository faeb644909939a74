"""Who can move bytes between ranks: a row for each communication intrinsic, with what it needs and what it costs.

As AMOS matches expressions with what compute intrinsics do: a transfer is described, the rows whose predicate holds are
ordered by cost, and the others say why not. All ranks are taken to transfer as much at the same time.

What operators run is chosen by measurements (``ditron/kernels/schedules.py``), with which docs/results/intrinsics.md
compares the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ditron.machines import Machine
from ditron_compiler.errors import DitronError

__all__ = ["INTRINSICS", "Intrinsic", "Match", "Transfer", "link_rate", "match"]

_ITEMSIZE = {"int8": 1, "fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4, "int32": 4, "int64": 8, "fp64": 8}
_LINE, _PAYLOAD = 128, 120  # bytes of an LL128 line, and those of the message in it


@dataclass(frozen=True)
class Transfer:
    """What is to be moved: by every rank ``nbytes`` to each of ``peers`` others, who learn that they are there.

    Attributes:
        reduce: ``"add"``: to be added to what is there; None: stored. dtype: of the elements.
        alignment: in bytes, of the addresses and of ``nbytes``. crosses_nodes: whether a peer is on another node.
        captured: whether the program is a CUDA graph. sms: that may be used; None: all.
        unpacked: whether the receiver has to move it out of a workspace.
    """

    nbytes: int
    peers: int = 1
    reduce: str | None = None
    dtype: str = "bf16"
    alignment: int = 16
    crosses_nodes: bool = False
    captured: bool = False
    sms: int | None = None
    unpacked: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in _ITEMSIZE:
            raise DitronError(f"unknown dtype {self.dtype!r}: expected one of {', '.join(_ITEMSIZE)}")
        if self.reduce not in (None, "add"):
            raise DitronError(f"reduce must be 'add' or None, got {self.reduce!r}")
        for name in ("nbytes", "peers", "alignment", *(() if self.sms is None else ("sms",))):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise DitronError(f"{name} must be an integer from 1 on, got {value!r}")
        if self.alignment % self.itemsize or self.nbytes % self.itemsize:
            raise DitronError(f"{self.dtype} of {self.nbytes} bytes cannot be aligned to {self.alignment} bytes")

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class Intrinsic:
    """A way to move bytes.

    Attributes:
        name: in tables. spelled: how kernels and host programs say it.
        refusal: why it cannot do a transfer on a machine, empty: it can. us: how long it takes.
    """

    name: str
    spelled: str
    refusal: Callable[[Transfer, Machine], str]
    us: Callable[[Transfer, Machine], float]


@dataclass(frozen=True)
class Match:
    """An intrinsic for a transfer: how long it takes, or why it is refused (then ``us`` is None)."""

    intrinsic: Intrinsic
    us: float | None
    refused: str = ""

    def __str__(self) -> str:
        return f"{self.intrinsic.name:12} " + (f"refused: {self.refused}" if self.us is None else f"{self.us:.1f} us")


def match(transfer: Transfer, machine: Machine) -> list[Match]:
    """All intrinsics for a transfer: those that can do it, the fastest first, then those that cannot, each with why.

    Raises DitronError for more peers than the machine has.

        for found in cost_model.match(cost_model.Transfer(8 << 20, peers=7), machines.load("h800x8")):
            print(found)
    """
    limit = machine.size if transfer.crosses_nodes else machine.ranks
    if transfer.peers >= limit:
        where = "the machine" if transfer.crosses_nodes else "a node of the machine"
        raise DitronError(
            f"{where} {machine.name} has {limit} ranks, of which a rank has {limit - 1} peers, not {transfer.peers}"
        )
    can, cannot = [], []
    for intrinsic in INTRINSICS:
        if refused := intrinsic.refusal(transfer, machine):
            cannot.append(Match(intrinsic, None, refused))
        else:
            can.append(Match(intrinsic, intrinsic.us(transfer, machine)))
    return sorted(can, key=lambda one: one.us or 0.0) + cannot


def _has(machine: Machine, name: str) -> bool:
    return name in machine.numbers and machine[name] > 0


def _first(*reasons: tuple[bool, str]) -> str:
    """The first reason that holds."""
    return next((why for holds, why in reasons if holds), "")


def _seconds(nbytes: float, rate: float) -> float:
    """us of bytes at GB/s."""
    return nbytes / (rate * 1e3)


def link_rate(peers: int, machine: Machine) -> float:
    """GB/s out of a GPU to so many others of its node."""
    pair = machine["link.pair"] if "link.pair" in machine.numbers else machine["link.rate"]
    return min(machine["link.rate"], peers * pair)


def _sms(transfer: Transfer, machine: Machine) -> float:
    return min(transfer.sms or machine["sm.count"], machine["sm.count"])


def _stored(transfer: Transfer, machine: Machine, per_sm: float, factor: float = 1.0) -> float:
    """us of stores of ``factor`` times the bytes by SMs, which narrow ones slow down."""
    width = min(transfer.alignment, 16) / 16
    rate = min(
        link_rate(transfer.peers, machine) * machine["link.store_share"], _sms(transfer, machine) * per_sm * width
    )
    return _seconds(factor * transfer.nbytes * transfer.peers, rate)


def _signalled(machine: Machine) -> float:
    return machine["latency.launch"] + machine["latency.fence"] + machine["latency.peer"]


_NODE = "stores reach the ranks of a node: a peer is on another"
_NO_SUM = "it stores and cannot add: the receiver would have to"


def _copy_engine_refusal(transfer: Transfer, machine: Machine) -> str:
    return _first(
        (transfer.crosses_nodes, "copy engines reach the ranks of a node: a peer is on another"),
        (transfer.reduce is not None, _NO_SUM),
    )


def _copy_engine_us(transfer: Transfer, machine: Machine) -> float:
    """One copy after the other on a stream, then a signal; a kernel copies what has to leave a workspace."""
    setup, least = machine["copy_engine.setup"], machine["copy_engine.least"]
    if transfer.captured:
        setup = machine["copy_engine.setup_in_graph"]
        least = min(setup, least)
    nbytes = transfer.nbytes * transfer.peers
    copies = transfer.peers * max(
        least, setup + _seconds(transfer.nbytes, link_rate(1, machine) * machine["copy_engine.share"])
    )
    unpack = machine["latency.launch"] + _seconds(2 * nbytes, machine["hbm.rate"]) if transfer.unpacked else 0.0
    return copies + machine["latency.stream"] + machine["latency.peer"] + unpack


def _stores_refusal(transfer: Transfer, machine: Machine) -> str:
    return _first((transfer.crosses_nodes, _NODE), (transfer.reduce is not None, _NO_SUM))


def _stores_us(transfer: Transfer, machine: Machine) -> float:
    return _signalled(machine) + _stored(transfer, machine, machine["link.store_per_sm"])


def _tma_refusal(transfer: Transfer, machine: Machine) -> str:
    return _first(
        (transfer.crosses_nodes, _NODE),
        (not _has(machine, "tma.store_per_sm"), f"{machine.name} has no TMA (tma.store_per_sm)"),
        (transfer.alignment < 16, f"TMA needs 16 bytes of alignment, and there are {transfer.alignment}"),
    )


def _tma_store_refusal(transfer: Transfer, machine: Machine) -> str:
    return _tma_refusal(transfer, machine) or _first((transfer.reduce is not None, _NO_SUM))


def _tma_store_us(transfer: Transfer, machine: Machine) -> float:
    return _signalled(machine) + _stored(transfer, machine, machine["tma.store_per_sm"])


def _tma_reduce_refusal(transfer: Transfer, machine: Machine) -> str:
    return _tma_refusal(transfer, machine) or _first(
        (transfer.reduce is None, "it adds, and what is there is to be replaced"),
        (transfer.peers > 1, "adds of several GPUs to the same elements need not be atomic: add of one rank at a time"),
        (transfer.dtype not in ("bf16", "fp16", "fp32", "int32", "int64"), f"TMA does not add {transfer.dtype}"),
    )


def _tma_reduce_us(transfer: Transfer, machine: Machine) -> float:
    share = machine["tma.reduce_share"]
    return _signalled(machine) + _stored(transfer, machine, machine["tma.store_per_sm"]) / share


def _packets_refusal(transfer: Transfer, machine: Machine) -> str:
    return _first((transfer.crosses_nodes, _NODE), (transfer.reduce is not None, _NO_SUM))


def _ll_us(transfer: Transfer, machine: Machine) -> float:
    """Half of the bytes are flags: no fence, and no signal."""
    sent = _stored(transfer, machine, machine["link.store_per_sm"], 2.0)
    return machine["latency.launch"] + machine["latency.peer"] + sent


def _data_words_refusal(transfer: Transfer, machine: Machine) -> str:
    return _packets_refusal(transfer, machine) or _first(
        (transfer.dtype not in ("bf16", "fp16", "fp32"), f"a word of {transfer.dtype} may be 0, as one not there is"),
    )


def _data_words_us(transfer: Transfer, machine: Machine) -> float:
    """No flags, no fence, and no signal."""
    sent = _stored(transfer, machine, machine["link.store_per_sm"])
    return machine["latency.launch"] + machine["latency.peer"] + sent


def _ll128_refusal(transfer: Transfer, machine: Machine) -> str:
    return _packets_refusal(transfer, machine) or _first(
        (
            not _has(machine, "packets.ll128_per_sm"),
            f"the links of {machine.name} do not keep lines of 128 bytes whole (packets.ll128_per_sm)",
        ),
    )


def _ll128_us(transfer: Transfer, machine: Machine) -> float:
    line = _LINE / _PAYLOAD
    sent = _stored(transfer, machine, machine["packets.ll128_per_sm"] * line, line)
    return machine["latency.launch"] + machine["latency.peer"] + machine["packets.ll128_latency"] + sent


def _multimem_refusal(transfer: Transfer, machine: Machine) -> str:
    return _first(
        (transfer.crosses_nodes, _NODE),
        (not _has(machine, "multimem.rate"), f"{machine.name} has no multicast (multimem.rate)"),
        (transfer.peers != machine.ranks - 1, f"multicast reaches all {machine.ranks} ranks of a node"),
        (
            transfer.dtype not in ("bf16", "fp16", "fp32") and transfer.reduce is not None,
            f"the switch does not add {transfer.dtype}",
        ),
        (transfer.alignment < 4, f"multimem needs 4 bytes of alignment, and there are {transfer.alignment}"),
    )


def _multimem_us(transfer: Transfer, machine: Machine) -> float:
    """An SM stores once, the switch to everybody: every rank still gets what all the others have stored."""
    out = _seconds(transfer.nbytes, _sms(transfer, machine) * machine["link.store_per_sm"])
    return _signalled(machine) + max(out, _seconds(transfer.nbytes * transfer.peers, machine["multimem.rate"]))


def _nic_refusal(transfer: Transfer, machine: Machine) -> str:
    return _first(
        (not transfer.crosses_nodes, "within a node a put is stores: no NIC takes part"),
        (not _has(machine, "nic.rate"), f"{machine.name} has no NICs (nic.rate)"),
        (transfer.reduce is not None, _NO_SUM),
    )


def _nic_us(transfer: Transfer, machine: Machine) -> float:
    posts = transfer.peers * machine["nic.post"]
    nbytes = transfer.nbytes * transfer.peers
    return machine["latency.launch"] + posts + machine["nic.latency"] + _seconds(nbytes, machine["nic.rate"])


#: One row for each: a new way to move bytes is a row here.
INTRINSICS = (
    Intrinsic("copy engine", "dh.rank_copy, dh.signal_write", _copy_engine_refusal, _copy_engine_us),
    Intrinsic("stores", "tl.store to dl.symm_at, dl.notify", _stores_refusal, _stores_us),
    Intrinsic("TMA", "descriptor.store over dl.symm_at, dl.notify", _tma_store_refusal, _tma_store_us),
    Intrinsic("TMA reduce", "descriptor.atomic_add over dl.symm_at, dl.notify", _tma_reduce_refusal, _tma_reduce_us),
    Intrinsic("LL", 'dl.ll_put(protocol="ll")', _packets_refusal, _ll_us),
    Intrinsic("LL128", 'dl.ll_put(protocol="ll128")', _ll128_refusal, _ll128_us),
    Intrinsic("data words", "dl.st to dl.symm_at, dl.ld until it is not 0", _data_words_refusal, _data_words_us),
    Intrinsic("multimem", "dl.multimem_st or dl.multimem_red, dl.notify", _multimem_refusal, _multimem_us),
    Intrinsic("put by NIC", "dl.putmem_signal", _nic_refusal, _nic_us),
)
