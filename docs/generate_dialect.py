"""Write docs/dialect.md from the dialect's ODS, or say whether it is stale.

    python docs/generate_dialect.py           writes the page
    python docs/generate_dialect.py --check   exits 1 when the page is not what would be written

TableGen's own JSON is the source, so what the page says is what the compiler was built from.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "dialect.md"
ODS = ROOT / "dialect" / "IR"

# The custom form of operations that ODS gives none for.
WRITTEN_BY_HAND = {"program": "@name(%name: type, ...) (attributes {...})? { ... }"}

# Memory effects that the traits do not say, in words.
OTHER_EFFECTS = {
    "alloc": "makes memory: is never merged; erased when unused",
    "extern_call": "reads and writes memory; none if `pure`",
    "expect": "none with a condition; without one reads and writes memory",
    "ld": "as if it read and wrote memory: is never merged or erased, so that a loop may poll",
    "program": "those of its body",
}

# Files of ODS in the order of the page, with the heading of what each defines.
GROUPS = {
    "DitronIdentityOps.td": "Who am I, and where is this object",
    "DitronSignalOps.td": "Signals",
    "DitronDataOps.td": "Data movement, order, collective synchronisation",
    "DitronPacketOps.td": "Packets: data that carries its own flag",
    "DitronAtomicOps.td": "Atomic accesses and NVLink SHARP",
    "DitronThreadOps.td": "Threads of a program, and the escape",
    "DitronHostOps.td": "Host programs: numbers, memory, streams",
    "DitronStreamOps.td": "Host programs: work on streams",
}


def tblgen() -> Path:
    """LLVM's TableGen; raises FileNotFoundError that says how to get it."""
    for name in ("llvm-tblgen-22", "/usr/lib/llvm-22/bin/llvm-tblgen", "llvm-tblgen"):
        if found := shutil.which(name):
            return Path(found).resolve()
    raise FileNotFoundError("llvm-tblgen of LLVM 22 was not found: install Debian's llvm-22-dev")


class Records:
    """The records of the dialect's ODS, as TableGen evaluated them."""

    def __init__(self) -> None:
        binary = tblgen()
        include = binary.parent.parent / "include"
        command = [binary, "--dump-json", "-I", include, "-I", ODS, ODS / "DitronOps.td"]
        self.all = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    def resolve(self, reference: dict) -> dict:
        return self.all[reference["def"]]

    def named(self, kind: str) -> list[dict]:
        """Records of a TableGen class that are this dialect's, in the order they were written."""
        mine = [self.all[name] for name in self.all["!instanceof"][kind]]
        mine = [record for record in mine if record["!locs"][0].startswith("Ditron")]
        return sorted(mine, key=place)

    def ops(self) -> list[dict]:
        return self.named("Op")

    def enums(self) -> list[dict]:
        return self.named("EnumInfo")

    def cases(self, enum: dict) -> list[tuple[str, int]]:
        """Keyword and integer value of each case."""
        found = [self.resolve(case) for case in enum["enumerants"]]
        return [(case["str"], case["value"]) for case in found]

    def interfaces(self) -> list[dict]:
        """The op interfaces, in the order they were written."""
        return self.named("Ditron_OpInterface")

    def traits(self) -> list[dict]:
        return self.named("Ditron_OpTrait")

    def has(self, op: dict, asked: dict) -> bool:
        """Whether an operation has an interface or a trait, itself or by an interface that inherits it."""
        found = [trait["def"] for trait in op["traits"]]
        while found:
            name = found.pop()
            if name == asked["!name"]:
                return True
            found += [base["def"] for base in self.all[name].get("baseInterfaces", [])]
        return False

    def mnemonic(self, enum: dict) -> str:
        """``scope`` of ``#ditron.scope<node>``."""
        attrs = (self.all[name] for name in self.all["!instanceof"]["EnumAttr"])
        return next(a["mnemonic"] for a in attrs if a["enum"]["def"] == enum["!name"])


def place(record: dict) -> tuple[int, int]:
    """Where a record was written: its group's rank and the line."""
    file, line = record["!locs"][-1 if "Op" in record["!superclasses"] else 0].rsplit(":", 1)
    groups = list(GROUPS)
    return (groups.index(file) if file in groups else len(groups), int(line))


def prose(text: str) -> str:
    return textwrap.dedent(text.strip("\n")).strip()


def syntax(op: dict) -> str:
    """The custom form on one line: ``%x`` an operand, ``<x>`` a keyword of enumeration x."""
    form = op.get("assemblyFormat") or WRITTEN_BY_HAND[op["opName"]]
    form = re.sub(r"custom<Keyword>\(\$(\w+)\)", r"<\1>", form)
    form = re.sub(r"custom<Ints>\(\$(\w+), \$\w+\)", r"[\1, ...]", form)
    form = re.sub(r"custom<Grid>\(\$(\w+), \$\w+\)", r"(\1, ...)", form)
    form = re.sub(r"custom<Ends>\([^)]*\)", "%src to %dst on %peer | %src on %peer to %dst", form).replace("``", "")
    form = form.replace("^", "").replace("attr-dict", "")
    form = re.sub(r"\(`(nbi|pure|uniform|zeroed)` \$\w+\)\?", r"(\1)?", form)
    form = re.sub(r"type\(\$(\w+)\)", r"type-of-\1", form)
    form = re.sub(r"functional-type\(\$\w+, \$\w+\)", "function-type", form)
    form = re.sub(r"\$(symbol|libname|libpath|label)\b", r'"\1"', form)
    form = form.replace("$probability", "<probability>")
    form = re.sub(r"\$(\w+)", r"%\1", form).replace("`", "")
    form = re.sub(r"\s+", " ", form).replace(" ,", ",").replace(" [ ", "[").replace(" ]", "]")
    form = form.replace(" ( ", "(").replace(" )", ")").strip()
    return f"ditron.{op['opName']} {form}".rstrip()


def effects(records: Records, op: dict) -> str:
    """What passes may assume, in words."""
    traits = [records.resolve(trait) for trait in op["traits"]]
    names = [trait["!name"] for trait in traits]
    if "Pure" in names:
        return "none: may be moved, merged with its like, and erased when unused"
    if "NoMemoryEffect" in names:
        return "none: may be merged with its like and erased when unused, but is executed only where it stands"
    if op["opName"] in OTHER_EFFECTS:
        return OTHER_EFFECTS[op["opName"]]
    if "Ditron_Ordered" in names:
        return "reads and writes memory: is never merged or erased, and nothing moves across it"
    for trait in traits:
        if "MemoryEffects" in trait["!superclasses"]:
            return {"MemRead": "reads memory", "MemWrite": "writes memory"}[trait["effects"][0]["def"]]
    raise ValueError(f"{op['opName']}: the page has no words for its memory effects")


def default_of(record: dict) -> str:
    """``; default `ge` ``, or nothing for what must be given."""
    if record["!name"] == "UnitAttr":
        return "; left out by default"
    value = record.get("defaultValue")
    if value is None:
        return ""
    value = value.strip('"').rsplit("::", 1)[-1]
    return f"; default `{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', value).lower()}`" if value else "; default empty"


def enum_of(records: Records, record: dict) -> dict | None:
    while "enum" not in record and record.get("baseAttr"):
        record = records.resolve(record["baseAttr"])
    return records.resolve(record["enum"]) if "enum" in record else None


def plain(kind: str) -> str:
    """A constraint's summary with types as code, short ones for integers and floats."""
    kind = re.sub(r"(\d+)-bit signless integer", r"`i\1`", kind)
    kind = re.sub(r"(\d+)-bit float", r"`f\1`", kind)
    return re.sub(r"(!\w+\.\w+(<[^>]*>)?)", r"`\1`", kind)


def row(records: Records, reference: dict, name: str) -> str:
    """One line on an operand, an attribute or a result."""
    record = records.resolve(reference)
    says = record.get("summary") or ""
    constraint = records.resolve(record["constraint"]) if "constraint" in record else record
    if "Attr" not in constraint["!superclasses"]:
        if "Variadic" in constraint["!superclasses"]:
            base = records.resolve(constraint["baseType"])
            any_type = base["!name"] == "AnyType"
            kind = "any number of values of any type" if any_type else f"any number: {plain(base['summary'])}"
        else:
            kind = plain(constraint["summary"])
        return f"| `%{name}` | {kind} | {says} |"
    enum = enum_of(records, constraint)
    kind = f"[{records.mnemonic(enum)}](#{records.mnemonic(enum)})" if enum else "keyword"
    storage = constraint.get("storageType", "").rsplit("::", 1)[-1].strip()
    kind = (
        {
            "StringAttr": "string",
            "IntegerAttr": "integer",
            "FloatAttr": "number",
            "ArrayAttr": "strings",
            "DenseI64ArrayAttr": "integers",
            "DictionaryAttr": "dictionary",
            "FlatSymbolRefAttr": "symbol",
        }.get(storage, kind)
        if not enum
        else kind
    )
    return f"| `{name}` | {kind}{default_of(constraint)} | {says.split(' that is ')[0]} |"


def op_section(records: Records, op: dict) -> str:
    lines = [f"### `ditron.{op['opName']}`", "", f"*{op['summary']}*", ""]
    lines += ["```text", syntax(op), "```", "", prose(op["description"]), ""]
    lines += [f"Memory effects: {effects(records, op)}.", ""]
    if has := [name_of(asked) for asked in (*records.interfaces(), *records.traits()) if records.has(op, asked)]:
        lines += ["Interfaces and traits: " + ", ".join(f"[{name}](#{name.lower()})" for name in has) + ".", ""]
    arguments, results = op["arguments"]["args"], op["results"]["args"]
    if arguments or results:
        lines += ["| name | what | meaning |", "| --- | --- | --- |"]
        lines += [row(records, reference, name) for reference, name in arguments]
        lines += [row(records, reference, name).replace("| `%", "| result `%", 1) for reference, name in results]
        lines.append("")
    return "\n".join(lines)


def name_of(record: dict) -> str:
    """The name of an interface or a trait, in C++ and in Python."""
    return record.get("cppInterfaceName") or record["trait"]


def accessor(method: str) -> str:
    """``signal_op`` of ``getSignalOp``: the attribute in Python."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.sub(r"^get", "", method)).lower()


def interface_section(records: Records, record: dict) -> str:
    """What an interface or a trait says, what it is asked, and which operations have it."""
    methods = [records.resolve(method) for method in record.get("methods", [])]
    text = " ".join(prose(record.get("description") or record["summary"]).split())
    lines = [f"### {name_of(record)}", "", f"{text[0].upper()}{text[1:].rstrip('.')}.", ""]
    if bases := [name_of(records.resolve(base)) for base in record.get("baseInterfaces", [])]:
        lines += ["Also: " + ", ".join(f"[{base}](#{base.lower()})" for base in bases) + ".", ""]
    if methods:
        lines += ["| C++ | Python | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{m['name']}()` | `{accessor(m['name'])}` | {m['description'].rstrip('.')} |" for m in methods]
        lines.append("")
    ops = [op["opName"] for op in records.ops() if records.has(op, record)]
    lines.append("Operations: " + ", ".join(f"[{n}](#ditron{n})" for n in ops) + ".")
    return "\n".join(lines)


def type_section(record: dict) -> str:
    return f"### `!ditron.{record['mnemonic']}`\n\n*{plain(record['summary'])}*\n\n{prose(record['description'])}"


def enum_section(records: Records, enum: dict) -> str:
    mnemonic, cases = records.mnemonic(enum), records.cases(enum)
    lines = [
        f"### {mnemonic}",
        "",
        f"*{enum['summary']}*, stand-alone `#ditron.{mnemonic}<{cases[0][0]}>`.",
        "",
        prose(enum["description"]),
        "",
        "| keyword | value |",
        "| --- | --- |",
    ]
    lines += [f"| `{keyword}` | {value} |" for keyword, value in cases]
    return "\n".join(lines) + "\n"


def functions() -> dict[str, str]:
    """Name -> signature of each function of ditron.language that makes an operation."""
    found = {}
    for path in sorted((ROOT / "ditron" / "language").glob("[a-z]*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and "primitive" in (ast.unparse(d) for d in node.decorator_list):
                node.args.args = [argument for argument in node.args.args if argument.arg != "_semantic"]
                node.args.defaults = node.args.defaults[:-1]  # of _semantic, the last
                found[node.name] = f"dl.{node.name}({ast.unparse(node.args)})"
    return found


def function_table(ops: list[dict]) -> str:
    """Which function of ditron.language makes which operation."""
    signatures = functions()
    lines = ["| operation | in kernels (`import ditron.language as dl`) |", "| --- | --- |"]
    for op in ops:
        made = [signatures[name] for name in (op["opName"], f"{op['opName']}_nbi") if name in signatures]
        if made:
            text = "<br>".join(f"`{signature}`" for signature in made)
            lines.append(f"| [{op['opName']}](#ditron{op['opName']}) | {text} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page, in Markdown."""
    records = Records()
    dialect = records.all["Ditron_Dialect"]
    parts = [
        "<!-- Written by docs/generate_dialect.py from dialect/IR/*.td: change those, not this. -->",
        f"# The ditron dialect\n\n*{dialect['summary']}*",
        prose(dialect["description"]),
    ]
    ops = records.ops()
    index = ["| group | operations |", "| --- | --- |"]
    for number, heading in enumerate(GROUPS.values()):
        names = [op["opName"] for op in ops if place(op)[0] == number]
        index.append(f"| {heading} | " + ", ".join(f"[{n}](#ditron{n})" for n in names) + " |")
    parts.append("\n".join(index))
    parts.append(function_table(ops))
    parts.append("## Types")
    parts += [type_section(record) for record in records.named("TypeDef")]
    for number, heading in enumerate(GROUPS.values()):
        parts.append(f"## {heading}")
        parts += [op_section(records, op).strip() for op in ops if place(op)[0] == number]
    parts.append(
        "## Interfaces and traits\n\nWhat passes ask of an operation, whichever it is: in C++ by "
        "`dyn_cast<SignalUpdateOpInterface>(op)` and `op->hasTrait<ProgramWide>()`, in Python by "
        "`isinstance(op, ditron.SignalUpdateOpInterface)` and `isinstance(op, ditron.ProgramWide)`."
    )
    parts += [interface_section(records, record) for record in (*records.interfaces(), *records.traits())]
    parts.append("## Enumerations\n\nThe values are what device libraries and the simulator take; they never change.")
    parts += [enum_section(records, enum).strip() for enum in records.enums()]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/dialect.md from the dialect's ODS.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    check = parser.parse_args().check
    text = page()
    if not check:
        PAGE.write_text(text)
        return 0
    if not PAGE.exists() or PAGE.read_text() != text:
        print("docs/dialect.md is stale: run python docs/generate_dialect.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
