"""Symmetric memory that grows, in processes: torch.distributed and file descriptors are real, the GPUs are not."""

import json
import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[2] / "support"
ROOT = SUPPORT.parents[2]
RANKS = 3


def processes(what: str, folder: Path, ranks: int = RANKS) -> list[tuple[int, dict, str]]:
    """Exit code, result and stderr of each rank."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)]), "OMP_NUM_THREADS": "1"}
    script = str(SUPPORT / "heap_process.py")
    started = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(ranks), str(folder), what],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        ended = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    results = []
    for process, (out, err) in zip(started, ended, strict=True):
        lines = [line.removeprefix("RESULT ") for line in out.splitlines() if line.startswith("RESULT ")]
        results.append((process.returncode, json.loads(lines[0]) if lines else {}, err))
    return results


def test_peers_reach_each_other_in_every_group(tmp_path):
    for code, result, err in processes("grow", tmp_path):
        assert code == 0, err
        assert (result["wrong"], result["used"], result["reserved"], result["sockets"]) == (0, 0, 0, [RANKS - 1, 0])
        assert result["returned"] >= 2 << 20


def test_different_shapes(tmp_path):
    for code, result, err in processes("different", tmp_path):
        assert code == 0, err
        for line in ("rank 0 asked for (10,) torch.int32", "rank 2 asked for (11,) torch.int32"):
            assert line in result["error"]


def test_a_process_that_ends(tmp_path):
    results = processes("leave", tmp_path)
    assert results[1][0] == 3
    for rank in (0, 2):
        code, result, err = results[rank]
        assert code == 0, err
        assert "rank 1 has ended" in result["error"] and result["closed"]
        assert any("rank 1 has ended" in text for text in result["warned"])


def test_a_process_that_ends_while_gpus_wait_for_it(tmp_path):
    """Every call that waits for the GPU tells who has ended; memory that the GPU may use stays mapped."""
    results = processes("stuck", tmp_path)
    assert results[1][0] == 1 and "the user's error" in results[1][2]
    for rank in (0, 2):
        code, result, err = results[rank]
        assert code == 0, err
        assert len(result["errors"]) == 2 and all("rank 1" in text and "ended" in text for text in result["errors"])
        assert result["seconds"] < 30 and result["mapped"] == 1


def test_the_end_of_a_process_without_finalize(tmp_path):
    for code, _, err in processes("unfinished", tmp_path):
        assert code == 0, err
        assert "Traceback" not in err and "Fatal" not in err


def test_fallback_to_torch(tmp_path):
    for rank, (code, result, err) in enumerate(processes("fallback", tmp_path, 2)):
        assert code == 0, err
        assert (result["heap"], result["reserved"]) == (f"torch {1 << 20}", 0)
        texts = [text for text in result["warned"] if "symmetric memory does not grow here" in text]
        assert len(texts) == (rank == 0)
        assert all("rank 1: the GPU or its driver has no virtual memory management" in text for text in texts)
