"""python -m flashcore: what is installed here."""

from ._config import show_config

show_config()
