#include "copy_engine.h"

#include "call.h"

#include <cstring>
#include <utility>

namespace ditron::sim {

constexpr size_t maxPieces = 8;
/// Turns that others get before a copy begins to land, one of these.
constexpr int32_t delays[] = {0, 2, 16, 128};
/// Numbers of transfers that are not the network's.
constexpr uint64_t engineIds = uint64_t(1) << 48;

std::vector<Piece> cut(const Transfer &transfer, Random &random) {
  std::vector<Piece> pieces;
  if (!transfer.rows || !transfer.bytes) {
    return pieces;
  }
  // By rows where there are several, else by elements.
  bool byRow = transfer.rows > 1;
  size_t unit = byRow ? 1 : transfer.itemsize;
  size_t units = byRow ? transfer.rows : transfer.bytes / unit;
  size_t parts = 1 + random.below(std::min(maxPieces, units));
  for (size_t part = 0; part < parts; ++part) {
    size_t begin = units * part / parts * unit;
    size_t end = units * (part + 1) / parts * unit;
    pieces.push_back(byRow ? Piece{begin, end - begin, 0, transfer.bytes}
                           : Piece{0, 1, begin, end - begin});
  }
  for (size_t left = pieces.size(); left > 1; --left) {
    std::swap(pieces[left - 1], pieces[random.below(left)]);
  }
  return pieces;
}

void movePiece(Machine &machine, const Transfer &transfer, const Piece &piece) {
  for (size_t row = piece.row; row < piece.row + piece.rows; ++row) {
    std::byte *to = transfer.toRow(row) + piece.start;
    if (transfer.from) {
      std::memmove(to, transfer.fromRow(row) + piece.start, piece.bytes);
    } else {
      for (size_t at = 0; at < piece.bytes; at += transfer.itemsize) {
        std::memcpy(to + at, transfer.pattern.data(), transfer.itemsize);
      }
    }
    machine.changed(to, piece.bytes);
  }
}

void moveWithin(void *args, int32_t, int32_t, int32_t, int32_t, int32_t,
                int32_t) {
  const auto &transfer =
      *reinterpret_cast<const Transfer *>(*static_cast<uint64_t *>(args));
  call(0, [&](Machine &machine, Fiber &fiber) {
    for (size_t row = 0; machine.races && row < transfer.rows; ++row) {
      if (transfer.from) {
        machine.races->access(fiber, transfer.fromRow(row), transfer.bytes,
                              Access::CopySource);
      }
      machine.races->access(fiber, transfer.toRow(row), transfer.bytes,
                            transfer.from ? Access::Copy : Access::Store);
      if (transfer.from) {
        machine.races->copied(fiber, transfer.toRow(row), transfer.fromRow(row),
                              transfer.bytes);
      }
    }
    std::vector<Piece> pieces = cut(transfer, machine.chance());
    for (const Piece &piece : pieces) {
      movePiece(machine, transfer, piece);
      machine.maybeYield(2);
    }
  });
}

/// Between ranks. What it reads and writes is its stream's doing, at one
/// moment: nobody can know of a part of it.
void Stream::runCopy(const StreamItem &item) {
  const Transfer &t = item.transfer;
  if (machine.races) {
    for (size_t row = 0; row < t.rows; ++row) {
      machine.races->access(fiber, t.fromRow(row), t.bytes, Access::CopySource);
      machine.races->access(fiber, t.toRow(row), t.bytes, Access::Copy);
      machine.races->copied(fiber, t.toRow(row), t.fromRow(row), t.bytes);
    }
  }
  Delivery delivery;
  delivery.origin = self.rank;
  delivery.target = item.peer;
  delivery.launch = self.id;
  delivery.isGet = !item.push;
  std::vector<Piece> pieces = cut(t, machine.chance());
  if (machine.nodeOf(item.peer) == machine.nodeOf(self.rank)) {
    byEngine(t, pieces, std::move(delivery));
  } else {
    byNetwork(t, pieces, std::move(delivery));
  }
}

void Stream::byEngine(const Transfer &t, const std::vector<Piece> &pieces,
                      Delivery delivery) {
  std::vector<uint64_t> ids;
  for (const Piece &piece : pieces) {
    ids.push_back(delivery.id = engineIds | machine.newId());
    delivery.bytes = piece.rows * piece.bytes;
    if (machine.events) {
      machine.events->sent(fiber, delivery);
    }
  }
  for (int32_t turns = delays[machine.chance().below(4)]; turns > 0; --turns) {
    machine.pass();
  }
  for (size_t index = 0; index < pieces.size(); ++index) {
    const Piece &piece = pieces[index];
    delivery.id = ids[index];
    movePiece(machine, t, piece);
    if (machine.events) {
      machine.events->arrived(machine.heap, delivery,
                              t.toRow(piece.row) + piece.start,
                              piece.rows * piece.bytes);
    }
    machine.pass();
  }
}

void Stream::byNetwork(const Transfer &t, const std::vector<Piece> &pieces,
                       Delivery delivery) {
  std::vector<uint64_t> underWay;
  for (const Piece &piece : pieces) {
    for (size_t row = piece.row; row < piece.row + piece.rows; ++row) {
      delivery.to = t.toRow(row) + piece.start;
      delivery.from = t.fromRow(row) + piece.start;
      delivery.bytes = piece.bytes;
      delivery.id = machine.network.nextId();
      underWay.push_back(delivery.id);
      if (machine.events) {
        machine.events->sent(fiber, delivery);
      }
      machine.network.send(delivery, false);
    }
  }
  for (uint64_t id : underWay) {
    Wait wait;
    wait.kind = Wait::Kind::Arrival;
    wait.id = id;
    machine.block(wait);
  }
}

} // namespace ditron::sim
