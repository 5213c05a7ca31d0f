"""Names of kernels: KERNEL or KERNEL:VARIANT. Files that were written earlier have former ones."""
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parents[1] / "src/plan/former_names.inc"
FORMER = dict(re.findall(r'^\{"(\w+)", "([\w:]+)"\},$', TABLE.read_text(encoding="utf-8"), re.MULTILINE))
NAME = re.compile(r"(\w+)(?=[: ]|$)")


def present_name(text: str) -> str:
    """Returns the text with a former name at its beginning replaced."""
    found = NAME.match(text)
    return FORMER.get(found[1], found[1]) + text[found.end():] if found else text


def with_present_names(value):
    """Returns a document with every former name replaced, also in keys."""
    if isinstance(value, str):
        return present_name(value)
    if isinstance(value, list):
        return [with_present_names(item) for item in value]
    if isinstance(value, dict):
        return {present_name(key): with_present_names(member) for key, member in value.items()}
    return value
