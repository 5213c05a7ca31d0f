"""Describes the installation in a few lines: for bug reports, or to check that a GPU is found."""

from ._attention import DEFAULTS
from ._errors import UnsupportedError
from ._layout import CODES, Layout, dense_strides, device_name
from ._library import CUDA, build_info, devices, library_path
from ._plan import Plan, Request, verdicts

_FRAMEWORKS = (
    "numpy",
    "ml_dtypes",
    "torch",
    "transformers",
    "jax",
    "cupy-cuda13x",
    "cupy-cuda12x",
)
_SHAPE = (1, 8, 512, 64)


def show_config() -> None:
    """Prints the version, how the library was built, the devices with the kernel that each would
    run, and the installed frameworks. `python -m flashcore` does the same.
    """
    print(_config())


def _config() -> str:
    import platform  # imported here, so that importing flashcore stays fast

    build = build_info()
    targets = ", ".join(f"sm_{t}" for t in build["cuda_targets"].split(";") if t)
    lines = [
        f"flashcore {build['version']}, Python {platform.python_version()}, {platform.platform()}",
        f"library     {library_path()}",
        f"built by    {build['compiler']}, {build['build_type']}",
        f"CUDA        {targets or 'not built: CPU only'}",
        f"CPU code    {build['cpu_target']}",
    ]
    for device in devices():
        kind = CUDA if device["kind"] == "cuda" else 0
        dtype = "float16" if kind == CUDA else "float32"
        where = device_name((kind, device["index"]))
        size = f"{device['memory_bytes'] / 2**30:.0f} GiB"
        details = f"{device['multiprocessors']} threads, {size}"
        if kind == CUDA:
            major, minor = divmod(device["compute_capability"], 10)
            details = f"compute capability {major}.{minor}, {size}"
        lines.append(f"{where:12}{device['name']}, {details}")
        lines.append(f"{'':12}{_SHAPE} {dtype}: {_kernel(dtype, (kind, device['index']))}")
    lines.append(f"installed   {', '.join(_versions())}")
    return "\n".join(lines)


def _kernel(dtype: str, device: tuple[int, int]) -> str:
    """Returns the kernel that computes a small problem on the device."""
    layout = Layout(CODES[dtype], _SHAPE, dense_strides(_SHAPE), device)
    request = Request(dict.fromkeys("qkv", layout), DEFAULTS)
    try:
        kernel = Plan(request).kernel
    except UnsupportedError as error:
        return f"no kernel: {error}"
    note = next(one["note"] for one in verdicts(request) if one["kernel"] == kernel)
    return f"{kernel}, {note}" if note else kernel


def _versions() -> list[str]:
    import importlib.metadata

    found = []
    for name in _FRAMEWORKS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
