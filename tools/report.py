#!/usr/bin/env python3
"""Generates tables, pictures and a page from the evidence in docs/evidence; none of it is typed by hand.

    report.py              writes the parts between markers of README.md and docs/*.md, and
                           docs/images/*.svg (needs matplotlib; --no-pictures leaves them)
    report.py --check      fails if one of them does not match the evidence and the kernels
    report.py --page FILE  writes every measured point as one HTML page, and nothing else

A row whose kernel has changed since it was measured is marked as stale. The machine code of CUDA
kernels is compared with a build's; without a build, or with another nvcc, it is not checked.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reporting import (bench, calls, context, cpu, dependencies, evolve, fp8, ladder, packed, page, pictures, python,  # noqa: E402
                       quantization, simulator, small, text, tuning, verify)
from reporting.evidence import STALE, Evidence, Failure  # noqa: E402

def marked_pages(root: pathlib.Path) -> list[pathlib.Path]:
    found = [path for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]
             if path.exists()]
    return [path for path in found if text.MARKER.search(path.read_text(encoding="utf-8"))]


def generated(evidence: Evidence) -> dict[pathlib.Path, str]:
    """Returns every generated text file with its expected contents."""
    parts = (ladder.parts(evidence) | bench.parts(evidence) | cpu.parts(evidence) |
             verify.parts(evidence) | small.parts(evidence) | packed.parts(evidence) | calls.parts(evidence) |
             python.parts(evidence) | quantization.parts(evidence) | fp8.parts(evidence) |
             tuning.parts(evidence) | simulator.parts() | evolve.parts(evidence) |
             pictures.parts(evidence) | context.parts() | dependencies.parts())
    files, shown = {}, set()
    for path in marked_pages(evidence.root):
        content = path.read_text(encoding="utf-8")
        shown.update(text.MARKER.findall(content))
        try:
            files[path] = text.fill(content, parts)
        except Failure as failure:
            raise Failure(f"{path}: {failure}") from failure
    if missing := [name for name in parts if name not in shown]:
        raise Failure(f"no page has the part '{missing[0]}', wanted its markers on one")
    return files


def same(path: pathlib.Path, *contents: str) -> bool:
    """Returns whether the file is one of the contents, without marks of staleness where there are several.

    Several differ in what this build cannot check: each generated part may be that of any of them.
    """
    if not path.exists():
        return False
    text_of_file = path.read_text(encoding="utf-8")
    if len(contents) == 1:
        return text_of_file == contents[0]
    pages = [page.replace(STALE, "").split(text.MARKER_END) for page in (text_of_file, *contents)]
    return (len({len(page) for page in pages}) == 1 and
            all(mine in any_of_them for mine, *any_of_them in zip(*pages)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--build", type=pathlib.Path, help="a build folder; ROOT/build if left out")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--no-pictures", action="store_true")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    images = options.root / "docs/images"
    try:
        evidence = Evidence(options.root, options.build or options.root / "build")
        if options.page:
            options.page.write_text(page.render(evidence), encoding="utf-8")
            return 0
        files = {path: [content] for path, content in generated(evidence).items()}
        if evidence.unchecked:
            evidence.unchecked_are_stale = True
            for path, content in generated(evidence).items():
                files[path].append(content)
            evidence.unchecked_are_stale = False
            print(f"not checked: the machine code of {', '.join(sorted(evidence.unchecked))}: wanted "
                  "a build with the nvcc and the GPU family of the evidence (--build)")
        if options.check:
            different = [path for path, contents in files.items() if not same(path, *contents)]
            names = [str(path.relative_to(options.root)) for path in different]
            names += [f"docs/images/{name}" for name in pictures.outdated(evidence, images)]
            if names:
                raise Failure(f"{', '.join(names)}: do not match the evidence, the notes and the "
                              "kernels: run tools/report.py")
            print(f"{len(files)} pages match their evidence")
            return 0
        for path, contents in files.items():
            # A page that differs only in what this build cannot check keeps it.
            if not same(path, *contents):
                path.write_text(contents[0], encoding="utf-8")
        if not options.no_pictures:
            pictures.draw_all(evidence, images)
    except Failure as failure:
        print(f"report: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
