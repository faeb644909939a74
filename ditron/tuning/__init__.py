"""What operators run, measured on this machine: see ``ditron tune``, ``ditron explain`` and docs/tuning.md."""

from ditron.tuning.lookup import disable, enable

__all__ = ["disable", "enable"]
