"""What is public is exported on purpose and documented by code that runs."""

import inspect

import paths
import pytest

import ditron
import ditron.host as dh
import ditron.language as dl
import ditron_compiler

ROOT = paths.ROOT
# Pages whose python blocks test_docs.py runs, and examples that test_examples.py runs.
RUN = "".join(
    path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*.py"))]
)


@pytest.mark.parametrize("module", [ditron, dl, dh, ditron_compiler])
def test_all_is_there_and_documented(module):
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value):
            assert inspect.getdoc(value), f"{module.__name__}.{name} has no docstring"


@pytest.mark.parametrize("name", [n for n in ditron.__all__ if n not in ("language", "Group")])
def test_host_api_is_used_on_a_page_that_runs(name):
    assert f"ditron.{name}" in RUN or f"{name}`" in RUN


def test_a_programs_words_are_used_on_a_page_that_runs():
    """Or in an example; local_rank and its like, and the classes, stand for themselves."""
    used = {name for name in dh.__all__ if f"dh.{name}" in RUN}
    assert set(dh.__all__) - used <= {
        "Buffer",
        "Cond",
        "Event",
        "Int",
        "Stream",
        "local_rank",
        "node",
        "num_local_ranks",
    }


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonesuch"):
        ditron.nonesuch  # noqa: B018
