// The dialect's enumerations and types, without its operations.

#ifndef DITRON_IR_DITRON_TYPES_H
#define DITRON_IR_DITRON_TYPES_H

#include "mlir/IR/BuiltinTypeInterfaces.h"
#include "mlir/IR/DialectImplementation.h"

#include "dialect/IR/DitronEnums.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/IR/DitronTypes.h.inc"

#endif // DITRON_IR_DITRON_TYPES_H
