// How copies and fills move their bytes: in pieces, in any order.
#pragma once

#include "random.h"
#include "stream.h"

#include <vector>

namespace ditron::sim {

/// The whole of a transfer in some pieces, in a seeded order.
std::vector<Piece> cut(const Transfer &transfer, Random &random);

/// Move one piece, now.
void movePiece(Machine &machine, const Transfer &transfer, const Piece &piece);

/// The kernel of one program that copies or fills within a rank: its argument
/// is the address of the transfer.
void moveWithin(void *args, int32_t, int32_t, int32_t, int32_t, int32_t,
                int32_t);

} // namespace ditron::sim
