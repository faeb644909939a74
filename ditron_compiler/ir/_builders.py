"""Builders for the builtin ODS attribute kinds: a Python value becomes an attribute in the typed classes."""

from __future__ import annotations

from .. import _core as c
from ._registry import register_attribute_builder


def _integer(kind: str, width: int, sign: str = "signless") -> None:
    make_type = getattr(c.IntegerType, f"get_{sign}")

    @register_attribute_builder(kind)
    def build(value, context):
        return c.IntegerAttr.get(make_type(width, context=context), value)


for _width in (1, 8, 16, 32, 64):
    _integer(f"I{_width}Attr", _width)
    if _width > 1:
        _integer(f"SI{_width}Attr", _width, "signed")
        _integer(f"UI{_width}Attr", _width, "unsigned")


def _float(kind: str, type_class) -> None:
    @register_attribute_builder(kind)
    def build(value, context):
        return c.FloatAttr.get(type_class.get(context=context), value)


_float("F32Attr", c.F32Type)
_float("F64Attr", c.F64Type)


def _simple(kind: str, attribute_class) -> None:
    @register_attribute_builder(kind)
    def build(value, context):
        return attribute_class.get(value, context=context)


for _kind, _class in {
    "BoolAttr": c.BoolAttr,
    "StrAttr": c.StringAttr,
    "SymbolNameAttr": c.StringAttr,
    "FlatSymbolRefAttr": c.FlatSymbolRefAttr,
    "TypeAttr": c.TypeAttr,
    "DictionaryAttr": c.DictAttr,
    "DenseBoolArrayAttr": c.DenseBoolArrayAttr,
    "DenseI8ArrayAttr": c.DenseI8ArrayAttr,
    "DenseI16ArrayAttr": c.DenseI16ArrayAttr,
    "DenseI32ArrayAttr": c.DenseI32ArrayAttr,
    "DenseI64ArrayAttr": c.DenseI64ArrayAttr,
    "DenseF32ArrayAttr": c.DenseF32ArrayAttr,
    "DenseF64ArrayAttr": c.DenseF64ArrayAttr,
    "ArrayAttr": c.ArrayAttr,
}.items():
    _simple(_kind, _class)


@register_attribute_builder("IndexAttr")
def _index(value, context):
    return c.IntegerAttr.get(c.IndexType.get(context=context), value)


@register_attribute_builder("SymbolRefAttr")
def _symbol(value, context):
    return c.SymbolRefAttr.get([value] if isinstance(value, str) else list(value), context=context)


@register_attribute_builder("StrArrayAttr")
def _strings(values, context):
    return c.ArrayAttr.get([c.StringAttr.get(v, context=context) for v in values], context=context)


@register_attribute_builder("I64ArrayAttr")
def _integers(values, context):
    i64 = c.IntegerType.get_signless(64, context=context)
    return c.ArrayAttr.get([c.IntegerAttr.get(i64, v) for v in values], context=context)


@register_attribute_builder("FlatSymbolRefArrayAttr")
def _symbols(values, context):
    return c.ArrayAttr.get([c.FlatSymbolRefAttr.get(v, context=context) for v in values], context=context)


@register_attribute_builder("TypeArrayAttr")
def _types(values, context):
    return c.ArrayAttr.get([c.TypeAttr.get(v, context=context) for v in values], context=context)


def _typed(kind: str) -> None:
    @register_attribute_builder(kind)
    def build(value, context):
        return c.TypeAttr.get(value, context=context)


_typed("FunctionTypeAttr")
_typed("TypeAttrOf")
_typed("MemRefTypeAttr")
