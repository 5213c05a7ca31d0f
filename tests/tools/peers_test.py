"""tools/peers_backends.py without PyTorch: which function each peer calls, with which mask. The
results are judged on a GPU, by the gate before every time."""
import importlib.metadata
import pathlib
import sys
import time
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import peers_backends  # noqa: E402
import peers_torch  # noqa: E402

LENGTHS = ((4, 4), (1, 4), (3, 5), (5, 3))


class Tensor:
    """A shape with its strides."""

    def __init__(self, *shape, device="cuda", dtype="bf16"):
        self.shape, self.device, self.dtype = shape, types.SimpleNamespace(type=device), dtype

    def transpose(self, a, b):
        shape = list(self.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return Tensor(*shape, device=self.device.type)

    def detach(self):
        return Tensor(*self.shape, device=self.device.type)

    def requires_grad_(self):
        self.is_input = True
        return self

    def contiguous(self):
        return self

    def view(self, *shape):
        return Tensor(*shape, device=self.device.type)

    def __getitem__(self, index):
        """Supports the helper's indices: a number, a full slice, None."""
        shape, left = [], list(self.shape)
        for one in index if isinstance(index, tuple) else (index,):
            if one is None:
                shape.append(1)
            elif isinstance(one, int):
                left.pop(0)
            else:
                shape.append(left.pop(0))
        return Tensor(*shape, *left, device=self.device.type)


class Mask:
    """A boolean matrix, like torch.ones(...).tril(diagonal)."""

    def __init__(self, lengths, diagonal=None):
        self.lengths, self.diagonal = lengths, diagonal

    def tril(self, diagonal):
        return Mask(self.lengths, diagonal)

    def pairs(self):
        return {(i, j) for i in range(self.lengths[0]) for j in range(self.lengths[1])
                if j - i <= self.diagonal}


def seen(seqlen_q, seqlen_kv):
    """docs/semantics.md: a causal pair remains if j <= i + offset."""
    return {(i, j) for i in range(seqlen_q) for j in range(seqlen_kv)
            if j <= i + seqlen_kv - seqlen_q}


def problem(seqlen_q, seqlen_kv, heads_q=2, heads_kv=2, batch=1, device="cuda"):
    return (Tensor(batch, heads_q, seqlen_q, 8, device=device),
            Tensor(batch, heads_kv, seqlen_kv, 8, device=device),
            Tensor(batch, heads_kv, seqlen_kv, 8, device=device))


class Peers(unittest.TestCase):
    def setUp(self):
        self.calls = []
        torch = types.ModuleType("torch")
        torch.bool, torch.uint8, torch.int32 = "bool", "uint8", "int32"
        torch.ones = lambda lengths, dtype, device: Mask(lengths)
        torch.zeros = lambda size, dtype, device: Tensor(size)
        torch.arange = lambda *span, dtype, device: list(range(*span))
        torch.full = lambda size, value, dtype, device: [value] * size[0]
        torch.tanh = lambda score: ("tanh", score)
        torch.tensor = lambda values, dtype, device: (tuple(values), dtype)
        torch.compile = lambda function, dynamic: function
        torch.backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 91900))
        torch.__version__ = "2.11.0"
        functional = types.ModuleType("torch.nn.functional")
        functional.scaled_dot_product_attention = self.record("sdpa")
        attention = types.ModuleType("torch.nn.attention")
        attention.SDPBackend = types.SimpleNamespace(FLASH_ATTENTION=0, CUDNN_ATTENTION=1,
                                                     EFFICIENT_ATTENTION=2, MATH=3)
        attention.sdpa_kernel = None
        bias = types.ModuleType("torch.nn.attention.bias")
        bias.causal_lower_right = lambda *lengths: ("causal_lower_right", *lengths)
        flex = types.ModuleType("torch.nn.attention.flex_attention")
        flex.flex_attention = self.record("flex")
        flex.create_block_mask = lambda function, b, h, rows, columns, device: {
            (i, j) for i in range(rows) for j in range(columns) if function(0, 0, i, j)}
        self.torch = torch
        self.install(torch, functional, attention, bias, flex, types.ModuleType("torch.nn"))
        # Hides everything that is installed here.
        absent = mock.patch.dict(sys.modules, dict.fromkeys(
            name for package in peers_backends.PACKAGES
            for name in (package.module, package.module.split(".")[0])))
        absent.start()
        self.addCleanup(absent.stop)

    def install(self, *modules):
        patch = mock.patch.dict(sys.modules, {module.__name__: module for module in modules})
        patch.start()
        self.addCleanup(patch.stop)

    def record(self, name, out=None):
        def call(*tensors, **words):
            self.calls.append((name, tensors, words))
            return out or tensors[0]
        return call

    def one_call(self, make, *arguments):
        self.calls.clear()
        out = make(*arguments)()
        self.assertEqual(len(self.calls), 1)
        return *self.calls[0], out

    def test_pytorch_masks(self):
        for name in ("flash", "efficient", "cudnn", "math"):
            for lengths in LENGTHS:
                with self.subTest(name=name, lengths=lengths):
                    make = peers_backends.sdpa(name)
                    _, tensors, words, _ = self.one_call(make, *problem(*lengths), True)
                    self.assertEqual(tensors[0].shape[2], lengths[0])
                    if lengths[0] == 1:
                        self.assertEqual(words, {})
                    elif lengths[0] == lengths[1]:
                        self.assertEqual(words, {"is_causal": True})
                    elif name in ("flash", "efficient"):
                        self.assertEqual(words, {"attn_mask": ("causal_lower_right", *lengths)})
                    else:
                        self.assertEqual(words["attn_mask"].pairs(), seen(*lengths))
                    self.assertEqual(self.one_call(make, *problem(*lengths), False)[2], {})

    def test_pytorch_on_a_cpu_gets_a_tensor(self):
        words = self.one_call(peers_backends.sdpa("flash"), *problem(3, 5, device="cpu"), True)[2]
        self.assertEqual(words["attn_mask"].pairs(), seen(3, 5))

    def test_pytorch_grouped_heads(self):
        words = self.one_call(peers_backends.sdpa("flash"), *problem(4, 4, 8, 2), False)[2]
        self.assertEqual(words, {"enable_gqa": True})

    def test_flex_mask(self):
        for lengths in LENGTHS:
            words = self.one_call(peers_backends.flex, *problem(*lengths), True)[2]
            pairs = words["block_mask"]
            if lengths[0] == 1:
                self.assertIsNone(pairs)
            else:
                self.assertEqual(pairs, seen(*lengths), lengths)
        self.assertIsNone(self.one_call(peers_backends.flex, *problem(4, 4), False)[2]["block_mask"])

    def test_bias_and_masks(self):
        given = problem(3, 5)
        for name in ("bias", "mask"):
            words = self.one_call(lambda *t, name=name: peers_backends.sdpa("cudnn")(*t, **{name: name}),
                                  *given, False)[2]
            self.assertEqual(words, {"attn_mask": name})
        with self.assertRaises(RuntimeError):
            peers_backends.sdpa("cudnn")(*given, True, bias="bias")

    def test_flex_options(self):
        class Pairs(dict):
            def __getitem__(self, index):
                return dict.__getitem__(self, index[-2:] if isinstance(index, tuple) else index)

        class Number(int):
            def __sub__(self, other):
                return Number(int(self) - int(other))

            def abs(self):
                return abs(int(self))

        numbers = Pairs({(i, j): 10 * i + j for i in range(3) for j in range(5)})
        call = lambda **words: self.one_call(  # noqa: E731
            lambda *t: peers_backends.flex(*t, **words), *problem(3, 5), False)[2]
        self.assertEqual(call(bias=numbers)["score_mod"](100, 0, 1, 2, 3), 123)
        sees = Pairs({pair: sum(pair) % 2 == 0 for pair in numbers})
        self.assertEqual(call(mask=sees)["block_mask"], {pair for pair in sees if dict.get(sees, pair)})
        slopes = call(alibi_slopes={1: 4})["score_mod"]  # query 0 is aligned with key 2
        class Query(int):
            def __add__(self, other):
                return Number(int(self) + int(other))
        self.assertEqual([slopes(100, 0, 1, Query(0), j) for j in (2, 4, 0)], [100, 92, 92])

    def test_flex_windows_and_softcaps(self):
        for lengths in LENGTHS:
            for causal in (False, True):
                for window in ((2, 1), (1, -1), (-1, 0), (-1, -1)):
                    words = self.one_call(
                        lambda *tensors: peers_backends.flex(*tensors, window=window),
                        *problem(*lengths), causal)[2]
                    left, right = window
                    offset = lengths[1] - lengths[0]
                    wanted = {(i, j) for i in range(lengths[0]) for j in range(lengths[1])
                              if (left < 0 or i + offset - left <= j) and
                              (right < 0 or j <= i + offset + right)}
                    if causal:
                        wanted &= seen(*lengths)
                    pairs = words["block_mask"]
                    if pairs is None:
                        pairs = {(i, j) for i in range(lengths[0]) for j in range(lengths[1])}
                    self.assertEqual(pairs, wanted, (lengths, causal, window))
                    self.assertNotIn("score_mod", words)
        modify = self.one_call(lambda *tensors: peers_backends.flex(*tensors, softcap=20.0),
                               *problem(4, 4), False)[2]["score_mod"]
        self.torch.tanh = lambda score: score + 1  # makes the order visible
        self.assertEqual(modify(40.0, 0, 0, 1, 2), 20 * (40 / 20 + 1))

    def test_flash_attention_has_windows_and_softcaps(self):
        self.differentiate()
        module = types.SimpleNamespace(flash_attn_func=self.record("fa"))
        cases = [({"window": (128, -1)}, True, {"window_size": (128, 0)}, {"window_size": (128, 0)}),
                 ({"window": (128, -1)}, False, {"window_size": (128, -1)},
                  {"window_size": (128, None)}),
                 ({"softcap": 30}, False, {"softcap": 30}, {"softcap": 30})]
        for features, causal, old, new in cases:
            for maker, wanted in ((peers_backends.flash_attn, old), (peers_backends.flash_attn_4, new)):
                calls = maker(module)
                self.assertEqual(calls.features, ("window", "softcap"))  # no packed batches
                for make, more in ((calls.backward, {}),
                                   (calls.deterministic_backward, {"deterministic": True})):
                    self.calls.clear()
                    q, k, v = problem(4, 4, 8, 2)
                    make(q, k, v, Tensor(*q.shape), causal, **features)()
                    self.assertEqual(self.calls[0][2], {"causal": causal} | wanted | more)

    def test_flash_attention_has_packed_batches(self):
        self.differentiate()
        module = types.SimpleNamespace(flash_attn_func=None,
                                       flash_attn_varlen_func=self.record("varlen"))
        calls = peers_backends.flash_attn_4(module)
        self.assertEqual(calls.features, ("window", "softcap", "starts_q", "starts_kv"))
        q, k, v = Tensor(9, 8, 16), Tensor(12, 2, 16), Tensor(12, 2, 16)
        self.calls.clear()
        call = calls.deterministic_backward(q, k, v, Tensor(9, 8, 16), True, starts_q=[0, 2, 9],
                                            starts_kv=[0, 7, 12], window=(3, -1))
        self.assertEqual([one.shape for one in call()], [q.shape, k.shape, v.shape])
        self.assertEqual(self.calls[0][0], "varlen")
        self.assertEqual(self.calls[0][2], {
            "causal": True, "deterministic": True, "window_size": (3, 0),
            "cu_seqlens_q": ((0, 2, 9), "int32"), "cu_seqlens_k": ((0, 7, 12), "int32"),
            "max_seqlen_q": 7, "max_seqlen_k": 7})

    def test_rows_of_a_packed_batch_are_found_by_entry(self):
        class Rows:  # [total, heads, head_dim]: only the first two matter
            def __init__(self, rows):
                self.rows = rows

            def __getitem__(self, some):
                return Rows(self.rows[some])

            def transpose(self, a, b):
                assert (a, b) == (0, 1)
                return [list(column) for column in zip(*self.rows)]

        packed = Rows([(10 * row, 10 * row + 1) for row in range(5)])
        entries = peers_torch.entries_of(packed, [0, 2, 5])
        self.assertEqual(entries, [[[0, 10], [1, 11]], [[20, 30, 40], [21, 31, 41]]])
        self.assertIs(peers_torch.entries_of(packed, None), packed)

    def test_who_is_asked_for_features(self):
        backward = {"suite": "backward", "pass": "backward"}
        dense = peers_backends.Backend("flex", "1", print, make_backward=print,
                                       features=("window", "softcap"))
        packs = peers_backends.Backend("fa4", "1", print, make_backward=print,
                                       features=peers_backends.FEATURES)
        plain = peers_backends.Backend("flash", "1", print, make_backward=print)
        for more, wanted in (({}, [True] * 3), ({"softcap": 30}, [True, True, False]),
                             ({"window": [5, -1]}, [True, True, False]),
                             ({"starts_q": [0, 3], "starts_kv": [0, 3]}, [False, True, False])):
            self.assertEqual([one.computes(backward | more) for one in (dense, packs, plain)], wanted)
        self.assertFalse(packs.computes({"suite": "features", "softcap": 30}))  # a forward pass
        pairs = peers_backends.Backend("pairs", "1", lambda: None, features=("bias",))
        self.assertTrue(pairs.computes({"suite": "features", "bias": {}}))
        self.assertFalse(pairs.computes({"suite": "features", "mask": {}}))

    def differentiate(self):
        """A stub of torch.autograd.grad that records its calls."""
        self.gradients = []

        def grad(out, inputs, d_o, retain_graph):
            self.assertTrue(retain_graph)
            self.assertEqual(out.shape, d_o.shape)
            self.assertTrue(all(one.is_input for one in inputs))
            self.gradients.append(inputs)
            return tuple(one.detach() for one in inputs)

        self.torch.autograd = types.SimpleNamespace(grad=grad)

    def check_backward(self, make_backward, forward_words):
        """The forward pass runs once, before the calls; gradients have the layout of q, k and v."""
        self.differentiate()
        q, k, v = problem(4, 4, 8, 2)
        self.calls.clear()
        call = make_backward(q, k, v, Tensor(*q.shape), True)
        for _ in range(2):
            self.assertEqual([one.shape for one in call()], [q.shape, k.shape, v.shape])
        self.assertEqual(len(self.calls), 1)
        self.assertEqual(self.calls[0][2], forward_words)
        self.assertEqual(len(self.gradients), 2)
        self.assertIs(self.gradients[0][0], self.calls[0][1][0])

    def test_backward_passes(self):
        self.check_backward(peers_backends.backward_of(peers_backends.sdpa("flash")),
                            {"is_causal": True, "enable_gqa": True})
        calls = peers_backends.flash_attn(
            types.SimpleNamespace(flash_attn_func=self.record("fa")))
        self.check_backward(calls.backward, {"causal": True})
        self.check_backward(calls.deterministic_backward, {"causal": True, "deterministic": True})

    def test_flex_keeps_what_its_backward_pass_reads_again(self):
        functorch, config = types.ModuleType("torch._functorch"), types.SimpleNamespace(donated_buffer=True)
        functorch.config = config
        self.install(functorch)
        self.check_backward(peers_backends.flex_backward, {
            "block_mask": seen(4, 4), "enable_gqa": True})
        self.assertFalse(config.donated_buffer)

    def test_which_passes_a_backend_has(self):
        forward = {"suite": "sweep"}
        backward = forward | {"pass": "backward"}
        infer = peers_backends.Backend("flashinfer", "1", print)
        deterministic = peers_backends.Backend("fa4_deterministic", "1", None, make_backward=print)
        self.assertEqual([infer.computes(forward), infer.computes(backward)], [True, False])
        self.assertEqual([deterministic.computes(forward), deterministic.computes(backward)],
                         [False, True])

    def test_unfused_backward_passes_keep_more_scores(self):
        case = {"suite": "five", "batch": 2, "heads_q": 8, "seqlen_q": 4096, "seqlen_kv": 4096}
        self.assertTrue(peers_backends.scores_fit(case))
        self.assertFalse(peers_backends.scores_fit(case | {"pass": "backward"}))

    def test_flash_attention_is_bottom_right_by_itself(self):
        # FlashAttention 4 returns (out, lse) in some versions.
        pair = (Tensor(1, 3, 2, 8), None)
        for out in (None, pair):
            make = peers_backends.flash_attn(
                types.SimpleNamespace(flash_attn_func=self.record("fa", out))).forward
            for lengths in LENGTHS:
                for causal in (False, True):
                    _, tensors, words, result = self.one_call(make, *problem(*lengths), causal)
                    self.assertEqual(words, {"causal": causal and lengths[0] > 1})
                    self.assertEqual(tensors[1].shape, (1, lengths[1], 2, 8))
            self.assertEqual(result.shape, (1, 2, 3 if out else 5, 8))

    def test_xformers_masks(self):
        fmha = types.SimpleNamespace(attn_bias=types.SimpleNamespace(
            LowerTriangularFromBottomRightMask=lambda: "bottom right"))
        ops = types.ModuleType("xformers.ops")
        ops.fmha, ops.LowerTriangularMask = fmha, lambda: "top left"
        ops.memory_efficient_attention = self.record("xformers")
        self.install(ops, types.ModuleType("xformers"))
        make = peers_backends.xformers(ops).forward
        expected = {(4, 4): "top left", (1, 4): None, (3, 5): "bottom right",
                    (5, 3): "bottom right"}
        for lengths, bias in expected.items():
            self.assertEqual(self.one_call(make, *problem(*lengths), True)[2]["attn_bias"], bias)
            self.assertIsNone(self.one_call(make, *problem(*lengths), False)[2]["attn_bias"])

    def test_flashinfer_decodes_over_pages(self):
        plans = []

        class Wrapper:
            def __init__(_self, workspace, layout, use_tensor_cores):
                plans.append([layout, use_tensor_cores])

            def plan(_self, *arguments, **types_of):
                plans[-1] += [arguments, types_of]

            run = staticmethod(self.record("decode"))

        module = types.SimpleNamespace(BatchDecodeWithPagedKVCacheWrapper=Wrapper)
        make = peers_backends.flashinfer(module).forward
        for heads_q, heads_kv, matrix_units in ((8, 2, True), (4, 4, False)):
            _, (queries, caches), _, out = self.one_call(
                make, *problem(1, 48, heads_q, heads_kv, batch=2), True)
            self.assertEqual(plans[-1], ["NHD", matrix_units,
                                         ([0, 3, 6], [0, 1, 2, 3, 4, 5], [16, 16], heads_q,
                                          heads_kv, 8, 16),
                                         {"q_data_type": "bf16", "kv_data_type": "bf16"}])
            self.assertEqual(queries.shape, (2, heads_q, 8))
            self.assertEqual([cache.shape for cache in caches], [(6, 16, heads_kv, 8)] * 2)
            self.assertEqual(out.shape, (2, heads_q, 1, 8))
        with self.assertRaisesRegex(RuntimeError, "whole pages"):
            make(*problem(1, 40), True)

    def test_flashinfer_prefill(self):
        module = types.SimpleNamespace(single_prefill_with_kv_cache=self.record("prefill"))
        make = peers_backends.flashinfer(module).forward
        for causal in (False, True):
            _, tensors, words, out = self.one_call(make, *problem(3, 5), causal)
            self.assertEqual(words, {"causal": causal, "kv_layout": "NHD"})
            self.assertEqual(tensors[1].shape, (5, 2, 8))
            self.assertEqual(out.shape, (1, 2, 3, 8))
        with self.assertRaisesRegex(RuntimeError, "several batch entries"):
            make(*problem(3, 5, batch=2), True)

    def test_packages(self):
        """If only FlashAttention 4 is installed, flash_attn can be imported but is empty."""
        cute = types.ModuleType("flash_attn.cute")
        cute.flash_attn_func, cute.__version__ = self.record("fa4"), "0.0.0"
        self.install(types.ModuleType("flash_attn"), cute)
        with mock.patch.object(importlib.metadata, "version", return_value="4.0.0b36"):
            found, missing = peers_backends.package_backends(None)
        self.assertEqual([(one.name, one.version) for one in found],
                         [("fa4", "flash-attn-4 4.0.0b36"),
                          ("fa4_deterministic", "flash-attn-4 4.0.0b36")])
        self.assertIn("flash_attn_func", missing["flash_attn"])
        self.assertEqual(set(missing), {"flash_attn", "flash_attn_interface", "flashinfer",
                                        "xformers.ops"})
        with mock.patch.object(importlib.metadata, "version",
                               side_effect=importlib.metadata.PackageNotFoundError):
            self.assertEqual(peers_backends.package_backends(["fa4"])[0][0].version,
                             "flash-attn-4 0.0.0")

    def test_which_are_asked(self):
        names = lambda device, option: [  # noqa: E731
            one.name for one in peers_backends.backends(self.torch, device, option)[0]]
        self.assertEqual(names("cuda:0", "auto"), ["flash", "cudnn", "efficient", "math", "flex"])
        self.assertEqual(names("cuda:0", "flex,flash"), ["flash", "flex"])
        self.assertEqual(names("cpu", "auto"), ["flash"])
        self.assertEqual(names("cpu", "flash,math"), ["flash", "math"])

    def test_processor_time_leaves_waiting_out(self):
        limits = {"warm_up_seconds": 0, "sample_seconds": 0, "min_samples": 2, "max_samples": 2, "seconds": 0}
        wall, _ = peers_torch.CpuTimer().samples(lambda: time.sleep(0.02), limits)
        busy, _ = peers_torch.CpuTimer().samples(lambda: time.sleep(0.02), limits | {"processor_threads": 2})
        self.assertGreaterEqual(min(wall), 0.02)
        self.assertLess(max(busy), 0.01)


if __name__ == "__main__":
    unittest.main()
