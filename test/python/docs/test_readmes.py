"""A newcomer finds every folder, and no link of a page leads nowhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import paths
import pytest

ROOT = paths.ROOT
TOP = ("benchmark", "cmake", "dialect", "ditron", "ditron_compiler", "docs", "examples", "runtime", "test")
#: Build products and caches.
LEFT_OUT = re.compile(r"__pycache__|\.\w+|Output|.*\.egg-info")
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)


def folders(under: Path) -> Iterator[Path]:
    yield under
    for path in sorted(under.iterdir()):
        if path.is_dir() and not LEFT_OUT.fullmatch(path.name):
            yield from folders(path)


FOLDERS = [folder for top in TOP for folder in folders(ROOT / top)]
PAGES = [*sorted(ROOT.glob("*.md")), *(page for folder in FOLDERS for page in sorted(folder.glob("*.md")))]


def describes(readme: Path, folder: Path) -> bool:
    """Whether a README names a folder below its own, or one that holds that; Inputs are a test's own."""
    names = folder.relative_to(readme.parent).parts
    return names[-1] == "Inputs" or any(re.search(rf"\b{re.escape(name)}\b", readme.read_text()) for name in names)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_folder_has_a_readme_or_is_named_in_one(folder):
    readme = next(readme for above in (folder, *folder.parents) if (readme := above / "README.md").exists())
    assert readme.parent == folder or describes(readme, folder), f"{readme.relative_to(ROOT)} does not name {folder}"


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub makes anchors of them."""
    found: dict[str, int] = {}
    for line in CODE.sub(lambda match: match[0].strip("`") if match[0][:3] != "```" else "", page.read_text()).split(
        "\n"
    ):
        if heading := re.match(r"#+ (.*)", line):
            text = LINK.sub("]", heading[1]).replace("[", "").replace("]", "")
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found[anchor] = found.get(anchor, -1) + 1
    return {f"{name}-{number}" if number else name for name, last in found.items() for number in range(last + 1)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: no such heading"
