"""docs/environment.md lists exactly the environment variables that our code reads."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = ("src", "bench", "cli", "evolve", "sim", "python", "rust", "examples", "scripts", "tools", "cmake")
TESTS = ("tests", "python/tests", "sim/tests")  # stubs have variables of their own
FILES = ("run.sh", "test.sh", ".ci/run")
NAME = r"[A-Z][A-Z0-9_]{2,}"
# How each language reads a variable, by a literal name or by one from elsewhere in the file.
READS = {
    "cpp": (rf'(?:getenv|environment|read_variable)\(\s*"({NAME})"|SharedLibrary::open\("({NAME})"', r"(?:getenv|read_variable)\(\s*[a-z]"),
    "py": (rf"""environ(?:\.get\(|\[)["']({NAME})["']""", r"environ(?:\.get\(|\[)[a-z]"),
    "rs": (rf'env::var(?:_os)?\("({NAME})"', None),
    "sh": (rf"\$\{{({NAME}):?[-+?=]", None),
    "cmake": (rf"\$?ENV\{{({NAME})\}}", None),
}
LANGUAGES = {".hpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".c": "cpp", ".h": "cpp", "": "sh"} | {
    f".{name}": name for name in READS}
LITERAL = re.compile(rf'"({NAME})"')


def sources():
    for folder in CODE + TESTS:
        yield from (path for path in sorted((ROOT / folder).rglob("*"))
                    if path.suffix in LANGUAGES and path.is_file() and "target" not in path.parts)
    yield from (ROOT / name for name in FILES)


def read_in(path: str, text: str) -> set[str]:
    named, elsewhere = READS[LANGUAGES[pathlib.PurePath(path).suffix]]
    found = {name for match in re.finditer(named, text) for name in match.groups() if name}
    if elsewhere and re.search(elsewhere, text):
        found |= set(LITERAL.findall(text))
    found = {name for name in found if not name.startswith("CARGO")}  # Cargo sets them for its build scripts
    if any(path.startswith(f"{folder}/") for folder in TESTS):
        found = {name for name in found if name.startswith("FLASHCORE_")}
    return found


class Environment(unittest.TestCase):
    def test_the_page_has_what_code_reads_and_nothing_else(self):
        page = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
        listed = set(re.findall(rf"^\| `({NAME})`", page, re.MULTILINE))
        read, everything = set(), ""
        for path in sources():
            text = path.read_text(encoding="utf-8", errors="replace")
            everything += text
            read |= read_in(path.relative_to(ROOT).as_posix(), text)
        self.assertEqual(sorted(read - listed), [], "read in code, and not on docs/environment.md")
        self.assertEqual(sorted(name for name in listed if name not in everything), [], "on the page, in no code")

    def test_one_place_reads_those_that_a_privileged_program_must_not_see(self):
        found = [path.relative_to(ROOT).as_posix() for path in sources()
                 if path.relative_to(ROOT).parts[0] in ("src", "bench", "cli", "evolve")
                 and re.search(r"getenv\(", path.read_text(encoding="utf-8", errors="replace"))]
        self.assertEqual(found, ["src/problem/environment.hpp"])

    def test_each_way_to_read_one_is_found(self):
        for path, text, wanted in (
                ("src/a.cpp", 'std::getenv("ONE_NAME")', {"ONE_NAME"}),
                ("src/a.cpp", 'k = "TWO_NAME"; std::getenv(k)', {"TWO_NAME"}),
                ("src/a.cpp", 'read_variable("TEN_NAME")', {"TEN_NAME"}),
                ("bench/a.cpp", 'SharedLibrary::open("A_LIBRARY", kNames)', {"A_LIBRARY"}),
                ("src/a.cpp", 'text = "NOT_READ"', set()),
                ("tools/a.py", "os.environ.get('THREE') or os.environ[\"FOUR\"]", {"THREE", "FOUR"}),
                ("rust/a.rs", 'env::var_os("FIVE").is_some() || env::var("SIX")', {"FIVE", "SIX"}),
                ("scripts/a.sh", "x=${SEVEN:-1}; y=$z; w=${EIGHT-}", {"SEVEN", "EIGHT"}),
                ("tests/a.cpp", 'getenv("HANG_AT"); getenv("FLASHCORE_NINE")', {"FLASHCORE_NINE"})):
            self.assertEqual(read_in(path, text), wanted, text)


if __name__ == "__main__":
    unittest.main()
