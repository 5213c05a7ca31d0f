#!/usr/bin/env python3
"""Writes the files of src/tuning/gpus as a table that the library is compiled with.

    gpu_tables.py --output FILE GPU/constants.json...

A missing or invalid value is an error that names the file.
"""
import argparse
import json
import pathlib
import sys

CONSTANTS = ("begin_and_end_us", "step_us", "mask_us", "alone", "tail")
RULES = ("fp8_as_bf16_above_head_dim", "fp8_as_bf16_from_rows", "decode_most_rows", "decode_begin_us",
         "decode_tiles_us", "decode_granule_us", "decode_narrow_us", "decode_end_granules",
         "latent_tiles_of_16_rows", "paged_rows", "sm80_paged_rows", "gain_of_192x64", "gain_of_192x64_on_diagonal", "split_queries")


class Wrong(Exception):
    """An invalid file."""


def number(where: str, values: dict, key: str) -> float:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise Wrong(f"{where}: {key} is {value!r}, wanted a positive number")
    return value


def text(where: str, values: dict, key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not value or not value.isprintable() or set(value) & set('"\\'):
        raise Wrong(f"{where}: {key} is {value!r}, wanted a name")
    return value


def table(path: pathlib.Path) -> tuple[str, list[str]]:
    """Returns one GPU's row of the table, and its tiles' rows."""
    document = json.loads(path.read_text(encoding="utf-8"))
    name = f"{path.parent.name}/{path.name}"
    try:
        gpu, fit, tiles = document["gpu"], document["fit"], document["tiles"]
        measured, rules = document["measured"], document["rules"]
    except (KeyError, TypeError) as error:
        raise Wrong(f"{name}: has no {error}") from error
    if not tiles:
        raise Wrong(f"{name}: has no tile")
    rows = []
    seen = set()
    for tile in tiles:
        which = (text(name, tile, "tile"), int(number(name, tile, "head_dim")))
        where = f"{name}: {which[0]}, {which[1]}"
        if which in seen:
            raise Wrong(f"{where}: is there twice")
        seen.add(which)
        constants = [number(where, tile, key) for key in CONSTANTS]
        if tile["alone"] > 1:
            raise Wrong(f"{where}: alone is {tile['alone']}, wanted at most 1")
        values = ", ".join(f"{value:.9g}" for value in constants)
        rows.append(f'{{"{which[0]}", {which[1]}, {{{values}}}}},')
    limits = ", ".join(f".{key} = {number(name, rules, key):.9g}" for key in RULES)
    row = (f'{{.gpu = "{text(name, gpu, "name")}", '
           f'.compute_capability = {int(number(name, gpu, "compute_capability"))}, '
           f'.multiprocessors = {int(number(name, gpu, "multiprocessors"))}, '
           f'.speed = {{.sm_clock_mhz = {number(name, gpu, "sm_clock_mhz"):.9g}, '
           f'.memory_gb_s = {number(name, gpu, "memory_gb_s"):.9g}}}, '
           f'.rules = {{{limits}}}, '
           f'.launch = {number(name, document, "launch_us"):.9g}, '
           f'.error = {number(name, fit, "error"):.9g}, '
           f'.most_waves = {number(name, measured, "most_waves"):.9g}, '
           f'.most_steps = {number(name, measured, "most_steps"):.9g}, ')
    return row, rows


def source(paths: list[pathlib.Path]) -> str:
    if not paths:
        raise Wrong("no file of a GPU")
    lines = ["// Made by tools/gpu_tables.py.", "namespace flashcore::tuning {", "namespace {"]
    tables = []
    for n, path in enumerate(sorted(paths)):
        row, rows = table(path)
        lines += [f"constexpr TileConstants kTiles{n}[] = {{  // {path.parent.name}", *rows, "};"]
        tables.append(f"{row}.tiles = kTiles{n}}},")
    return "\n".join([*lines, "constexpr GpuTable kGpuTables[] = {", *tables, "};", "}  // namespace",
                      "}  // namespace flashcore::tuning", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("gpus", type=pathlib.Path, nargs="*")
    options = parser.parse_args()
    try:
        made = source(options.gpus)
    except (OSError, ValueError, Wrong) as error:
        print(f"gpu_tables.py: {error}", file=sys.stderr)
        return 1
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
