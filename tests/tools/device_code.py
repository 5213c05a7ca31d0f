"""Hand-made object files and device programs, for tests of their readers."""
import struct

import cubin

NO_BITS = 8


def entry(kind: int, sm: int, content: bytes) -> bytes:
    header = struct.pack("<HHIQIIII", kind, 0, 64, len(content), 0, 0, 0, sm)
    return header.ljust(64, b"\0") + content


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", cubin.FATBIN_MAGIC, 1, 16, len(body)) + body


def elf(sections: dict[str, bytes | int], kinds: dict[str, tuple[int, int, int]] | None = None):
    """A 64-bit ELF file. A number instead of contents is a size; kinds: kind, link, info."""
    names = b"\0.shstrtab\0"
    headers = [(0, 0, b"", 0, 0, 0), (1, 3, None, 0, 0, 0)]
    for name, content in sections.items():
        kind, link, info = (kinds or {}).get(name, (NO_BITS if isinstance(content, int) else 1, 0, 0))
        size = content if isinstance(content, int) else len(content)
        headers.append((len(names), kind, b"" if isinstance(content, int) else content, size, link,
                        info))
        names += name.encode() + b"\0"
    headers[1] = (1, 3, names, len(names), 0, 0)
    table, contents = b"", b""
    for name, kind, content, size, link, info in headers:
        table += cubin.SECTION_HEADER.pack(name, kind, 0, 0, 64 + len(contents), size, link, info, 1,
                                           0)
        contents += content
    start = cubin.ELF_MAGIC + b"\0" * 34 + struct.pack("<Q", 64 + len(contents))
    start = start.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, len(headers), 1)
    return start + contents + table


def attribute(number: int, value: bytes) -> bytes:
    return struct.pack("<BBH", 4, number, len(value)) + value


def program(kernels: dict[str, dict]) -> bytes:
    """A device program. A kernel's parts: text, constants, registers, shared, arguments, cluster,
    calls (the name of a function that its second word refers to); a function has only its text."""
    sections: dict[str, bytes | int] = {}
    kinds = {}
    for name, parts in kernels.items():
        sections[f".text.{name}"] = parts["text"]
        if "registers" not in parts:
            continue
        sizes = parts.get("arguments", (8,))
        sections[f".nv.constant0.{name}"] = bytes(0x210 + sum(sizes))
        sections[f".nv.constant2.{name}"] = parts.get("constants", b"")
        sections[f".nv.shared.{name}"] = parts.get("shared", 0)
        info = attribute(0x0A, struct.pack("<II", len(sections), 0))  # its value is a symbol
        for place, size in enumerate(sizes):
            info += attribute(cubin.ARGUMENT, struct.pack("<IHHI", 0, place, 0, size << 18))
        if "cluster" in parts:
            info += attribute(0x3D, struct.pack("<III", *parts["cluster"]))
        sections[f".nv.info.{name}"] = info
    names, symbols = b"\0", cubin.SYMBOL.pack(0, 0, 0, 0, 0, 0)
    places = list(sections)
    for name in kernels:
        symbols += cubin.SYMBOL.pack(len(names), 2, 0, places.index(f".text.{name}") + 2, 0, 0)
        names += name.encode() + b"\0"
    order = list(kernels)
    registers = b"".join(attribute(cubin.REGISTERS, struct.pack("<II", i + 1, kernels[name]["registers"]))
                         for i, name in enumerate(order) if "registers" in kernels[name])
    sections |= {".nv.info": registers, ".strtab": names, ".symtab": symbols}
    kinds[".symtab"] = (2, list(sections).index(".strtab") + 2, 0)
    for name, parts in kernels.items():
        if "calls" in parts:
            target = order.index(parts["calls"]) + 1
            sections[f".rela.text.{name}"] = struct.pack("<QQq", 8, target << 32 | 7, 0)
            kinds[f".rela.text.{name}"] = (4, 0, places.index(f".text.{name}") + 2)
    return elf(sections, kinds)


def object_file(programs: dict[int, bytes]) -> bytes:
    return elf({".nv_fatbin": container(*(entry(2, sm, one) for sm, one in programs.items()))})
