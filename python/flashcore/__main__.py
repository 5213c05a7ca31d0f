"""python -m flashcore: prints what is installed here."""

import argparse

from ._config import show_config

argparse.ArgumentParser(prog="python -m flashcore", description=show_config.__doc__).parse_args()
show_config()
