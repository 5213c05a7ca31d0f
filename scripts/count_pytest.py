#!/usr/bin/env python3
"""Prints "NAME: N passed, M failed, K skipped" from a file of pytest's --junitxml; fails if a test failed.

usage: count_pytest.py NAME FILE
"""
import sys
import xml.etree.ElementTree as xml


def main(name: str, path: str) -> int:
    suite = xml.parse(path).getroot().find("testsuite")
    count = {what: int(suite.get(what)) for what in ("tests", "failures", "errors", "skipped")}
    bad = count["failures"] + count["errors"]
    print(f"{name}: {count['tests'] - bad - count['skipped']} passed, {bad} failed, {count['skipped']} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
