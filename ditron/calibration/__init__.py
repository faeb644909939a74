"""``ditron calibrate``: a machine's file (:mod:`ditron.machines`) from a sweep on the GPUs at hand."""
