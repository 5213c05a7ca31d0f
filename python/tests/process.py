"""Python in a process of its own."""

import os
import subprocess
import sys


def python(*arguments, **environment):
    """Returns the finished process: returncode, stdout and stderr."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
