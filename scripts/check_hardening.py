#!/usr/bin/env python3
"""Reads what was built with readelf and nm: is it hardened as FLASHCORE_HARDEN asks (cmake/options.cmake)?

usage: check_hardening.py PATH...    files, or folders with what was installed; prints each finding

Debian's startup files carry no CET note, so a binary's note cannot be asked for: the exported functions of the C
interface are read instead.
"""
import os
import pathlib
import re
import subprocess
import sys

ENDBR64 = bytes.fromhex("f30f1efa")
X86_64 = 62


def output(*command) -> str:
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True,
                          env=os.environ | {"LC_ALL": "C"}).stdout


class Binary:
    def __init__(self, path: pathlib.Path):
        self.bytes = path.read_bytes()
        self.segments = output("readelf", "-lW", path)
        self.dynamic = output("readelf", "-dW", path)
        self.symbols = output("nm", "-D", "--without-symbol-versions", path)

    def has(self, tag: str, value: str = "") -> bool:
        return re.search(rf"\({tag}\).*{value}", self.dynamic) is not None

    def needs(self, name: str) -> bool:
        return re.search(rf"^ +U {name}$", self.symbols, re.MULTILINE) is not None

    def exported(self) -> dict[str, int]:
        return {name: int(address, 16) for address, name in
                re.findall(r"^([0-9a-f]+) T (flashcore_\w+)$", self.symbols, re.MULTILINE)}

    def code_at(self, address: int) -> bytes:
        for offset, start, size in re.findall(r"LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+)", self.segments):
            if 0 <= address - int(start, 16) < int(size, 16):
                place = address - int(start, 16) + int(offset, 16)
                return self.bytes[place:place + len(ENDBR64)]
        return b""


def findings(path: pathlib.Path) -> list[str]:
    binary = Binary(path)
    stack = re.search(r"GNU_STACK.* ([RWE ]{3}) ", binary.segments)
    checks = {
        "is not position-independent": not re.search(r"^Elf file type is DYN", binary.segments, re.MULTILINE),
        "has no read-only relocations": "GNU_RELRO" not in binary.segments,
        "is bound lazily": not binary.has("FLAGS", "BIND_NOW") and not binary.has("FLAGS_1", "NOW"),
        "has an executable stack": stack is None or "E" in stack[1],
        "has a path for libraries": binary.has("RPATH") or binary.has("RUNPATH"),
        "has no stack protector": not binary.needs("__stack_chk_fail"),
        "has a call that is not fortified": binary.needs(r"v?[fd]?printf"),  # fortified ones have other names
    }
    found = [text for text, is_so in checks.items() if is_so]
    if int.from_bytes(binary.bytes[18:20], "little") == X86_64:
        found += [f"{name} does not begin with endbr64" for name, address in binary.exported().items()
                  if binary.code_at(address) != ENDBR64]
    return found


def is_binary(path: pathlib.Path) -> bool:
    """A program or a shared library; objects and archives are not linked yet."""
    with path.open("rb") as file:
        head = file.read(18)
    return head[:4] == b"\x7fELF" and int.from_bytes(head[16:18], "little") in (2, 3)


def files(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(one for one in path.rglob("*") if not one.is_symlink()) if path.is_dir() else [path]


def main() -> int:
    found, count = [], 0
    for path in (one for given in sys.argv[1:] for one in files(pathlib.Path(given))):
        if path.stat().st_mode & 0o002:
            found.append(f"{path}: may be written by everybody")
        if path.is_file() and is_binary(path):
            found += [f"{path}: {text}" for text in findings(path)]
            count += 1
    print(*found, f"hardening: {count} binaries, {len(found)} findings", sep="\n")
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
