"""The implementations of attention that tools/peers_torch.py runs, and how to call each.

A maker takes tensors and returns a call, which returns O. A maker of a backward pass also takes dO,
runs the forward pass, and returns a call that returns dQ, dK and dV; all of them go through
PyTorch's autograd, which takes no device time.

Tensors are [batch, heads, seqlen, head_dim]. A causal mask is aligned bottom right, as in
docs/semantics.md: the last query sees the last key. PyTorch's own is_causal and xFormers'
LowerTriangularMask are aligned top left, which is the same only for square problems.
"""
import contextlib
import importlib
import importlib.metadata
import itertools
from collections.abc import Callable
from typing import NamedTuple

LARGEST_SCORES = 2e9  # bytes of fp32 scores that an unfused backend may write
# Features of a request, if the case has them: [left, right], -1 for no limit; a number; the starts
# of a packed batch's entries, whose tensors are [total, heads, head_dim]; and tensors, as in docs/semantics.md.
TENSORS = ("bias", "mask", "alibi_slopes")
FEATURES = ("window", "softcap", "starts_q", "starts_kv", *TENSORS)
PAGE = 16  # keys per page of FlashInfer's cache
FLASHINFER_WORKSPACE = 128 << 20  # bytes, as its documentation recommends


def first_line(error):
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__)[:300]


def mask_of(q, k, causal):
    """Returns None if every query sees every key, "square", or "lower_right" for another offset."""
    if not causal or q.shape[2] == 1:
        return None
    return "square" if q.shape[2] == k.shape[2] else "lower_right"


def reach(window, causal):
    """Returns how far a query sees to its left and right, -1 for no limit; causal: nothing to its right."""
    return window[0], 0 if causal else window[1]


def sdpa(name):
    """A maker for PyTorch's scaled_dot_product_attention with this backend."""
    def make(q, k, v, causal, **pairs):  # bias or mask: its name for both
        import torch
        from torch.nn.functional import scaled_dot_product_attention
        mask = mask_of(q, k, causal)
        if pairs and (mask or len(pairs) > 1):
            raise RuntimeError("one mask alone is asked of PyTorch here")
        words = {"is_causal": True} if mask == "square" else {"attn_mask": one for one in pairs.values()}
        if mask == "lower_right":
            lengths = q.shape[2], k.shape[2]
            if name in ("flash", "efficient") and q.device.type == "cuda":
                from torch.nn.attention.bias import causal_lower_right
                words["attn_mask"] = causal_lower_right(*lengths)
            else:  # they lack this mask and would rebuild the tensor in each call
                words["attn_mask"] = torch.ones(lengths, dtype=torch.bool, device=q.device).tril(
                    diagonal=lengths[1] - lengths[0])
        if q.shape[1] != k.shape[1]:
            words["enable_gqa"] = True
        return lambda: scaled_dot_product_attention(q, k, v, **words)
    return make


def sdpa_context(name):
    """Within it, scaled_dot_product_attention uses only this backend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backend = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
               "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}[name]
    return lambda: sdpa_kernel(backend)


def flex(q, k, v, causal, window=(-1, -1), softcap=0, bias=None, mask=None, alibi_slopes=None):
    # Imported here: its compiler takes seconds to import, and only some cases use it.
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    compiled = torch.compile(flex_attention, dynamic=False)
    blocks, offset = None, k.shape[2] - q.shape[2]
    left, right = reach(window, mask_of(q, k, causal))
    sees = None
    if left >= 0 and right >= 0:
        def sees(b, h, i, j):
            return (i + offset - left <= j) & (i + offset + right >= j)
    elif left >= 0:
        def sees(b, h, i, j):
            return i + offset - left <= j
    elif right >= 0:
        def sees(b, h, i, j):
            return i + offset + right >= j
    if mask is not None:  # [1, 1, queries, keys]
        if sees:
            raise RuntimeError("a mask alone is asked of FlexAttention here")

        def sees(b, h, i, j):
            return mask[0, 0, i, j]
    if sees:
        blocks = create_block_mask(sees, None, None, q.shape[2], k.shape[2], device=q.device)
    words = {"block_mask": blocks, "enable_gqa": q.shape[1] != k.shape[1]}
    if softcap:
        words["score_mod"] = lambda score, b, h, i, j: softcap * torch.tanh(score / softcap)
    elif bias is not None:  # [1, heads, queries, keys]
        words["score_mod"] = lambda score, b, h, i, j: score + bias[0, h, i, j]
    elif alibi_slopes is not None:
        words["score_mod"] = lambda score, b, h, i, j: score - alibi_slopes[h] * (i + offset - j).abs()
    return lambda: compiled(q, k, v, **words)


def alone(out):
    """Returns O of a call that may return more."""
    return out[0] if isinstance(out, tuple) else out


def gradients_of(out, inputs, d_o):
    """A call that computes them again each time."""
    import torch
    return lambda: torch.autograd.grad(alone(out), inputs, d_o, retain_graph=True)


def backward_of(make):
    """The backward pass of a forward maker's result, on exactly these tensors."""
    def make_backward(q, k, v, d_o, causal, **features):
        inputs = [t.detach().requires_grad_() for t in (q, k, v)]
        return gradients_of(make(*inputs, causal, **features)(), inputs, d_o)
    return make_backward


def flex_backward(q, k, v, d_o, causal, **features):
    # A separate module, which `import torch` does not load.
    from torch._functorch import config
    # Keeps the buffers of a forward pass whose backward pass runs several times.
    config.donated_buffer = False
    return backward_of(flex)(q, k, v, d_o, causal, **features)


class Calls(NamedTuple):
    """A package's makers; None for passes that it lacks. `features`: supported in its backward passes."""
    forward: Callable
    backward: Callable | None = None
    deterministic_backward: Callable | None = None
    features: tuple[str, ...] = ()


def token_major(attention):
    """Wraps libraries that want [batch, seqlen, heads, head_dim]: transposes before the timing.
    `attention` gets such tensors, and the mask of the problem."""
    def make(q, k, v, causal):
        mask = mask_of(q, k, causal)
        q, k, v = (t.transpose(1, 2).contiguous() for t in (q, k, v))
        return lambda: alone(attention(q, k, v, mask)).transpose(1, 2)
    return make


def token_major_backward(attention):
    """Like token_major; the gradients have the layout of the transposed tensors. `attention` also
    gets the features."""
    def make_backward(q, k, v, d_o, causal, **features):
        mask = mask_of(q, k, causal)
        inputs = [t.transpose(1, 2).contiguous().requires_grad_() for t in (q, k, v)]
        d_o = d_o.transpose(1, 2).contiguous()
        call = gradients_of(attention(*inputs, mask, **features), inputs, d_o)
        return lambda: [gradient.transpose(1, 2) for gradient in call()]
    return make_backward


def packed_backward(attention):
    """Wraps packed batches: `attention` gets tensors [total, heads, head_dim], and the starts of entries."""
    def make_backward(q, k, v, d_o, causal, starts_q, starts_kv, **features):
        import torch
        inputs = [t.detach().requires_grad_() for t in (q, k, v)]
        words = {"causal": causal}
        for side, starts in (("q", starts_q), ("k", starts_kv)):
            words[f"cu_seqlens_{side}"] = torch.tensor(starts, dtype=torch.int32, device=q.device)
            words[f"max_seqlen_{side}"] = max(end - begin for begin, end in itertools.pairwise(starts))
        return gradients_of(attention(*inputs, **words, **features), inputs, d_o)
    return make_backward


def flash_attn(module, no_end=-1):
    """FlashAttention 2, 3 and 4, whose causal masks are aligned bottom right. `no_end` is its value
    for a window side without limit."""
    def options(causal, window=None, softcap=0):
        words = {"causal": causal}
        if window:
            words["window_size"] = tuple(no_end if end < 0 else end for end in reach(window, causal))
        return words | ({"softcap": softcap} if softcap else {})

    def attention(**more):
        return lambda q, k, v, mask, **features: module.flash_attn_func(
            q, k, v, **options(mask is not None, **features), **more)

    def packed(**more):
        def call(q, k, v, causal, window=None, softcap=0, **starts):
            return module.flash_attn_varlen_func(q, k, v, **starts, **options(causal, window, softcap),
                                                 **more)
        return call

    def backward(**more):
        dense = token_major_backward(attention(**more))
        of_packed = packed_backward(packed(**more))
        return lambda *tensors, **features: (of_packed if "starts_q" in features else dense)(
            *tensors, **features)

    varlen = hasattr(module, "flash_attn_varlen_func")
    return Calls(token_major(attention()), backward(), backward(deterministic=True),
                 ("window", "softcap", *(("starts_q", "starts_kv") if varlen else ())))


def flash_attn_4(module):
    return flash_attn(module, no_end=None)


def xformers(module):
    from xformers.ops import fmha
    masks = {None: lambda: None, "square": module.LowerTriangularMask,
             "lower_right": fmha.attn_bias.LowerTriangularFromBottomRightMask}

    def attention(q, k, v, mask):
        if q.shape[2] != k.shape[2]:
            raise RuntimeError("grouped heads are not asked of xformers here")
        return module.memory_efficient_attention(q, k, v, attn_bias=masks[mask]())
    return Calls(token_major(attention), token_major_backward(attention))


def flashinfer(module):
    def make(q, k, v, causal):
        if q.shape[2] == 1:
            return flashinfer_decode(module, q, k, v)
        if q.shape[0] != 1:
            raise RuntimeError("several queries of several batch entries are not asked of "
                               "flashinfer here")
        masked = mask_of(q, k, causal) is not None  # aligned bottom right
        q, k, v = (t[0].transpose(0, 1).contiguous() for t in (q, k, v))
        return lambda: module.single_prefill_with_kv_cache(
            q, k, v, causal=masked, kv_layout="NHD").transpose(0, 1)[None]
    return Calls(make)


def flashinfer_decode(module, q, k, v):
    """One query per batch entry, over a cache with consecutive pages."""
    import torch
    batch, heads_q, _, head_dim = q.shape
    heads_kv, seqlen_kv = k.shape[1], k.shape[2]
    if seqlen_kv % PAGE != 0:
        raise RuntimeError(f"flashinfer is asked whole pages of {PAGE} keys only here")
    pages = seqlen_kv // PAGE
    keys, values = (t.transpose(1, 2).contiguous().view(batch * pages, PAGE, heads_kv, head_dim)
                    for t in (k, v))
    queries = q[:, :, 0].contiguous()
    workspace = torch.zeros(FLASHINFER_WORKSPACE, dtype=torch.uint8, device=q.device)
    # Its documentation recommends Tensor Cores for large groups.
    wrapper = module.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD",
                                                        use_tensor_cores=heads_q // heads_kv >= 4)
    first_page = torch.arange(0, (batch + 1) * pages, pages, dtype=torch.int32, device=q.device)
    page_table = torch.arange(batch * pages, dtype=torch.int32, device=q.device)
    last_page = torch.full((batch,), PAGE, dtype=torch.int32, device=q.device)
    wrapper.plan(first_page, page_table, last_page, heads_q, heads_kv, head_dim, PAGE,
                 q_data_type=q.dtype, kv_data_type=q.dtype)
    return lambda: wrapper.run(queries, (keys, values))[:, :, None]


def always(_case):
    return True


def scores_fit(case):
    """Backends that write the scores, in a backward pass several times: excluded where scores would
    be huge, or a report would spend minutes on them."""
    matrices = 4 if case.get("pass") == "backward" else 1
    return (4 * matrices * case["batch"] * case["heads_q"] * case["seqlen_q"] * case["seqlen_kv"] <=
            LARGEST_SCORES and case["suite"] not in ("sweep", "decode"))


def fits_flex(case):
    """It compiles for each shape, so only few suites use it."""
    return case["suite"] in ("five", "backward", "features")


class Backend:
    """`make` and `make_backward` return a call for tensors, which runs within `context`, or are
    None; `fits` selects cases. `features`: those that `make_backward` supports; `make` of these TENSORS, if it
    takes tensors beside Q, K and V."""

    def __init__(self, name, version, make, fits=always, context=contextlib.nullcontext,
                 make_backward=None, features=()):
        self.name, self.version, self.make, self.fits = name, version, make, fits
        self.context, self.make_backward, self.features = context, make_backward, features

    def computes(self, request):
        backward = request.get("pass") == "backward"
        has = [name for name in self.features if backward or name in TENSORS]
        if any(name in request and name not in has for name in FEATURES):
            return False
        return (self.make_backward if backward else self.make) is not None and self.fits(request)


class Package(NamedTuple):
    """Available if `module` can be imported and has `function`: flash_attn is importable but empty
    if only FlashAttention 4 is installed."""
    name: str
    module: str
    function: str
    maker: Callable
    distribution: str


PACKAGES = (
    Package("fa2", "flash_attn", "flash_attn_func", flash_attn, "flash-attn"),
    Package("fa3", "flash_attn_interface", "flash_attn_func", flash_attn, "flash-attn-3"),
    Package("fa4", "flash_attn.cute", "flash_attn_func", flash_attn_4, "flash-attn-4"),
    Package("flashinfer", "flashinfer", "single_prefill_with_kv_cache", flashinfer,
            "flashinfer-python"),
    Package("xformers", "xformers.ops", "memory_efficient_attention", xformers, "xformers"))


def version_of(package, module):
    try:
        return importlib.metadata.version(package.distribution)
    except importlib.metadata.PackageNotFoundError:  # on the path, but not installed by pip
        return getattr(module, "__version__", "of unknown version")


def package_backends(wanted):
    """Returns the importable packages, and why others are missing."""
    found, missing = [], {}
    for package in PACKAGES:
        deterministic = f"{package.name}_deterministic"
        if wanted is not None and not {package.name, deterministic}.intersection(wanted):
            continue
        try:
            module = importlib.import_module(package.module)
            getattr(module, package.function)
            text = f"{package.distribution} {version_of(package, module)}"
            calls = package.maker(module)
            found.append(Backend(package.name, text, calls.forward, make_backward=calls.backward,
                                 features=calls.features))
            if calls.deterministic_backward is not None:
                found.append(Backend(deterministic, text, None,
                                     make_backward=calls.deterministic_backward,
                                     features=calls.features))
        except Exception as error:  # also for a package that is present but broken
            missing[package.module] = first_line(error)
    return found, missing


def backends(torch, device, option):
    """Returns the backends for this device, and why others are missing."""
    wanted = None if option == "auto" else option.split(",")
    version = f"PyTorch {torch.__version__}"
    names = ["flash", "cudnn", "efficient", "math"]
    if device == "cpu":  # OpenBLAS and oneDNN cover the unfused path there; by name it still runs
        names = ["flash", "math"] if wanted and "math" in wanted else ["flash"]
    found, missing = [], {}
    for name in names:
        text = f"{version}, cuDNN {torch.backends.cudnn.version()}" if name == "cudnn" else version
        found.append(Backend(name, text, sdpa(name), scores_fit if name == "math" else always,
                             sdpa_context(name), backward_of(sdpa(name)),
                             () if name == "flash" and device != "cpu" else ("bias", "mask")))
    if device != "cpu":
        found.append(Backend("flex", version, flex, fits_flex, make_backward=flex_backward,
                             features=("window", "softcap", *TENSORS)))
        more, missing = package_backends(wanted)
        found += more
    if wanted is not None:
        found = [backend for backend in found if backend.name in wanted]
        for backend in found:  # requested by name, it is tried on every case
            backend.fits = always
    return found, missing
