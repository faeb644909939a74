"""What DITRON adds to Triton's code generator."""

__all__ = ["CODEGEN_MARK"]

#: Key in the code generator's dictionary of backend functions: a primitive of ``ditron.language`` that does not find it
#: is in a kernel that plain Triton compiles.
CODEGEN_MARK = "ditron"
