"""MLIR's pass manager, as upstream's ``mlir.passmanager``; Python passes are named in pipelines like any other."""

from .._core import PassManager

__all__ = ["PassManager", "statistics_table", "timing_table"]


def timing_table(timings) -> str:
    """A readable table of ``PassManager.timings``: milliseconds and share of each pass, in the order they ran."""
    total = sum(seconds for _, seconds in timings)
    width = max([len(name) for name, _ in timings] + [5])
    lines = [f"{'pass':<{width}}  {'ms':>9}  {'%':>5}"]
    for name, seconds in timings:
        lines.append(f"{name:<{width}}  {seconds * 1e3:9.3f}  {seconds / total * 100 if total else 0:5.1f}")
    lines.append(f"{'total':<{width}}  {total * 1e3:9.3f}")
    return "\n".join(lines)


PassManager.timing_table = lambda self: timing_table(self.timings)
PassManager.timing_table.__doc__ = "The timings as a readable table."


def statistics_table(statistics) -> str:
    """A readable table of ``PassManager.statistics``: what each pass counted, one line each."""
    width = max([len(name) for name, _, _ in statistics] + [4])
    return "\n".join(
        [
            f"{'pass':<{width}}  {'count':>7}  what",
            *(f"{name:<{width}}  {count:7}  {what}" for name, what, count in statistics),
        ]
    )


PassManager.statistics_table = lambda self: statistics_table(self.statistics)
PassManager.statistics_table.__doc__ = "The statistics as a readable table."
