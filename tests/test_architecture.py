"""The rules of the house that no linter holds: sizes, names, suppressions, banners, patches, paths.

Each test collects every offence and shows them all, as `file:line what`.
"""

import ast
import io
import re
import statistics
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "xnagent"
TESTS = ROOT / "tests"

MAX_MODULE_LINES = 400
MAX_TEST_MODULE_LINES = 500
MAX_FUNCTION_LINES = 50
MAX_MEDIAN_FUNCTION_LINES = 10
MAX_METHODS = 12
MAX_PARAMETERS = 6
MAX_POSITIONAL = 2
MAX_NESTING = 3
MAX_COMMENT_SHARE = 0.05
MAX_PATCHES_PER_TEST = 0.03
OWN_BUDGETS = {"orchestrator.py": 200, "agents/step.py": 150}
"""Modules that would be the first to swell."""

VAGUE_MODULES = {"base", "common", "helper", "helpers", "impl", "manager", "managers", "misc", "util", "utils"}
VAGUE_CLASS = re.compile(r"(Manager|Impl|Helper|Util|Utils)$|^(Base|Abstract)[A-Z]|[a-z]Base$")
SUPPRESSION = re.compile(
    r"#\s*(noqa|ruff:|flake8:|type:\s*ignore|mypy:|pyright:|pylint:|pragma:|nosec|fmt:|isort:|yapf:)", re.IGNORECASE
)
UNSUPPRESSED_RULES = ("ALL", "BLE", "C9", "PLC04", "PLR09", "T20")
"""Not even by a per-file ignore in pyproject.toml."""

BANNER = re.compile(r"^#\s*([-=*#~_+─━═])\1{2,}|([-=*#~_+─━═])\2{2,}\s*$")
READS_ENVIRONMENT = re.compile(r"^(config(/.*)?|cli/.*)\.py$|^config/")

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}


@dataclass(frozen=True)
class Module:
    """One parsed source file."""

    path: Path
    root: Path = PACKAGE

    @cached_property
    def name(self) -> str:
        return self.path.relative_to(self.root).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    @property
    def comments(self) -> list[tokenize.TokenInfo]:
        return [token for token in self.tokens if token.type == tokenize.COMMENT]

    def at(self, place: ast.AST | tokenize.TokenInfo, what: str) -> str:
        line = place.start[0] if isinstance(place, tokenize.TokenInfo) else getattr(place, "lineno", 0)
        return f"{self.name}:{line} {what}"

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def functions(self) -> Iterator[Function]:
        return self.nodes(ast.FunctionDef, ast.AsyncFunctionDef)


def modules_under(folder: Path) -> list[Module]:
    return [Module(path, folder) for path in sorted(folder.rglob("*.py"))]


SOURCES = modules_under(PACKAGE)
TEST_SOURCES = modules_under(TESTS)


def line_count(module: Module) -> int:
    return len(module.text.splitlines())


def docstring_lines(node: Function) -> int:
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is None:
        return 0
    return (first.end_lineno or first.lineno) - first.lineno + 1


def function_lines(node: Function) -> int:
    """Lines from `def` to the end, without the docstring: a contract may be long, the logic not."""
    return (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)


def parameters(node: Function) -> tuple[list[str], list[str]]:
    """Positional and keyword-only names; `self`, `cls` and unused `_names` that a third party dictates don't count."""

    def counted(arguments: list[ast.arg]) -> list[str]:
        return [a.arg for a in arguments if a.arg not in {"self", "cls"} and not a.arg.startswith("_")]

    return counted(node.args.posonlyargs + node.args.args), counted(node.args.kwonlyargs)


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def is_elif(parent: ast.AST, child: ast.AST) -> bool:
    return isinstance(parent, ast.If) and isinstance(child, ast.If) and parent.orelse == [child]


def nesting(node: ast.AST) -> int:
    """Depth of blocks under a node; an `elif` stands beside its `if`, a nested function starts anew."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, SCOPES):
            own = isinstance(child, BLOCKS) and not is_elif(node, child)
            deepest = max(deepest, own + nesting(child))
    return deepest


def report(offences: Iterable[str]) -> None:
    found = list(offences)
    assert not found, "\n" + "\n".join(found)


def test_modules_are_short():
    report(f"{m.name}: {line_count(m)} lines" for m in SOURCES if line_count(m) > MAX_MODULE_LINES)


def test_test_modules_are_short():
    report(f"tests/{m.name}: {line_count(m)} lines" for m in TEST_SOURCES if line_count(m) > MAX_TEST_MODULE_LINES)


def test_modules_with_a_budget_of_their_own_keep_it():
    report(f"{m.name}: {line_count(m)} lines" for m in SOURCES if line_count(m) > OWN_BUDGETS.get(m.name, 10_000))


def test_functions_are_short():
    report(
        m.at(f, f"{f.name}: {function_lines(f)} lines")
        for m in SOURCES
        for f in m.functions()
        if function_lines(f) > MAX_FUNCTION_LINES
    )


def test_the_median_function_is_short():
    lengths = [function_lines(f) for m in SOURCES for f in m.functions()]
    assert not lengths or statistics.median(lengths) <= MAX_MEDIAN_FUNCTION_LINES


def test_classes_have_few_methods():
    report(
        m.at(node, f"{node.name}: {count} methods")
        for m in SOURCES
        for node in m.nodes(ast.ClassDef)
        if (count := sum(isinstance(item, Function) for item in node.body)) > MAX_METHODS
    )


def test_functions_have_few_parameters():
    report(
        m.at(f, f"{f.name}: {len(positional) + len(keyword)} parameters")
        for m in SOURCES
        for f in m.functions()
        for positional, keyword in [parameters(f)]
        if len(positional) + len(keyword) > MAX_PARAMETERS
    )


def test_functions_have_few_positional_parameters():
    report(
        m.at(f, f"{f.name}: {len(positional)} positional parameters; make the others keyword-only")
        for m in SOURCES
        for f in m.functions()
        for positional, _ in [parameters(f)]
        if len(positional) > MAX_POSITIONAL and not is_dunder(f.name)
    )


def test_blocks_are_not_nested_deeply():
    report(
        m.at(f, f"{f.name}: nested {nesting(f)} deep")
        for m in SOURCES
        for f in m.functions()
        if nesting(f) > MAX_NESTING
    )


def test_no_module_has_a_vague_name():
    parts = (part for m in SOURCES for part in [m.path.stem, *m.path.relative_to(PACKAGE).parts[:-1]])
    report(part for part in parts if part.strip("_") in VAGUE_MODULES)


def test_no_class_has_a_vague_name():
    report(m.at(c, c.name) for m in SOURCES for c in m.nodes(ast.ClassDef) if VAGUE_CLASS.search(c.name))


def test_no_rule_is_suppressed_in_the_source():
    report(m.at(c, c.string) for m in SOURCES for c in m.comments if SUPPRESSION.search(c.string))


def test_no_rule_that_matters_is_suppressed_in_the_configuration():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    ignored = {"everywhere": settings["ignore"]} | {
        pattern: rules for pattern, rules in settings["per-file-ignores"].items() if "xnagent" in pattern
    }
    report(
        f"{where}: {rule}" for where, rules in ignored.items() for rule in rules if rule.startswith(UNSUPPRESSED_RULES)
    )


def test_no_banner_stands_inside_a_function():
    def inside(module: Module) -> set[int]:
        return {line for f in module.functions() for line in range(f.lineno, (f.end_lineno or f.lineno) + 1)}

    report(
        m.at(c, c.string) for m in SOURCES for c in m.comments if BANNER.search(c.string) and c.start[0] in inside(m)
    )


def test_comments_are_few():
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    comments = sum(len(m.comments) for m in SOURCES)
    code = sum(len({token.start[0] for token in m.tokens if token.type not in skipped}) for m in SOURCES)
    assert comments <= code * MAX_COMMENT_SHARE, f"{comments} comments in {code} lines of code"


def environment_reads(module: Module) -> Iterator[str]:
    names = {"environ", "environb", "getenv", "getenvb"}
    for node in module.nodes(ast.Attribute, ast.ImportFrom):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os" and node.attr in names:
                yield module.at(node, f"os.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (module.at(node, f"os.{a.name}") for a in node.names if a.name in names)


def test_the_environment_is_read_in_one_place():
    report(read for m in SOURCES if not READS_ENVIRONMENT.match(m.name) for read in environment_reads(m))


def is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        called = value.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name in MUTABLE_CALLS
    return isinstance(value, MUTABLE)


def assigned_names(statement: ast.stmt) -> Iterator[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return (target.id for target in targets if isinstance(target, ast.Name))


def test_no_module_holds_mutable_state():
    report(
        m.at(statement, f"{name}: a mutable global; name a constant in UPPER_CASE")
        for m in SOURCES
        for statement in m.tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and is_mutable(statement.value)
        for name in assigned_names(statement)
        if not (name.isupper() or is_dunder(name))
    )


def test_no_function_rebinds_a_global():
    report(m.at(node, "global") for m in SOURCES for node in m.nodes(ast.Global))


def is_patch(node: ast.AST) -> bool:
    """`monkeypatch.anything(…)`, `patch(…)`, `mock.patch…(…)`, `patch.object(…)`."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return bool(re.match(r"(mp|monkeypatch|mocker)\.|((unittest\.)?mock\.)?patch(\.|$)", called))


def test_tests_patch_almost_nothing():
    patches = [m.at(node, "patch") for m in TEST_SOURCES for node in ast.walk(m.tree) if is_patch(node)]
    tests = sum(f.name.startswith("test_") for m in TEST_SOURCES for f in m.functions())
    assert len(patches) <= tests * MAX_PATCHES_PER_TEST, "\n".join([f"{len(patches)} patches, {tests} tests", *patches])


def shipped_files() -> Iterator[Path]:
    """Everything in the checkout that a person wrote: no environments, caches or version control."""

    def walk(folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                continue
            if path.is_file():
                yield path
            elif not is_made_by_a_tool(path):
                yield from walk(path)

    return walk(ROOT)


def is_made_by_a_tool(folder: Path) -> bool:
    made = {".git", "__pycache__", "build", "dist", "htmlcov", "node_modules", ".hypothesis", ".xnagent"}
    return folder.name in made or folder.name.endswith(("_cache", ".egg-info")) or (folder / "pyvenv.cfg").exists()


FORBIDDEN_TEXTS = {
    "a registry": re.compile(
        r"py[p]i\.org|python[h]osted\.org|registry\.np[m]js|[-_](extra[-_])?index[-_]u[r]l|/opt/py[p]i"
    ),
    "a path of one machine": re.compile(
        r"(?<![\w.}$~-])/(wor[k]|roo[t]|Use[r]s/\w+|home/(?!user\b|me\b|you\b)[a-z]+)/"
    ),
}
"""The letters in brackets keep this file from naming what it forbids."""


@pytest.mark.parametrize("what", sorted(FORBIDDEN_TEXTS))
def test_no_file_names(what: str):
    forbidden = FORBIDDEN_TEXTS[what]
    report(
        f"{path.relative_to(ROOT)}:{number} {what}: {found.group()}"
        for path in shipped_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), 1)
        if (found := forbidden.search(line))
    )


def test_the_rules_see_the_package():
    assert "__init__.py" in {m.name for m in SOURCES}
    assert "test_architecture.py" in {m.name for m in TEST_SOURCES}
