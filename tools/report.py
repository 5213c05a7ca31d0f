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

# Parts that a page must have; others are filled in wherever their markers are.
WANTED = {"docs/ladder.md": ["picture ladder", "times", "where", "goals", "ceilings", "gates", "rungs"],
          "docs/performance.md": ["bench where", "bench ceilings", "picture sweep",
                                  "picture roofline", "picture latency"],
          "docs/results.md": ["bench where", "bench five", "bench sweep", "bench small", "bench few keys",
                              "bench serving decode", "bench decode", "bench idle", "packed", "calls",
                              "features forward_sm80_throughput", "features forward_sm90_throughput", "backward",
                              "small grid where", "small grid ahead", "cpu where", "cpu goals", "bench cpu where",
                              "bench cpu"],
          "docs/cpu.md": ["cpu where", "cpu goals", "bench cpu decode", "bench cpu backward"],
          "docs/forward-sm80.md": ["picture schedule-forward-sm80", "picture memory-forward-sm80", "kernel forward_sm80_throughput",
                                   "bench prefill sm80"],
          "docs/decode.md": ["picture schedule-decode-sm90", "picture schedule-decode-sm80", "picture memory-decode-sm90",
                             "bench serving"],
          "docs/forward-sm90.md": ["picture schedule-forward-sm90", "picture memory-forward-sm90", "kernel forward_sm90_throughput",
                                   "kernel forward_sm90_latency", "small eager",
                                   "bench prefill"],
          "docs/backward.md": ["picture schedule-backward-sm90", "picture schedule-backward-sm80", "backward ratios"],
          "docs/forward-fp8.md": ["picture schedule-forward-fp8", "bench fp8", "bench fp8 kernels",
                                  "bench fp8 peers", "bench fp8 wide",
                                  "bench fp8 wide converted", "picture fp8", "fp8 modes",
                                  "fp8 amax"],
          "docs/verification.md": ["verify", "verify where", "mutants"],
          "docs/accuracy.md": ["quantization where", "quantization error", "quantization lse", "fp8 terms"],
          "docs/architecture.md": ["picture architecture"], "docs/evolve.md": ["evolve runs"],
          "docs/simulator.md": ["injected faults", "mended faults", "faults not found"],
          "docs/tuning.md": ["tuning summary", "tuning where", "tuning off grid", "tuning model"],
          "docs/distributed.md": ["context model", "context hidden", "picture context-parallel"],
          "docs/python.md": ["python calls", "python tests"],
          "docs/dependencies.md": ["dependencies"], "docs/threat-model.md": ["picture trust"],
          "README.md": ["bench headline", "bench behind training", "bench behind decode", "front picture ladder", "front picture sweep"]}


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
    files = {}
    for path in marked_pages(evidence.root):
        content = path.read_text(encoding="utf-8")
        try:
            files[path] = text.fill(content, parts)
        except Failure as failure:
            raise Failure(f"{path}: {failure}") from failure
    for name, wanted in WANTED.items():
        content = files.get(evidence.root / name, "")
        for part in wanted:
            if text.BEGIN.format(part) not in content:
                raise Failure(f"{name}: has no part '{part}', wanted its markers")
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
