"""`xnagent demo`: a whole session on a small real repository, with a scripted model and everything else as always."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from argparse import Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from xnagent.app.boxing import choose
from xnagent.app.host import Host
from xnagent.app.running import SessionSpec, run_session
from xnagent.cli.console import Console
from xnagent.cli.follow import Follower
from xnagent.cli.inspect import read
from xnagent.cli.options import changed_settings, models_of
from xnagent.cli.run import announce, start_logging
from xnagent.cli.session import drive
from xnagent.config import Settings
from xnagent.config.load import with_settings
from xnagent.config.places import home_folder, shipped
from xnagent.config.sources import Setting, from_file
from xnagent.errors import UsageError
from xnagent.inspect.report import overview_text, part_text
from xnagent.models.catalog import ModelEntry
from xnagent.store.sessions import new_session_id
from xnagent.testing.server import ScriptedServer
from xnagent.workspaces.git import Git, require_git, search_path

PACKAGE: Final = "demo/tally"
SCRIPT: Final = "demo/script.toml"
SETTINGS: Final = "demo/settings.toml"
OBJECTIVE: Final = "demo/objective.txt"
PARTS: Final = ("runs", "facts", "deltas", "spine", "cost")
"""What is shown beside the overview, which has tasks and rebases."""
COMMITTED_AT: Final = "1772323200"
SHOWN_PROBLEMS: Final = 20


def execute(arguments: Namespace, console: Console) -> int:
    """Run it; the session's exit code, or 1 if the scripted model was asked what it did not expect."""
    anyio.run(require_git, dict(os.environ))
    folder = _new_folder()
    environ = with_python(dict(os.environ), spare=folder / "bin")
    host = Host(home=folder / "home", environ=environ)
    if hasattr(arguments, "home"):
        host = replace(host, home=home_folder(environ, arguments.home))
    repository = folder / "tally"
    anyio.run(make_repository, repository, environ)
    console.say(f"a copy of {PACKAGE}, whose tests fail, is in {repository}")
    try:
        return _demonstrate(arguments, host, repository=repository, console=console)
    finally:
        console.say(f"kept: {folder} (remove it when you have seen enough)")


def with_python(environ: dict[str, str], *, spare: Path) -> dict[str, str]:
    """The environment with this Python first on the PATH: the checks call `python3`.

    Where it goes by another name only, it gets this one in the folder `spare`.
    """
    programs = Path(sys.executable).parent
    if not (programs / "python3").exists():
        spare.mkdir()
        (spare / "python3").symlink_to(sys.executable)
        programs = spare
    return {**environ, "PATH": os.pathsep.join([str(programs), search_path(environ)])}


def _new_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="xnagent-demo-")).resolve()
    except OSError as error:
        raise UsageError(f"NO_FOLDER: no temporary folder can be made ({error.strerror}); set TMPDIR") from error


async def make_repository(folder: Path, environ: dict[str, str]) -> None:
    """The demo's package as a git repository with one commit; needs no identity and no configuration."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(shipped(PACKAGE), folder, ignore=skip, copy_function=shutil.copyfile)
    git = Git(environ=environ, git_dir=folder / ".git", work_tree=folder, date=COMMITTED_AT)
    await git.run("init", "--quiet", "--template=", "--initial-branch=main")
    await git.run("add", "--all")
    commit = await git.commit(await git.text("write-tree"), parents=(), message="tally, with failing tests")
    await git.run("update-ref", "HEAD", commit)


def demo_settings(base_url: str) -> Settings:
    """The demo's settings with the address of its model."""
    address = Setting(path=("planner", "model", "base_url"), value=base_url, origin="the scripted server")
    return with_settings(Settings(), [*from_file(shipped(SETTINGS)), address])


def demo_objective() -> str:
    """What the demo's session is asked to do."""
    return shipped(OBJECTIVE).read_text(encoding="utf-8").strip()


def _demonstrate(arguments: Namespace, host: Host, *, repository: Path, console: Console) -> int:
    session = new_session_id(host.clock)
    with ScriptedServer(shipped(SCRIPT), require_reasoning=True) as server:
        settings = changed_settings(arguments, demo_settings(server.base_url))
        chains = models_of(settings, host)
        start_logging(arguments, console)
        announce(settings, chains, box=choose(settings.sandbox, host.environ), console=console)
        console.say(f"session {session}")
        spec = SessionSpec(objective=demo_objective(), repository=repository, settings=settings, session=session)
        follower = Follower(host.place(session), session, console=console)
        code = drive(partial(run_session, host, spec), follower, console=console)
    _show(host, session, entry=chains["planner"][0], console=console)
    return judged(server, code, console=console)


def _show(host: Host, session: str, *, entry: ModelEntry, console: Console) -> None:
    reading = read(host.place(session))
    look = f"xnagent inspect {session} --home {host.home}"
    if console.output != "text":
        console.say(f"{CLOSING}\nlook closer: {look}")
        return
    parts = [part_text(reading, part) for part in PARTS]
    closing = (
        f"{CLOSING}\n\nlook closer: {look}\nread it back, byte for byte: xnagent replay {session} --home {host.home}"
    )
    console.answer("\n\n".join([overview_text(reading), *parts, priced(entry), closing]))


CLOSING: Final = """\
The model's replies were scripted: a server on this machine gave the answers of configs/demo/script.toml and simulated
a provider's prefix cache. Everything else was real: the requests and their bytes, the tools, git, the merges, the
conflict, the failed check, the rebases, and every check that was run."""


def priced(entry: ModelEntry) -> str:
    """Which prices the money is counted with."""
    price = entry.price
    if price is None:
        return f"no prices are known for {entry.name}"
    return (
        f'money at the prices of "{entry.name}" in configs/models.toml, in dollars for a million tokens: '
        f"input {price.input_usd:.2f}, cached {price.cached_usd:.2f}, output {price.output_usd:.2f}\n({entry.source})"
    )


def judged(server: ScriptedServer, code: int, *, console: Console) -> int:
    """The session's exit code, unless the model was asked something that does not belong to the demo."""
    try:
        server.check()
    except AssertionError as error:
        console.warn("\n".join(str(error).splitlines()[:SHOWN_PROBLEMS]))
        return code or 1
    return code
