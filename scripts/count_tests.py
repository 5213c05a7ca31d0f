#!/usr/bin/env python3
"""Counts the tests of a CTest run: the cases of GoogleTest programs from their XML files, and other tests as one each.

    count_tests.py JUNIT RESULTS    the file of ctest --output-junit, and the folder with a NAME.xml per program

Prints a line per failure, the slowest tests, and at the end "N passed, N failed, N skipped". A
program that failed without a failed case in its file, or that left no file, counts as one failure.
"""
import dataclasses
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

SLOWEST = 10


@dataclasses.dataclass
class Test:
    name: str
    seconds: float
    outcome: str  # "passed", "failed" or "skipped"


def outcome_of(case: ElementTree.Element) -> str:
    """Returns the outcome of a <testcase>, as CTest and GoogleTest write it."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("result") in ("skipped", "suppressed"):
        return "skipped"
    if case.get("status") == "fail":
        return "failed"
    return "skipped" if case.get("status") in ("notrun", "disabled") else "passed"


def cases_of(path: pathlib.Path) -> list[Test]:
    return [Test(f"{case.get('classname')}.{case.get('name')}", float(case.get("time", 0)), outcome_of(case))
            for case in ElementTree.parse(path).iter("testcase")]


def tests_of(junit: pathlib.Path, results: pathlib.Path) -> list[Test]:
    found: list[Test] = []
    for entry in ElementTree.parse(junit).iter("testcase"):
        whole = Test(entry.get("name", ""), float(entry.get("time", 0)), outcome_of(entry))
        path = results / f"{whole.name}.xml"
        try:
            cases = cases_of(path)
        except (OSError, ElementTree.ParseError):
            found.append(whole)
            continue
        found += cases
        if whole.outcome == "failed" and all(one.outcome != "failed" for one in cases):
            found.append(whole)
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        tests = tests_of(pathlib.Path(arguments[0]), pathlib.Path(arguments[1]))
    except (OSError, ElementTree.ParseError) as error:
        print(f"count_tests: {arguments[0]}: {error}", file=sys.stderr)
        return 2
    for one in tests:
        if one.outcome == "failed":
            print(f"FAILED: {one.name}")
    slowest = sorted(tests, key=lambda one: -one.seconds)[:SLOWEST]
    print("Slowest: " + ", ".join(f"{one.name} {one.seconds:.1f} s" for one in slowest))
    count = {outcome: sum(one.outcome == outcome for one in tests) for outcome in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
