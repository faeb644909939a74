"""Convert puts with a signal, and the waits for them, into packets with embedded flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.linear import Address, address, index_sum
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.analysis.message_matching import SignaledPut, rematerialize, signal_count
from ditron_compiler.analysis.packet_layout import MARK, PacketArgument, packet_bytes, place_bytes
from ditron_compiler.analysis.signal_channels import MatchedWait, SignalChannel, signal_arguments
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.ir.dialects.ditron import Cmp, Protocol, Scope, Semantic
from ditron_compiler.ir.pass_base import Pass, option

__all__ = ["LLProtocol"]

_ORDERED = (
    ditron.SignalUpdateOpInterface,
    ditron.MemoryTransferOpInterface,
    ditron.RequiresMulticast,
    ditron.SymmAtOp,
    ditron.ExternCallOp,
)


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
        %theirs = tt.addptr %sig, %peer : !tt.ptr<i64>, i32
        %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>

    After::

        ditron.ll_put %packets, %src, %bytes, %epoch on %peer : !tt.ptr<i64>, !tt.ptr<bf16>
        %from = tt.addptr %sig, %at : !tt.ptr<i64>, i64
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
            converted = [self._convert(root, function) for root in signal_arguments(function)]
            packets = [argument for argument in converted if argument is not None]
            if packets:
                text = ", ".join(map(str, packets))
                function.attributes[MARK] = ir.Attribute.parse(f"[{text}]", function.context)
                self._remove_fences(function)

    def _convert(self, root: ir.Value, function: tt.FuncOp) -> PacketArgument | None:
        """Convert what is sent by the signals at ``root``; None, after a remark, if that is not possible."""
        try:
            channel = SignalChannel.of(root, function)
            protocol = self._choose(channel)
        except MatchFailure as failure:
            failure.op.emit_remark(f"not converted to packets: {failure.reason}")
            self.count("signals not converted")
            return None
        argument = _packet_argument(channel)
        channel.puts[0].put.emit_remark(
            f"sent as packets by protocol {protocol!s}: {place_bytes(channel.max_nbytes)} bytes per signal, as "
            f"allocated by ditron.symm_packets(..., nbytes={channel.max_nbytes})"
            + "".join(f"; requires at most num_ranks programs along axis {axis}" for axis in channel.bounded_axes)
        )
        for match in channel.waits:
            _Rewriter(channel, protocol, match.wait).receive(match)
            self.count("waits converted")
        for put in channel.puts:
            _Rewriter(channel, protocol, put.update).send(put)
            self.count("puts converted")
        return argument

    def _choose(self, channel: SignalChannel) -> Protocol:
        if self.protocol != "auto":
            return Protocol.LL if self.protocol == "ll" else Protocol.LL128
        if channel.max_nbytes > self.max_bytes:
            raise MatchFailure(
                f"a message may have {channel.max_nbytes} bytes, more than max-bytes={self.max_bytes}",
                channel.puts[0].put,
            )
        return Protocol.LL if channel.max_nbytes <= self.ll_bytes else Protocol.LL128

    def _remove_fences(self, function: tt.FuncOp) -> None:
        every = operations(function)
        if any(map(_is_ordered, every)):
            return
        for op in every:
            if isinstance(op, (ditron.QuietOp, ditron.FenceOp)):
                op.erase()
                self.count("quiets and fences removed")


def _is_ordered(op: ir.Operation) -> bool:
    """Whether a quiet completes ``op`` or a fence orders it; in a kernel without any such neither has an effect."""
    return isinstance(op, _ORDERED) or isinstance(op, ditron.AtomicOpInterface) and op.writes_memory


def _packet_argument(channel: SignalChannel) -> PacketArgument:
    """What the host has to know of a channel that becomes packets."""
    index, location = channel.root.arg_number, channel.root.location
    put = channel.puts[0].put.location.file_line_col
    return PacketArgument(
        index,
        location.name_str if location.is_a_name() else str(index),
        channel.max_nbytes,
        f"{put[0]}:{put[1]}" if put else "an unknown line",
        channel.bounded_axes,
    )


class _Rewriter:
    """Builds what replaces ``op``, before it."""

    def __init__(self, channel: SignalChannel, protocol: Protocol, op: ir.Operation):
        self.channel, self.protocol, self.op = channel, protocol, op
        self.loc, self.ip = op.location, ir.InsertionPoint(op)
        self.i32, self.i64 = (ir.IntegerType.get_signless(width, op.context) for width in (32, 64))
        self.words = packet_bytes(channel.max_nbytes) // 8  # of one message

    def create(
        self, name: str, operands: list[ir.Value], type_: ir.Type, attributes: dict[str, ir.Attribute]
    ) -> ir.Value:
        return ir.Operation.create(
            name, results=[type_], operands=operands, attributes=attributes, loc=self.loc, ip=self.ip
        ).results[0]

    def constant(self, value: int, type_: ir.Type) -> ir.Value:
        return arith.constant(type_, value, loc=self.loc, ip=self.ip)

    def binary(self, op: type[ir.OpView], a: ir.Value, b: ir.Value | int) -> ir.Value:
        return op(a, self.constant(b, a.type) if isinstance(b, int) else b, loc=self.loc, ip=self.ip).result

    def packets(self, signal: Address, epoch: ir.Value, offset: Sequence[ir.Value] = ()) -> ir.Value:
        """The packets of the message that ``signal`` and ``offset`` identify, by the parity of the epoch."""
        at = self.binary(arith.MulIOp, self.binary(arith.AndIOp, epoch, 1), self.words)
        for term in (*signal.offset.summands, *offset):
            wide = term if term.type == self.i64 else arith.ExtSIOp(self.i64, term, loc=self.loc, ip=self.ip).result
            at = self.binary(arith.AddIOp, at, self.binary(arith.MulIOp, wide, 2 * self.words))
        if constant := signal.offset.constant_term:
            at = self.binary(arith.AddIOp, at, constant * 2 * self.words)
        return tt.AddPtrOp(signal.base.type, signal.base, at, loc=self.loc, ip=self.ip).result

    def send(self, signaled: SignaledPut) -> None:
        put, update = signaled.put, signaled.update
        packets = self.packets(address(update.signal, index_sum), update.value)
        ditron.LLPutOp(
            packets, put.src, put.nbytes, update.value, put.rank, protocol=self.protocol, loc=self.loc, ip=self.ip
        )
        if update != put:
            update.erase()
        put.erase()

    def receive(self, match: MatchedWait) -> None:
        wait = match.wait
        token = self._get(match, match.sender) if signal_count(wait) is None else self._receive_each(match)
        result = wait.results[0]
        result.replace_all_uses_with(wait.value if isinstance(wait, ditron.SignalWaitUntilOp) else token)
        wait.erase()

    def _get(self, match: MatchedWait, sender: ir.Value | None, offset: Sequence[ir.Value] = ()) -> ir.Value:
        wait, put = match.wait, match.put.put
        dst = rematerialize(put.dst, sender, wait, self.create)
        nbytes = rematerialize(put.nbytes, sender, wait, self.create)
        packets = self.packets(address(wait.signal, index_sum), wait.value, offset)
        return ditron.LLGetOp(dst, packets, nbytes, wait.value, protocol=self.protocol, loc=self.loc, ip=self.ip).token

    def _receive_each(self, match: MatchedWait) -> ir.Value:
        """Receive the message of each rank in a loop; the token is that of a wait for no signals after it."""
        none = self.constant(0, self.i32)
        wait = match.wait
        loop = scf.ForOp(none, wait.count, self.constant(1, self.i32), loc=self.loc, ip=self.ip)
        after, self.ip = self.ip, ir.InsertionPoint(loop.body)
        self._get(match, loop.induction_variable, [loop.induction_variable])
        scf.YieldOp([], loc=self.loc, ip=self.ip)
        self.ip = after
        return ditron.WaitOp(
            self.channel.root,
            none,
            wait.value,
            cmp=Cmp.GE,
            scope=Scope.GPU,
            semantic=Semantic.Relaxed,
            loc=self.loc,
            ip=self.ip,
        ).token
