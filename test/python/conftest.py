"""What the tests of the command line share."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TESSERA_BINARY", str(ROOT / "build" / "bin" / "tessera"))


class Finished:
    """A finished command: exit status, both streams, and the JSON on standard output."""

    def __init__(self, done):
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def tessera_command(tmp_path):
    """Runs the command line in an empty folder."""

    def run(*arguments, timeout=120, **kwargs):
        # Without bytecode: a test may write a module twice within the second by which Python tells its versions apart.
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **kwargs.pop("env", {}))
        command = [BINARY, *map(str, arguments)]
        return Finished(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=timeout,
                                       env=environment, **kwargs))

    return run
