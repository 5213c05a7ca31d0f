"""Reads device programs (cubins) in object files: their sections and kernels.

    object file | .nv_fatbin: containers | one ELF file per target | .text.KERNEL, its attributes, ...
"""
import collections
import ctypes
import dataclasses
import functools
import hashlib
import re
import struct

ELF_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
FATBIN_MAGIC = 0xBA55ED50
FATBIN_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes after it
ENTRY_HEADER = struct.Struct("<HHIQIIII")  # kind, -, bytes of this header, bytes after it, -, -, -, sm
ELF_ENTRY = 2
# A program that nvcc --compress-mode=size packed, in an entry's header: bytes of the packed program, flags, and bytes
# of the program itself.
PACKED_HEADER = struct.Struct("<16xI20xI12xI")
ZSTD_FLAG = 0x8000
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
NO_BITS, RELOCATIONS, RELOCATIONS_WITH_ADDEND = 8, 9, 4
SECTION_SYMBOL = 3

# Attributes of .nv.info: a format, a number, and either 2 bytes or a length and that many bytes.
LONG_VALUE = 4
REGISTERS, ARGUMENT = 0x2F, 0x17
# Attributes that determine how a function runs: thread limits, cluster, barriers, and arguments.
KEPT = {0x05: "most threads", 0x10: "threads", ARGUMENT: "argument", 0x3D: "cluster",
        0x3E: "any cluster", 0x4C: "barriers"}


class Failure(Exception):
    """An error message for the user."""


def fail(sentence: str):
    raise Failure(sentence)


@dataclasses.dataclass
class Section:
    index: int
    name: str
    kind: int
    size: int
    link: int
    info: int
    data: bytes


@dataclasses.dataclass
class Symbol:
    name: str
    kind: int
    section: int
    value: int


class Elf:
    """Parses the sections and symbols of an ELF file."""

    def __init__(self, data: bytes):
        if data[:6] != ELF_MAGIC:
            fail("is no 64-bit little-endian ELF file")
        try:
            table, = struct.unpack_from("<Q", data, 0x28)
            entry_bytes, count, names = struct.unpack_from("<HHH", data, 0x3A)
            headers = [SECTION_HEADER.unpack_from(data, table + i * entry_bytes)
                       for i in range(count)]
            self.sections = []
            for index, (name, kind, _, _, offset, size, link, info, _, _) in enumerate(headers):
                content = b"" if kind == NO_BITS else data[offset:offset + size]
                if kind != NO_BITS and len(content) != size:
                    fail(f"is cut off: section {index} ends at byte {offset + size} of {len(data)}")
                at = headers[names][4] + name
                self.sections.append(Section(index, data[at:data.index(b"\0", at)].decode(), kind,
                                             size, link, info, content))
        except (struct.error, IndexError, OverflowError, ValueError) as error:
            raise Failure(f"is no ELF file that can be read: {error}") from error

    def section(self, name: str) -> Section | None:
        return next((one for one in self.sections if one.name == name), None)

    @functools.cached_property
    def symbols(self) -> list[Symbol]:
        table = self.section(".symtab")
        if table is None:
            return []
        names = self.sections[table.link].data
        found = []
        for name, info, _, section, value, _ in SYMBOL.iter_unpack(table.data):
            text = names[name:names.index(b"\0", name)].decode()
            found.append(Symbol(text, info & 15, section, value))
        return found


@functools.cache
def zstd():
    """The library that dpkg needs, too."""
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError as error:
        raise Failure("libzstd.so.1 is not here: install libzstd1") from error
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    return library


def unpacked(header: bytes, content: bytes) -> bytes:
    """The program of a container's entry, which may be packed."""
    if len(header) < PACKED_HEADER.size:
        return content
    packed, flags, size = PACKED_HEADER.unpack_from(header)
    if not flags & ZSTD_FLAG:
        return content
    program = ctypes.create_string_buffer(size)
    if zstd().ZSTD_decompress(program, size, content[:packed], packed) != size:
        fail("has a device program that cannot be unpacked")
    return program.raw


def device_programs(fatbin: bytes) -> list[tuple[int, bytes]]:
    """Returns the target (90) and ELF file of each device program in a .nv_fatbin section's containers."""
    found = []
    at = 0
    while at + FATBIN_HEADER.size <= len(fatbin):
        magic, _, header, size = FATBIN_HEADER.unpack_from(fatbin, at)
        if magic != FATBIN_MAGIC:
            at += 8  # containers are padded to their alignment
            continue
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, entry_header, entry_size, _, _, _, sm = ENTRY_HEADER.unpack_from(fatbin, entry)
            if kind == ELF_ENTRY:
                begin = entry + entry_header
                found.append((sm, unpacked(fatbin[entry:begin], fatbin[begin:begin + entry_size])))
            entry += entry_header + entry_size
        at = (end + 7) // 8 * 8
    return found


def programs_of(object_file: bytes) -> list[tuple[int, bytes]]:
    section = Elf(object_file).section(".nv_fatbin")
    return device_programs(section.data) if section else []


def attributes(data: bytes) -> list[tuple[int, bytes]]:
    """Returns the attributes of a .nv.info section."""
    found = []
    at = 0
    while at + 4 <= len(data):
        form, number, size = struct.unpack_from("<BBH", data, at)
        value = data[at + 2:at + 4]
        at += 4
        if form == LONG_VALUE:
            value = data[at:at + size]
            at += size
        found.append((number, value))
    return found


@dataclasses.dataclass
class Function:
    digest: str
    argument_bytes: tuple[int, ...]


class Cubin:
    """The kernels of one device program."""

    def __init__(self, data: bytes):
        self.elf = Elf(data)
        self.relocations: dict[int, list[tuple[int, int, int, int]]] = collections.defaultdict(list)
        for one in self.elf.sections:
            if one.kind == RELOCATIONS_WITH_ADDEND:
                entries = [(offset, info, addend)
                           for offset, info, addend in struct.iter_unpack("<QQq", one.data)]
            elif one.kind == RELOCATIONS:
                entries = [(offset, info, 0) for offset, info in struct.iter_unpack("<QQ", one.data)]
            else:
                continue
            # `info` holds the kind and the symbol in its halves.
            self.relocations[one.info] += [(offset, info & 0xFFFFFFFF, info >> 32, addend)
                                           for offset, info, addend in entries]

    def functions(self) -> dict[str, Function]:
        """Returns functions by mangled name: launchable ones have their arguments in a constant bank."""
        found = {}
        for section in self.elf.sections:
            name = section.name.removeprefix(".text.")
            if name != section.name and self.elf.section(f".nv.constant0.{name}"):
                found[name] = Function(self.digest(section), self.argument_bytes(name))
        return found

    def digest(self, text: Section) -> str:
        name = text.name.removeprefix(".text.")
        lines = [self.content(text, ())]
        for section in self.elf.sections:
            if section.name.startswith(".nv.constant") and section.name.endswith("." + name):
                lines.append(section.name.removesuffix(name) + self.content(section, ()))
            elif section.name in (f".nv.shared.{name}", f".nv.local.{name}"):
                lines.append(section.name.removesuffix(name) + str(section.size))
            elif re.fullmatch(r"\.nv\.constant\d+|\.nv\.global\.init", section.name):
                lines.append(section.name + self.content(section, ()))  # shared by all functions
        lines += sorted(f"{KEPT[number]} {value.hex()}" for number, value in self.info(name)
                        if number in KEPT)
        lines.append(f"registers {self.registers(name)}")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def info(self, name: str) -> list[tuple[int, bytes]]:
        section = self.elf.section(f".nv.info.{name}")
        return attributes(section.data) if section else []

    def argument_bytes(self, name: str) -> tuple[int, ...]:
        """Returns sizes in order; a row is: -, number, offset, and the size in the top 14 bits."""
        sizes = {}
        for number, value in self.info(name):
            if number == ARGUMENT:
                _, place, _, flags = struct.unpack("<IHHI", value)
                sizes[place] = flags >> 18
        return tuple(size for _, size in sorted(sizes.items()))

    def registers(self, name: str) -> int | None:
        section = self.elf.section(".nv.info")
        for number, value in attributes(section.data) if section else []:
            if number == REGISTERS:
                symbol, count = struct.unpack("<II", value)
                if self.elf.symbols[symbol].name == name:
                    return count
        return None

    def content(self, section: Section, open_sections: tuple[int, ...]) -> str:
        """Digests a section's bytes, and what its relocations refer to, without names."""
        digest = hashlib.sha256(section.data + str(section.size).encode())
        for offset, kind, symbol, addend in sorted(self.relocations[section.index]):
            target = self.target(self.elf.symbols[symbol], (*open_sections, section.index))
            digest.update(f"\n{offset} {kind} {addend} {target}".encode())
        return digest.hexdigest()

    def target(self, symbol: Symbol, open_sections: tuple[int, ...]) -> str:
        if not 0 < symbol.section < len(self.elf.sections):
            return symbol.name  # another program's symbol: only its name is known
        section = self.elf.sections[symbol.section]
        if section.index in open_sections:
            return f"{open_sections.index(section.index)} {symbol.value}"
        return f"{self.content(section, open_sections)} {symbol.value}"
