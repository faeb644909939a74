// Packets: data that brings its own flag, so that no signal follows it.

#ifndef DITRON_PACKET_OPS_TD
#define DITRON_PACKET_OPS_TD

include "DitronEnums.td"
include "DitronTypes.td"

def Ditron_PacketPtr : PtrTo<I64.predicate,
  "packet pointer, !tt.ptr<i64> (packets are made of 8-byte words)">;
defvar Ditron_LL = WithDefault<Ditron_ProtocolAttr, "Protocol::LL">;

def Ditron_LLPutOp : Ditron_Op<"ll_put", [
    Ditron_Ordered, Ditron_ProgramWide, Ditron_PacketOpInterface, Ditron_RemoteAccessOpInterface]> {
  let summary = "send bytes as packets that carry their own flag";
  let description = [{
    Packs `nbytes` bytes from `src` and stores them into the packet memory that
    the symmetric address `packets` names on `rank`, which must be mapped here
    (a rank of this node). Each packet holds the flag `epoch` beside its data and
    is stored whole, so whoever sees the flag has the data: there is no signal, no
    fence, and no order between packets or with anything else. On return `src`
    may be reused. `ditron.ll_get` with the same size, epoch and protocol takes
    the message.

    With `ll` a packet is 8 bytes: 4 of data, then the low 32 bits of the epoch.
    With `ll128` it is a line of 128: 120 of data, then the whole epoch; it needs
    links that keep a warp's 128-byte store whole (NVLink). A message takes
    `2 * nbytes` bytes, rounded up to whole lines of 128, with either; one of no
    bytes takes a line, and is a flag that `ditron.ll_get` waits for.

    An epoch is never 0 and grows with each message to the same place; packet
    memory is zero at first, and nothing in it is ever reset. A message to the
    place of an earlier one may be sent only when that one has been taken: with
    two places by the epoch's parity, once a message of the epoch between them
    has come back. In 32 bits, 0 stands as 2^31, and a packet that was not
    overwritten for 2^31 epochs would be taken for a new one.

    ```mlir
    ditron.ll_put %sig, %src, %bytes, %epoch on %rank : !tt.ptr<i64>, !tt.ptr<bf16>
    ditron.ll_put %sig, %src, %bytes, %epoch on %rank protocol ll128 : !tt.ptr<i64>, !tt.ptr<bf16>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_PacketPtr, "symmetric address, where the packets begin at `rank`; a multiple of 128", [MemWrite]>:$packets,
    Arg<Ditron_Ptr, "first byte sent", [MemRead]>:$src,
    Arg<I64, "number of bytes, a multiple of the element size">:$nbytes,
    Arg<I64, "flag of each packet, 1 or more">:$epoch,
    Arg<I32, "rank of the group that receives">:$rank,
    Ditron_LL:$protocol);
  let assemblyFormat = [{
    $packets `,` $src `,` $nbytes `,` $epoch `on` $rank (`protocol` custom<Keyword>($protocol)^)?
    attr-dict `:` type($packets) `,` type($src)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    SmallVector<RemoteAccess> getRemoteAccesses() { return {{getPackets(), getNbytes()}}; }
  }];
}

def Ditron_LLGetOp : Ditron_NamedOp<"ll_get", "token", [
    Ditron_Ordered, Ditron_ProgramWide, Ditron_Spins, Ditron_PacketOpInterface]> {
  let summary = "wait for a message of packets and unpack it";
  let description = [{
    Waits until all packets of a message of `nbytes` bytes at `packets`, in this
    rank's memory, carry the flag `epoch`, and writes their data to `dst`. When it
    returns, every thread of the program may read `dst`, also through the async
    proxy (TMA); use the token as that of a `ditron.wait`. It orders nothing
    else: what the sender stored otherwise needs a signal of its own. One program
    takes a message.

    ```mlir
    %token = ditron.ll_get %dst, %sig, %bytes, %epoch : !tt.ptr<bf16>, !tt.ptr<i64>
    %lines = ditron.ll_get %dst, %sig, %bytes, %epoch protocol ll128 : !tt.ptr<bf16>, !tt.ptr<i64>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_Ptr, "first byte written", [MemWrite]>:$dst,
    Arg<Ditron_PacketPtr, "where the packets begin, on this rank; a multiple of 128", [MemRead]>:$packets,
    Arg<I64, "number of bytes, a multiple of the element size">:$nbytes,
    Arg<I64, "flag that each packet must carry, 1 or more">:$epoch,
    Ditron_LL:$protocol);
  let results = (outs Res<Ditron_Token, "proof that the message is there">:$token);
  let assemblyFormat = [{
    $dst `,` $packets `,` $nbytes `,` $epoch (`protocol` custom<Keyword>($protocol)^)?
    attr-dict `:` type($dst) `,` type($packets)
  }];
  let hasVerifier = 1;
}

#endif // DITRON_PACKET_OPS_TD
