"""A build with the simulator: how its device code is compiled, and linking its command with other objects."""
import json
import pathlib
import re
import shlex
import subprocess

OF_LIBRARY = " -o src/"  # in the commands that compile it
DEVICE = "-D__CUDACC__"  # and in those that compile device code


class BuildError(Exception):
    """Something does not compile, link or run, or is not there."""


def run(words, seconds=None, **options):
    """Exit status and output; 124 when it takes longer."""
    try:
        ran = subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, timeout=seconds, check=False, **options)
    except subprocess.TimeoutExpired:
        return 124, f"no end after {seconds} s"
    return ran.returncode, ran.stdout


class Build:
    def __init__(self, folder, launcher=()):
        self.folder, self.launcher = folder, list(launcher)

    @property
    def command(self):
        return self.folder / "bin/flashcore"

    def units(self):
        """[(file, the words of the command that compiles it)] of the library."""
        listed = json.loads((self.folder / "compile_commands.json").read_text())
        return [(pathlib.Path(unit["file"]), shlex.split(unit["command"])) for unit in listed
                if OF_LIBRARY in unit["command"]]

    def device_units(self):
        return [(file, words) for file, words in self.units() if DEVICE in words]

    def unit(self, end):
        """The one whose path ends so."""
        found = [unit for unit in self.units() if str(unit[0]).endswith("/" + end)]
        if len(found) != 1:
            raise BuildError(f"{len(found)} translation units end in {end}, wanted one")
        return found[0]

    def compile(self, words, output):
        words[words.index("-o") + 1] = str(output)
        status, text = run(self.launcher + words, cwd=self.folder)
        if status != 0:
            raise BuildError(f"does not compile:\n{text[:3000]}")

    def link(self, objects, output):
        """The command, with `objects` in front of the library, so that its own are not taken."""
        listed = subprocess.run(
            ["ninja", "-C", str(self.folder), "-t", "commands", "-s", "bin/flashcore"],
            capture_output=True, text=True, check=True).stdout
        words = shlex.split(re.sub(r"^: && | && :$", "", listed.strip().splitlines()[-1]))
        words[words.index("-o") + 1] = str(output)
        first = next(i for i, word in enumerate(words) if word.endswith(".a"))
        words[first:first] = [str(one) for one in objects]
        status, text = run(words, cwd=self.folder)
        if status != 0:
            raise BuildError(f"does not link:\n{text[:3000]}")
