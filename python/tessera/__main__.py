"""The command line: `tessera` and `python -m tessera`, the same commands as the program that `make` builds."""

import os
import signal
import sys

from ._tessera import command_line


def main() -> None:
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, a program does not
    status = command_line([sys.executable, "-m", "tessera"], sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # as the program ends: threads may still be at work, and signals are no longer Python's


if __name__ == "__main__":
    main()
