"""Real servers of a bare repository on the loopback: `git daemon`, and `git http-backend` behind HTTP with a login."""

import base64
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

LOGIN = ("ann", "pa:ss/w@rd %21")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _answer(self, body: bytes) -> None:
        server: GitServer = self.server
        server.paths.append(self.path)
        if server.moved_to is not None:
            self.send_response(302)
            self.send_header("Location", server.moved_to + self.path)
            self.end_headers()
            return
        wanted = "Basic " + base64.b64encode(":".join(LOGIN).encode()).decode()
        if server.needs_login and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        head, _, content = self._backend(body).partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _backend(self, body: bytes) -> bytes:
        server: GitServer = self.server
        parts = urlsplit(self.path)
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        return subprocess.run(["git", "http-backend"], env=environ, input=body, capture_output=True, check=True).stdout


class GitServer(ThreadingHTTPServer):
    """What the handler looks at."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.needs_login = False
        self.moved_to: str | None = None
        self.paths: list[str] = []

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


@contextmanager
def over_http(folder: Path) -> Iterator[GitServer]:
    """All repositories below a folder."""
    server = GitServer(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def over_git(folder: Path) -> Iterator[str]:
    """The same by `git daemon`; yields host and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--reuseaddr", "--export-all", f"--base-path={folder}", "--listen=127.0.0.1", f"--port={port}"]
    daemon = Path(subprocess.check_output(["git", "--exec-path"], text=True).strip()) / "git-daemon"
    process = subprocess.Popen([daemon, *options, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("git daemon did not begin")
