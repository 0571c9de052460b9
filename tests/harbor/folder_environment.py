"""An environment of Harbor that is a folder and holds nothing in: loaded by Harbor, in Harbor's own Python."""

import asyncio
import os
import re
import shutil
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

INSIDE = re.compile(r"(?<![\w./-])/(app|logs|tests|skills|installed-agent)(?=[/\s'\"]|$)")


class FolderEnvironment(BaseEnvironment):
    """What stands at the top of a container stands in a folder of the trial."""

    @staticmethod
    def type() -> str:
        return "folder"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    @property
    def root(self) -> Path:
        return self.trial_paths.trial_dir.resolve() / "container"

    def _validate_definition(self) -> None:
        pass

    def _inside(self, text: str) -> str:
        return INSIDE.sub(lambda found: f"{self.root}/{found[1]}", text)

    async def start(self, force_build: bool) -> None:
        for name in ("app", "logs/agent", "logs/verifier", "logs/artifacts", "tests", "installed-agent", "home"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for name in ("app", "skills"):
            shutil.copytree(self.environment_dir / name, self.root / name, dirs_exist_ok=True)

    async def stop(self, delete: bool) -> None:
        pass

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = Path(self._inside(target_path))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source_path, target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._inside(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copyfile(self._inside(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._inside(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None) -> ExecResult:
        given = {name: self._inside(value) for name, value in (self._merge_env(env) or {}).items()}
        passed_on = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        own = {"PATH": os.environ["XNAGENT_TEST_PATH"], "HOME": str(self.root / "home")}
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            self._inside(command),
            cwd=self._inside(cwd or "/app"),
            env={**passed_on, **own, **given},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)
