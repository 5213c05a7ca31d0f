"""vLLM and SGLang with FlashCore's backend on the CPU: tokens and their log probabilities.

    check.py all DIRECTORY    every case, against transformers and the engine's own backend
    check.py run ENGINE PLUGIN MODEL OUT.json OPTION=VALUE...    one engine

Models are tiny and have random weights. Prompts differ in length, and the longest takes several
steps, with tokens of other requests beside its chunks; the second round finds prompts of the first
in the cache of prefixes. The last line is "engines: N passed, M failed, K skipped".
"""

import json
import math
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import torch

VOCABULARY, NEW_TOKENS, CHUNK = 384, 24, 64
COMMON = {"vocab_size": VOCABULARY, "hidden_size": 128, "num_hidden_layers": 3}
GROUPED = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32}
MODELS = {
    "llama": ("LlamaConfig", COMMON | GROUPED | {"intermediate_size": 256}),
    "gemma2": (  # softcap, windows
        "Gemma2Config",
        COMMON
        | GROUPED
        | {"intermediate_size": 256, "sliding_window": 32, "query_pre_attn_scalar": 32}
        | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": None}
        | {"hidden_act": "gelu_pytorch_tanh"},  # SGLang reads this name
    ),
    "bloom": (  # ALiBi
        "BloomConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 256, "n_layer": 3, "n_head": 8},
    ),
    "deepseek": (  # MLA
        "DeepseekV3Config",
        COMMON
        | {"intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4}
        | {"kv_lora_rank": 512, "q_lora_rank": None, "qk_rope_head_dim": 64}
        | {"qk_nope_head_dim": 32, "v_head_dim": 32, "first_k_dense_replace": 3}
        | {"n_routed_experts": 8, "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 0},
    ),
}


def make(name: str, directory: Path) -> None:
    import transformers

    kind, settings = MODELS[name]
    config = getattr(transformers, kind)(
        **settings, initializer_range=0.15, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.float().save_pretrained(directory)


def rounds() -> list[list[list[int]]]:
    """Prompts of two rounds; those of the second begin as some of the first."""
    draw = torch.Generator().manual_seed(2)
    prompts = [
        torch.randint(3, VOCABULARY, (n,), generator=draw).tolist() for n in (5, 190, 33, 1, 64, 97)
    ]
    own = torch.randint(3, VOCABULARY, (3, 9), generator=draw).tolist()
    return [prompts, [prompts[1][:150] + own[0], prompts[1] + own[1], prompts[4] + own[2]]]


def backends(model: torch.nn.Module) -> list[str]:
    return sorted({type(m.impl).__name__ for m in model.modules() if hasattr(m, "impl")})


def run_vllm(model: str, ours: bool, settings: dict) -> dict:
    import check  # as its workers find it
    from vllm import LLM, SamplingParams

    engine = LLM(
        model,
        skip_tokenizer_init=True,
        max_model_len=256,
        max_num_batched_tokens=CHUNK,
        enable_prefix_caching=True,
        kv_cache_memory_bytes=1 << 26,
        **({"max_num_seqs": 4} | settings),
    )
    parameters = SamplingParams(
        temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True, logprobs=0, detokenize=False
    )
    results = []
    for prompts in rounds():
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        for answer in engine.generate(given, parameters, use_tqdm=False):
            [text] = answer.outputs
            tokens = list(text.token_ids)
            chosen = [step[t].logprob for t, step in zip(tokens, text.logprobs, strict=True)]
            results.append([tokens, chosen, answer.num_cached_tokens])
    return {"results": results, "backends": engine.apply_model(check.backends)}


def run_sglang(model: str, ours: bool, settings: dict) -> dict:
    import sglang

    engine = sglang.Engine(
        model_path=model,
        device="cpu",
        attention_backend="flashcore" if ours else "torch_native",
        skip_tokenizer_init=True,
        context_length=256,
        max_running_requests=4,
        max_total_tokens=4096,
        chunked_prefill_size=CHUNK,
        enable_mixed_chunk=True,
        sampling_backend="pytorch",
        grammar_backend="none",
        **settings,
    )
    parameters = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    results = []
    for prompts in rounds():
        for answer in engine.generate(
            input_ids=prompts, sampling_params=parameters, return_logprob=True
        ):
            about = answer["meta_info"]
            chosen = [step[0] for step in about["output_token_logprobs"]]
            results.append([answer["output_ids"], chosen, about["cached_tokens"]])
    ran = engine.get_server_info()["attention_backend"]
    engine.shutdown()
    return {"results": results, "backends": [{"flashcore": "FlashCore"}.get(ran, ran)]}


def eager(directory: Path, results: list) -> tuple[float, float]:
    """Compares with transformers, over each whole text at once.

    Returns how much less likely a token is than the likeliest one, at most, and the largest
    difference of a log probability.
    """
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager", dtype=torch.float32
    )
    less = differs = 0.0
    for prompt, (tokens, logprobs, _) in zip(chain(*rounds()), results, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + tokens[:-1]])).logits[0, len(prompt) - 1 :]
        every = logits.double().log_softmax(-1)
        chosen = every.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        less = max(less, float((every.max(-1).values - chosen).max()))
        differs = max(differs, float((chosen - torch.tensor(logprobs).double()).abs().max()))
    return less, differs


def engine(kind: str, directory: Path, out: Path, ours: bool, settings: list[str]) -> dict:
    """Runs an engine in a process of its own; it has no results if it fails."""
    plugin = "flashcore" if ours else ""
    environment = os.environ | {
        "VLLM_PLUGINS": plugin,
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    log = out.with_suffix(".log")
    out.unlink(missing_ok=True)
    with log.open("w") as stream:
        subprocess.run(
            [sys.executable, __file__, "run", kind, plugin, directory, out, *settings],
            env=environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    if not out.exists():
        print(f"{log}:", *log.read_text().splitlines()[-15:], sep="\n")
        return {"results": [], "backends": []}
    return json.loads(out.read_text())


# The engine, the model, settings, and the most that a log probability may differ from
# transformers' (None: half as much again as with the engine's own backend), and from the own
# backend's. SGLang's own backend for the CPU has no softcap. With MLA on the CPU, vLLM itself
# computes other results than transformers, from run to run too where prompts share a step, and
# keeps no prefix.
FP32, EAGER = "dtype=float32", "enforce_eager=1"
CASES = [
    ("vllm", "llama", [FP32, EAGER, "block_size=32"], 1e-4, 1e-4),
    ("vllm", "gemma2", [FP32, EAGER], 1e-4, 1e-4),
    ("vllm", "bloom", [FP32, EAGER], None, 1e-4),
    ("vllm", "deepseek", [FP32, EAGER, "max_num_seqs=1"], math.inf, 1e-4),
    ("vllm", "llama", ["dtype=bfloat16", EAGER], 0.5, 0.2),
    ("vllm", "llama", [FP32], 1e-4, 1e-4),  # compiled
    ("sglang", "llama", [FP32, "page_size=16"], 1e-4, 1e-4),
    ("sglang", "gemma2", [FP32, "page_size=64", "disable_hybrid_swa_memory=1"], 1e-4, 9),
    ("sglang", "llama", ["dtype=bfloat16", "page_size=1"], 0.5, 0.2),
]


def compare(directory: Path, settings: list[str], limits: tuple, ours: dict, own: dict) -> dict:
    """Returns the checks of one case, by name."""
    checks = {
        "FlashCore's backend ran": "FlashCore" in str(ours["backends"]),
        "the engine's own ran": bool(own["backends"]) and "FlashCore" not in str(own["backends"]),
    }
    if not all(checks.values()):
        return checks
    near, same = limits
    pairs = list(zip(ours["results"], own["results"], strict=True))
    less, differs = eager(directory, ours["results"])
    own_less, own_differs = eager(directory, own["results"])
    apart = 0.0
    for (tokens, left, _), (others, right, _) in pairs:
        for t, u, a, b in zip(tokens, others, left, right, strict=True):
            if t != u:  # from here on the texts differ
                break
            apart = max(apart, abs(a - b))
    equal = sum(a[0] == b[0] for a, b in pairs)
    cached = sum(result[2] or 0 for result in ours["results"][-3:])
    print(
        f"log probabilities within {differs:.1e} of transformers' (the engine's own backend: "
        f"{own_differs:.1e}) and {apart:.1e} of the own's; {equal} of {len(pairs)} requests have "
        f"its tokens; {cached} tokens were in the cache"
    )
    checks |= {
        "the likeliest tokens": less <= (near or 1.5 * own_less),
        "log probabilities as transformers'": differs <= (near or 1.5 * own_differs),
        "log probabilities as the own backend's": apart <= same,
    }
    if "deepseek" not in directory.name:
        checks["prefixes were found"] = cached >= 250
    if FP32 in settings and same < 1:
        checks["tokens as the own backend's"] = equal == len(pairs)
    return checks


def main(work: Path) -> int:
    passed = failed = 0
    for kind, name, settings, *limits in CASES:
        directory = work / name
        if not (directory / "config.json").exists():
            make(name, directory)
        title = " ".join([kind, name, *settings])
        print(f"{title}:", flush=True)
        outs = [work / f"{title.replace(' ', '-')}-{who}.json" for who in ("ours", "own")]
        ours = engine(kind, directory, outs[0], True, settings)
        own = engine(kind, directory, outs[1], False, settings)
        for check, good in compare(directory, settings, limits, ours, own).items():
            passed, failed = passed + good, failed + (not good)
            if not good:
                print(f"FAILED: {title}: {check}")
    print(f"engines: {passed} passed, {failed} failed, 0 skipped")
    return failed > 0


def value(text: str):
    return int(text) if text.isdigit() else text


if __name__ == "__main__":
    if sys.argv[1] == "run":
        kind, plugin, model, out, *options = sys.argv[2:]
        given = dict(option.split("=") for option in options)
        given = {name: value(text) for name, text in given.items()}
        results = {"vllm": run_vllm, "sglang": run_sglang}[kind](model, bool(plugin), given)
        Path(out).write_text(json.dumps(results))
    else:
        sys.exit(main(Path(sys.argv[2])))
