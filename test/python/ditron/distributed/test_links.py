"""Whether NVLink reaches every other GPU, as the driver says; here of a driver that is made up."""

from types import SimpleNamespace

import pytest

from ditron import _cuda
from ditron.distributed.links import has_nvlink


def driver(linked: list[set[int]]) -> SimpleNamespace:
    """A libcuda of as many GPUs as there are sets: the GPUs that native atomics of each one reach."""

    def count(result) -> int:
        result._obj.value = len(linked)
        return 0

    def attribute(result, which: int, source: int, target: int) -> int:
        assert which == 3
        result._obj.value = target in linked[source]
        return 0

    functions = {"cuDeviceGetCount": count, "cuDeviceGetP2PAttribute": attribute, "cuGetErrorName": lambda *_: 0}
    return SimpleNamespace(**functions)


@pytest.mark.parametrize(
    ("linked", "device", "expected"),
    [
        ([{1, 2}, {0, 2}, {0, 1}], 1, True),
        ([{1}, {0}, set()], 0, False),  # the third is behind PCIe
        ([set()], 0, False),  # who sees one GPU alone knows nothing of its links
    ],
)
def test_every_other_gpu_counts(monkeypatch, linked, device, expected):
    monkeypatch.setattr(_cuda, "libcuda", lambda: driver(linked))
    has_nvlink.cache_clear()
    assert has_nvlink(device) is expected
    has_nvlink.cache_clear()
