// Everything of the dialect; the one file that mlir-tblgen reads.

#ifndef DITRON_OPS_TD
#define DITRON_OPS_TD

include "DitronIdentityOps.td"
include "DitronSignalOps.td"
include "DitronDataOps.td"
include "DitronPacketOps.td"
include "DitronAtomicOps.td"
include "DitronThreadOps.td"
include "DitronHostOps.td"
include "DitronStreamOps.td"

#endif // DITRON_OPS_TD
