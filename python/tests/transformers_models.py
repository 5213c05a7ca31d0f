"""Tiny models of transformers with random weights, and how their results are compared."""

import functools

import gates
import pytest
import torch
import transformers

import flashcore

PLACES = [pytest.param("cpu", torch.float32, id="cpu")]
if torch.cuda.is_available() and flashcore.build_info()["cuda"]:
    PLACES.append(pytest.param("cuda", torch.bfloat16, id="cuda", marks=pytest.mark.gpu))
place = pytest.mark.parametrize(("device", "dtype"), PLACES)

COMMON = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
TOKENS = {"vocab_size": 97, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = COMMON | TOKENS | {"max_position_embeddings": 256}
GROUPED = TEXT | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 32}
SMOOTH = {"activation_function": "gelu"}  # rounding does not flip a gradient, as with ReLU
TWO_EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 2}  # both, so rounding chooses none


def model(kind, config, options):
    return getattr(transformers, kind), getattr(transformers, config)(**options)


def causal(name, options):
    return functools.partial(model, f"{name}ForCausalLM", f"{name}Config", options)


gemma = causal("Gemma2", WIDE | {"attn_logit_softcapping": 2.0, "sliding_window": 8})
gpt_oss = causal("GptOss", WIDE | TWO_EXPERTS | {"sliding_window": 8})
grouped = causal("Llama", GROUPED)
mistral = causal("Mistral", GROUPED | {"sliding_window": 8})

LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 24,
    "n_routed_experts": 2,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 64,
}
TWO_STACKS = {
    "d_model": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
    "dropout": 0.0,
    "max_position_embeddings": 256,
}
DECODERS = {
    "llama": grouped,
    "one-kv-head": causal("Llama", GROUPED | {"num_key_value_heads": 1}),
    "mistral": mistral,
    "qwen3": causal("Qwen3", WIDE),
    "gemma2": gemma,
    "gemma3": functools.partial(
        model,
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        WIDE | {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "llama4": functools.partial(
        model,
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        WIDE | TWO_EXPERTS | {"intermediate_size_mlp": 256, "attention_chunk_size": 8},
    ),
    "phi3": causal("Phi3", GROUPED),
    "gpt-neox": causal("GPTNeoX", TEXT),
    "gpt2": functools.partial(
        model,
        "GPT2LMHeadModel",
        "GPT2Config",
        TOKENS
        | {"n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 256}
        | dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    ),
    "opt": causal(
        "OPT", TEXT | SMOOTH | {"ffn_dim": 256, "word_embed_proj_dim": 128, "dropout": 0.0}
    ),
    "gpt-oss": gpt_oss,
    "deepseek-v3": causal("DeepseekV3", TEXT | LATENT),
    "mixtral": causal("Mixtral", GROUPED | TWO_EXPERTS),
}
TRANSLATORS = {
    "bart": functools.partial(
        model, "BartForConditionalGeneration", "BartConfig", TOKENS | TWO_STACKS
    ),
    "t5": functools.partial(
        model,
        "T5ForConditionalGeneration",
        "T5Config",
        TOKENS
        | {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4}
        | {"decoder_start_token_id": 1, "dropout_rate": 0.0, "feed_forward_proj": "gated-gelu"},
    ),
}
FAMILIES = DECODERS | TRANSLATORS


def build(make, device, dtype, attention, **options):
    kind, config = make()
    config._attn_implementation = attention
    for name, value in options.items():
        setattr(config, name, value)
    return kind(config).to(device, dtype).eval()


def pair(make, device, dtype, other="sdpa", **options):
    """Returns the same model twice: with FlashCore's attention, and with sdpa's or another."""
    ours = build(make, device, dtype, "flashcore", **options)
    theirs = build(make, device, dtype, other, **options)
    theirs.load_state_dict(ours.state_dict())
    assert ours.config._attn_implementation == "flashcore"
    return ours, theirs


def padded(lengths, side, device):
    """Returns tokens and their mask, padded to the largest length on the left or right."""
    longest = max(lengths)
    mask = torch.ones(len(lengths), longest, dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, slice(length, None) if side == "right" else slice(None, longest - length)] = 0
    tokens = torch.randint(3, 97, mask.shape) * mask
    return tokens.to(device), mask.to(device)


def check(actual, expected, dtype):
    # Two layers of rounding lie between attention and the logits, which are small. The limit is
    # twice the relative gate of the type.
    actual, expected = actual.double().cpu(), expected.double().cpu()
    relative = gates.GATES[str(dtype).removeprefix("torch.")][1]
    assert actual.isfinite().all()
    assert (actual - expected).norm() <= 2 * relative * expected.norm()


def check_generation(ours, theirs, tokens, dtype, steps, **options):
    """The logits of each step are equal, until a tie that rounding decides the other way."""
    options |= {
        "max_new_tokens": steps,
        "do_sample": False,
        "eos_token_id": None,
        "pad_token_id": 0,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    actual, expected = (m.generate(tokens, **options) for m in (ours, theirs))
    equal = 0
    for a, e in zip(actual.logits, expected.logits, strict=True):
        check(a, e, dtype)
        equal += 1
        end = actual.sequences.shape[1] - steps + equal
        if not torch.equal(actual.sequences[:, :end], expected.sequences[:, :end]):
            break
    assert equal == steps or dtype is not torch.float32


def check_text(model, prompt, tokens, dtype):
    """Each token is the most likely one after its predecessors, except for ties in rounding."""
    text = torch.tensor([prompt + tokens], device=model.device)
    logits = model(text).logits[0, len(prompt) - 1 : -1].float().cpu()
    chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    tie = 1e-5 if dtype is torch.float32 else 2e-2
    assert ((logits.amax(1) - chosen) <= tie * logits.abs().amax()).all()
