"""Flower's SuperNode, in a process that ends when its connection is lost for good.

When a connection breaks during a TLS handshake, Flower gives up and its main function returns, but
a thread that serves its local interface keeps the process alive: it looks healthy, and never asks
the server for work again.
"""

import os
import sys
from importlib.metadata import entry_points

PROGRAM = "flower-supernode"


def main() -> None:
    """Run Flower's program, and leave when it does, whatever its threads are doing."""
    (entry,) = entry_points(group="console_scripts", name=PROGRAM)
    program, code = entry.load(), 1
    try:
        program()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
