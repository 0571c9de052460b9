"""llama.cpp's own HTTP server on the loopback, from the wheel `xllamacpp`.

    python serve.py MODEL.gguf --template fenced.jinja --slots 3

The first line of stdout is its address, `http://127.0.0.1:PORT`; it serves until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from pathlib import Path
from types import ModuleType


def load() -> ModuleType:
    """The library. Its threads must sleep while they wait: where others use the cores too, spinning ones stall it."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    return importlib.import_module("xllamacpp")


def start(library: ModuleType, options: argparse.Namespace) -> object:
    """A server with what `llama-server` takes on its command line; it has `listening_address`."""
    given = library.CommonParams()
    given.model.path = str(options.model)
    given.hostnames = ["127.0.0.1"]
    given.port = 0
    given.ui = False
    given.verbosity = 0
    given.n_parallel = options.slots
    given.kv_unified = False
    given.n_ctx = options.slots * options.window
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = options.threads
    given.slot_prompt_similarity = options.similarity
    given.cache_ram_mib = options.cache_mib
    given.cache_idle_slots = options.cache_mib > 0
    given.use_jinja = True
    if options.template:
        given.chat_template = options.template.read_text(encoding="utf-8")
    return library.Server(given)


def main() -> None:
    """Serve until told to stop; then end at once, whatever is being answered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--template", type=Path, help="a chat template in place of the model's own")
    parser.add_argument("--slots", type=int, default=3)
    parser.add_argument("--window", type=int, default=16_384, help="tokens of each slot")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--similarity", type=float, default=0.1, help="llama.cpp's --slot-prompt-similarity")
    parser.add_argument("--cache-mib", type=int, default=0, help="llama.cpp's --cache-ram; 0: none")
    options = parser.parse_args()
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    server = start(load(), options)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    signal.sigwait(ends)
    os._exit(0)


if __name__ == "__main__":
    main()
