"""Convert puts with a signal, and the waits for them, into packets with embedded flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.linear import Address, address, index_sum
from ditron_compiler.analysis.message_matching import Put, Wait, at_sender
from ditron_compiler.analysis.packet_layout import MARK, PacketArgument, packet_bytes, place_bytes
from ditron_compiler.analysis.signal_channels import Channel, Refusal, signal_arguments
from ditron_compiler.ir.pass_base import Pass, option

__all__ = ["LLProtocol"]

# What quiet and fence are for; without any of these there is nothing to order or to complete.
_SENDS = {
    f"ditron.{name}"
    for name in (
        "symm_at",
        "multicast_ptr",
        "multimem_ld_reduce",
        "multimem_st",
        "multimem_red",
        "putmem",
        "getmem",
        "putmem_signal",
        "notify",
        "signal_op",
        "st",
        "red",
        "atomic_add",
        "atomic_cas",
        "extern_call",
    )
}


@dataclass(frozen=True)
class LLProtocol(Pass):
    """Convert small puts with a signal, and the waits for them, into packets with embedded flags (NCCL's LL protocols).

    A put with a signal costs two ordered transfers: data, fence, signal, and at the receiver signal, acquire, data. A
    packet holds data and flag together, so one transfer is enough, of twice the bytes. The signal's memory becomes the
    packet buffer: each signal is a slot of ``2 * packet_bytes(bound)`` bytes, for a message of an even epoch and one of
    an odd epoch, where ``bound`` is an upper bound of the message size (a constant, or ``tl.minimum`` with one). The
    host allocates it by ``ditron.symm_packets(signals, nbytes=bound)``, which also serves a put with a signal. The
    kernel's attribute ``ditron.packets`` describes the argument, and launches reject other memory.

    The signal's index matches waits with puts: the put indexes by the sender's rank (``sig + rank``), and the wait
    names that rank (``sig + peer``, or a range). The receiver unpacks to the destination of the put, so that the code
    after the wait stays as it is; a ``quiet`` with nothing left to complete is removed. A signal is converted as a
    whole or, with a remark that gives the reason, not at all: every use of it is a put that sets it to the epoch or a
    wait for ``ge`` or ``eq`` of that epoch, each message has one consumer and is consumed once, its size is bounded,
    and nothing else in the kernel accesses other ranks' memory. Programs have messages of their own by
    ``sig + program_id * num_ranks + rank``, or by ``(rank + program_id) % num_ranks``: then a launch of more programs
    than ranks is rejected, unless they wait under ``if program_id < num_ranks``. The pass assumes, without a check:
    scalar arguments are the same on all ranks, the epoch increases with each call, every message is waited for by its
    receiver in the call that sends it, and a rank sends in epoch ``e + 2`` only when its message of ``e`` has been
    consumed, as two buffers by parity need anyway.

    ``auto`` takes ``ll`` for messages of at most ``ll-bytes``, ``ll128`` up to ``max-bytes`` and keeps the signal for
    larger ones; it decides by the bound, at compile time. ``ll128`` needs NVLink.

    Before::

        ditron.putmem_signal %dst, %src, %bytes, %own set %epoch on %peer : !tt.ptr<bf16>, !tt.ptr<bf16>, !tt.ptr<i64>
        %theirs = "tt.addptr"(%sig, %peer) : (!tt.ptr<i64>, i32) -> !tt.ptr<i64>
        %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>

    After::

        ditron.ll_put %packets, %src, %bytes, %epoch on %peer : !tt.ptr<i64>, !tt.ptr<bf16>
        %from = "tt.addptr"(%sig, %at) : (!tt.ptr<i64>, i64) -> !tt.ptr<i64>
        %token = ditron.ll_get %dst_at_peer, %from, %bytes, %epoch : !tt.ptr<bf16>, !tt.ptr<i64>
    """

    name: ClassVar[str] = "ll-protocol"
    protocol: str = option(
        "auto", "ll, ll128, simple (do nothing), or auto: by message size", one_of=("auto", "ll", "ll128", "simple")
    )
    ll_bytes: int = option(2048, "largest message, in bytes, that auto sends by ll", least=0)
    max_bytes: int = option(65536, "largest message, in bytes, that auto sends as packets", least=0)

    def run(self, op: ir.Operation) -> None:
        if self.protocol == "simple":
            return
        for function in functions(op):
            rewritten = [self._rewrite(root, function) for root in signal_arguments(function)]
            packets = [argument for argument in rewritten if argument is not None]
            if packets:
                text = ", ".join(map(str, packets))
                function.attributes[MARK] = ir.Attribute.parse(f"[{text}]", function.context)
                self._drop_order(function)

    def _rewrite(self, root: ir.Value, function: ir.Operation) -> PacketArgument | None:
        """Turn what is sent by the signals at ``root`` into packets, or say why not."""
        try:
            channel = Channel.of(root, function)
            protocol = self._choose(channel)
        except Refusal as refusal:
            refusal.op.emit_remark(f"not converted to packets: {refusal}")
            self.count("signals not converted")
            return None
        argument = _argument(channel)
        channel.puts[0].op.emit_remark(
            f"sent as packets by protocol {protocol}: {place_bytes(channel.bound)} bytes per signal, as allocated by "
            f"ditron.symm_packets(..., nbytes={channel.bound})"
            + "".join(f"; requires at most num_ranks programs along axis {axis}" for axis in channel.by_rank)
        )
        for wait, put, rank in channel.waits:
            _Rewriter(channel, protocol, wait.op).take(wait, put, rank)
            self.count("waits converted")
        for put in channel.puts:
            _Rewriter(channel, protocol, put.notify or put.op).send(put)
            self.count("puts converted")
        return argument

    def _choose(self, channel: Channel) -> str:
        if self.protocol != "auto":
            return self.protocol
        if channel.bound > self.max_bytes:
            raise Refusal(
                channel.puts[0].op, f"a message may have {channel.bound} bytes, more than max-bytes={self.max_bytes}"
            )
        return "ll" if channel.bound <= self.ll_bytes else "ll128"

    def _drop_order(self, function: ir.Operation) -> None:
        every = operations(function)
        if any(op.name in _SENDS for op in every):
            return
        for op in every:
            if op.name in ("ditron.quiet", "ditron.fence"):
                op.erase()
                self.count("quiets and fences removed")


def _argument(channel: Channel) -> PacketArgument:
    """What the host has to know of a channel that becomes packets."""
    index, location = channel.root.arg_number, channel.root.location
    place = channel.puts[0].op.location.file_line_col
    return PacketArgument(
        index,
        location.name_str if location.is_a_name() else str(index),
        channel.bound,
        f"{place[0]}:{place[1]}" if place else "an unknown line",
        channel.by_rank,
    )


class _Rewriter:
    """Builds what replaces one operation, before it."""

    def __init__(self, channel: Channel, protocol: str, op: ir.Operation):
        self.channel, self.op = channel, op
        self.location, self.at = op.location, ir.InsertionPoint(op)
        self.i32, self.i64 = (ir.IntegerType.get_signless(width, op.context) for width in (32, 64))
        self.protocol = {"protocol": ir.Attribute.parse(f"#ditron.protocol<{protocol}>", op.context)}
        self.words = packet_bytes(channel.bound) // 8  # of one message

    def make(
        self,
        name: str,
        operands: list[ir.Value],
        result: ir.Type | None = None,
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> ir.Value | None:
        made = ir.Operation.create(
            name,
            results=[] if result is None else [result],
            operands=operands,
            attributes=attributes or {},
            loc=self.location,
            ip=self.at,
        )
        return None if result is None else made.results[0]

    def constant(self, value: int, type_: ir.Type) -> ir.Value:
        return self.make("arith.constant", [], type_, {"value": ir.IntegerAttr.get(type_, value)})

    def arith(self, name: str, a: ir.Value, b: ir.Value | int) -> ir.Value:
        return self.make(f"arith.{name}", [a, self.constant(b, a.type) if isinstance(b, int) else b], a.type)

    def place(self, index: Address, epoch: ir.Value, also: ir.Value | None = None) -> ir.Value:
        """The packets of the message that ``index`` (plus ``also``) names, of the epoch's parity."""
        at = self.arith("muli", self.arith("andi", epoch, 1), self.words)
        for term in [*index.offset.summands, *([] if also is None else [also])]:
            wide = term if term.type == self.i64 else self.make("arith.extsi", [term], self.i64)
            at = self.arith("addi", at, self.arith("muli", wide, 2 * self.words))
        if constant := index.offset.constant_term:
            at = self.arith("addi", at, constant * 2 * self.words)
        return self.make("tt.addptr", [index.base, at], index.base.type)

    def send(self, put: Put) -> None:
        packets = self.place(address(put.signal, index_sum), put.epoch)
        self.make("ditron.ll_put", [packets, put.src, put.nbytes, put.epoch, put.rank], None, self.protocol)
        if put.notify is not None:
            put.notify.erase()
        put.op.erase()

    def take(self, wait: Wait, put: Put, rank: ir.Value | None) -> None:
        if wait.count is None:
            token = self._get(wait, put, rank)
        else:
            token = self._get_each(wait, put)
        result = wait.op.results[0]
        result.replace_all_uses_with(wait.epoch if wait.op.name == "ditron.signal_wait_until" else token)
        wait.op.erase()

    def _get(self, wait: Wait, put: Put, rank: ir.Value | None, also: ir.Value | None = None) -> ir.Value:
        dst = at_sender(put.dst, rank, wait.op, self.make)
        nbytes = at_sender(put.nbytes, rank, wait.op, self.make)
        packets = self.place(address(wait.signal, index_sum), wait.epoch, also)
        return self.make("ditron.ll_get", [dst, packets, nbytes, wait.epoch], self.token, self.protocol)

    def _get_each(self, wait: Wait, put: Put) -> ir.Value:
        """Take what each rank has sent, one after the other; the token is that of a wait for nothing behind them."""
        none = self.constant(0, self.i32)
        loop = ir.Operation.create(
            "scf.for", operands=[none, wait.count, self.constant(1, self.i32)], regions=1, loc=self.location, ip=self.at
        )
        body = loop.regions[0].blocks.append(self.i32, arg_locs=[self.location])
        behind, self.at = self.at, ir.InsertionPoint(body)
        self._get(wait, put, body.arguments[0], body.arguments[0])
        self.make("scf.yield", [])
        self.at = behind
        attributes = {
            name: ir.Attribute.parse(f"#ditron.{text}", self.op.context)
            for name, text in (("cmp", "cmp<ge>"), ("scope", "scope<gpu>"), ("semantic", "semantic<relaxed>"))
        }
        return self.make("ditron.wait", [self.channel.root, none, wait.epoch], self.token, attributes)

    @property
    def token(self) -> ir.Type:
        return ir.Type.parse("!ditron.token", self.op.context)
