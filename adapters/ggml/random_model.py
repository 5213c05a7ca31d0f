"""Writes a llama model of random weights, with one token per byte, for tests and timings.

usage: random_model.py GGUF_PY FILE [LAYERS [HEADS [HEADS_KV [HEAD_DIM [CONTEXT]]]]]
"""
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import gguf  # noqa: E402: found by its folder

SEED = 1


def main():
    file = sys.argv[2]
    sizes = [int(word) for word in sys.argv[3:]]
    layers, heads, heads_kv, head_dim, context = sizes + [2, 8, 2, 64, 40960][len(sizes):]
    width, inner = 256, 512
    random = np.random.default_rng(SEED)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads_kv)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    kinds = gguf.TokenType
    tokens = [(b"<unk>", kinds.UNKNOWN), (b"<s>", kinds.CONTROL), (b"</s>", kinds.CONTROL)]
    tokens += [(f"<0x{byte:02X}>".encode(), kinds.BYTE) for byte in range(256)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def add(name, *shape, times=1.0):
        if len(shape) == 1:
            values = np.ones(shape, np.float32)
        else:
            values = random.normal(0, times * shape[-1] ** -0.5, shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", values)

    add("token_embd", len(tokens), width)
    for layer in range(layers):
        block = f"blk.{layer}"
        add(f"{block}.attn_norm", width)
        # Large ones: few keys count for a query, and what they give counts for its token.
        add(f"{block}.attn_q", heads * head_dim, width, times=2)
        add(f"{block}.attn_k", heads_kv * head_dim, width, times=2)
        add(f"{block}.attn_v", heads_kv * head_dim, width, times=4)
        add(f"{block}.attn_output", width, heads * head_dim)
        add(f"{block}.ffn_norm", width)
        add(f"{block}.ffn_gate", inner, width)
        add(f"{block}.ffn_up", inner, width)
        add(f"{block}.ffn_down", width, inner)
    add("output_norm", width)
    add("output", len(tokens), width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
