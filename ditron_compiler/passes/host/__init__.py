"""Passes over host programs: `ditron.program`, with the kernels that it launches."""
