"""Finds the launches of a PyTorch call on a GPU, and their fingerprint, like src/plan/fingerprints.cpp."""
import ctypes
import pathlib

from reporting.evidence import Failure, read_machine_code

OURS = "9flashcore"  # the namespace in a mangled name
KERNEL_NODE = 0


class NodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""
    _fields_ = [("function", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared", ctypes.c_uint), ("arguments", ctypes.c_void_p), ("extra", ctypes.c_void_p),
                ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p)]


def functions_in(graph: int, driver) -> set[str]:
    """Returns mangled names of our functions in a CUDA graph."""
    def ask(function: str, *arguments) -> None:
        if (error := getattr(driver, function)(*arguments)) != 0:
            raise Failure(f"{function}: failed with error {error} of the driver")

    count = ctypes.c_size_t()
    ask("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    ask("cuGraphGetNodes", ctypes.c_void_p(graph), nodes, ctypes.byref(count))
    names = set()
    for node in map(ctypes.c_void_p, nodes):
        kind, params, name = ctypes.c_int(), NodeParams(), ctypes.c_char_p()
        ask("cuGraphNodeGetType", node, ctypes.byref(kind))
        if kind.value != KERNEL_NODE:
            continue
        ask("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(params))
        if params.function:
            ask("cuFuncGetName", ctypes.byref(name), ctypes.c_void_p(params.function))
        else:
            ask("cuKernelGetName", ctypes.byref(name), ctypes.c_void_p(params.kernel))
        names.add((name.value or b"").decode())
    return {name for name in names if OURS in name}


def functions(torch, call) -> set[str]:
    """Returns them for one call, which is captured but not run."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    return functions_in(graph.raw_cuda_graph(), ctypes.CDLL("libcuda.so.1"))


def measured_build(build: pathlib.Path) -> tuple[dict, pathlib.Path]:
    """Returns the machine code of a build with CUDA kernels, and its library."""
    code, library = read_machine_code(build), build / "src/libflashcore.so"
    if not code["functions"] or not library.exists():
        raise Failure(f"{build}: is no build with CUDA kernels: it wants {library} and machine_code.json")
    return code, library


def fingerprint(code: dict, names: set[str], capability: int) -> str:
    """Returns digests from a build's machine code: of the newest target of the GPU's generation that it runs."""
    newest, digests = 0, set()
    for name in names:
        found = {target: by_name[name] for text, by_name in code["functions"].items() if name in by_name and
                 (target := int(text.removeprefix("sm_"))) // 10 == capability // 10 and target <= capability}
        if not found:
            raise Failure(f"the build has no machine code of {name} for compute capability {capability}")
        digests.add(found[max(found)])
        newest = max(newest, *found)
    if not digests:
        raise Failure("the call launches no function of the library, wanted one")
    return " ".join([f"nvcc {code['nvcc']} sm_{newest}", *sorted(digests)])
