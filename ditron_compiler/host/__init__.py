"""Host programs as concrete steps: what executors run and the checker looks at."""

from .evaluate import Evaluation, Evaluator, evaluate
from .steps import (
    ONE_NODE,
    Await,
    Buffer,
    Copy,
    EvaluationError,
    Fill,
    Launch,
    Place,
    RankCopy,
    Record,
    Root,
    SignalWait,
    SignalWrite,
    Step,
    Stream,
    StreamBarrier,
)

__all__ = [
    "Await",
    "Buffer",
    "Copy",
    "Evaluation",
    "EvaluationError",
    "Evaluator",
    "Fill",
    "Launch",
    "ONE_NODE",
    "Place",
    "RankCopy",
    "Record",
    "Root",
    "SignalWait",
    "SignalWrite",
    "Step",
    "Stream",
    "StreamBarrier",
    "evaluate",
]
