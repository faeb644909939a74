"""Host programs as concrete steps, which executors run and the protocol checker analyses."""

from .evaluate import Evaluation, Evaluator, evaluate
from .steps import (
    ONE_NODE,
    Await,
    BufferView,
    Copy,
    EvaluationError,
    Fill,
    Launch,
    RankCopy,
    RankPlacement,
    Record,
    SignalWait,
    SignalWrite,
    Step,
    Storage,
    Stream,
    StreamBarrier,
)

__all__ = [
    "Await",
    "BufferView",
    "Copy",
    "Evaluation",
    "EvaluationError",
    "Evaluator",
    "Fill",
    "Launch",
    "ONE_NODE",
    "RankPlacement",
    "RankCopy",
    "Record",
    "Storage",
    "SignalWait",
    "SignalWrite",
    "Step",
    "Stream",
    "StreamBarrier",
    "evaluate",
]
