#!/usr/bin/env bash
# FlashCore's backend for ggml (adapters/ggml) in llama.cpp as its users have it: ggml's own tests of attention, and a
# model of random weights, with logits and tokens equal to what ggml's CPU kernel gives. The source of llama.cpp comes
# from PyPI and is kept, built, in the cache folder.
#
# usage: ggml.sh PREFIX [DIRECTORY]    PREFIX: FlashCore, installed; DIRECTORY: default build-ggml
#        FLASHCORE_GGML_BENCH=1        also times both with llama-bench
#
# The last line is "ggml: N passed, M failed, K skipped". Exits with 77 if the source cannot be had.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
prefix=$(cd "$1" && pwd)
mkdir -p "${2:-build-ggml}"
directory=$(cd "${2:-build-ggml}" && pwd)
version=0.3.36

kept_environment ggml adapters/ggml/requirements.txt ||
  { say "Not run: the packages of adapters/ggml/requirements.txt could not be installed."; exit 77; }
llama=$environment/llama_cpp_python-$version/vendor/llama.cpp
if [[ ! -f $llama/build/made ]]; then
  PATH=$environment/bin:$PATH quietly "$python" -m pip download --disable-pip-version-check --no-deps \
    --no-build-isolation --no-binary :all: --dest "$environment" "llama-cpp-python==$version" ||
    { say "Not run: the source of llama-cpp-python $version could not be had."; exit 77; }
  tar -x -C "$environment" -f "$environment/llama_cpp_python-$version.tar.gz"
  quietly cmake -S "$llama" -B "$llama/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF -DGGML_CPU_ALL_VARIANTS=ON \
    -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=ON -DLLAMA_BUILD_SERVER=OFF \
    -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
  quietly cmake --build "$llama/build" -j "$(job_count)" \
    --target test-backend-ops llama-perplexity llama-completion llama-bench
  touch "$llama/build/made"
fi
bin=$llama/build/bin

quietly cmake -S adapters/ggml -B "$directory" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DGGML_SOURCE="$llama/ggml" -DGGML_LIBRARIES="$bin"
quietly cmake --build "$directory"
plugin=$directory/libggml-flashcore.so
passed=0 failed=0

# ggml's cases. One that FlashCore does not support is counted as skipped.
log=$directory/cases.txt
GGML_BACKEND_PATH=$plugin "$bin/test-backend-ops" test -o FLASH_ATTN_EXT -b FlashCore >"$log" 2>&1 || true
plain=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -E '^ *FLASH_ATTN_EXT\(' || true)
good=$(grep -c ': OK$' <<<"$plain" || true)
left_out=$(grep -c 'not supported' <<<"$plain" || true)
bad=$(grep -c 'FAIL' <<<"$plain" || true)
((good > 0)) || { tail -n 20 "$log"; bad=$((bad + 1)); }
say "test-backend-ops: $good cases passed, $bad failed, $left_out not supported"
grep 'FAIL' <<<"$plain" | head -n 20 || true
passed=$((passed + good))
failed=$((failed + bad))

# llama.cpp may lose the end of its output when it exits (its issue 22142).
# A model: the divergence of the distributions of tokens with FlashCore and with ggml's kernel, then generated tokens.
model=$directory/model.gguf
"$python" adapters/ggml/random_model.py "$llama/gguf-py" "$model"
threads=$(nproc)
own=(-m "$model" -t "$threads" -fa on -v)
uses_flashcore() { grep -q 'FlashCore: computes attention' "$1"; }
# The most divergence, and the least share of equal most likely tokens. With q8_0 and q4_0 ggml also rounds queries to
# q8_0. A scale that is wrong by a tenth is beyond each of them.
for limits in 'f16 1e-4 99' 'bf16 1e-4 99' 'q8_0 1e-3 90' 'q4_0 4e-3 85'; do
  read -r k most least <<<"$limits"
  cache=(-ctk "$k" -ctv "$k")
  "$bin/llama-perplexity" "${own[@]}" "${cache[@]}" -f docs/semantics.md -c 512 --chunks 4 \
    --save-all-logits "$directory/logits" >"$directory/own.txt" 2>&1 || true
  for _ in 1 2 3; do  # its output may lack the end
    GGML_BACKEND_PATH=$plugin "$bin/llama-perplexity" "${own[@]}" "${cache[@]}" -f docs/semantics.md -c 512 --chunks 4 \
      --save-all-logits "$directory/logits" --kl-divergence >"$directory/ours.txt" 2>&1 || true
    divergence=$(sed -nE 's/^Mean +KLD: +(-?[0-9.]+).*/\1/p' "$directory/ours.txt")
    same=$(sed -nE 's/^Same top p: +([0-9.]+).*/\1/p' "$directory/ours.txt")
    [[ -z $divergence || -z $same ]] || break
  done
  say "model, cache $k: mean KL divergence ${divergence:-none}, same most likely token ${same:-none}%"
  status=0
  awk -v d="${divergence:-9}" -v s="${same:-0}" -v most="$most" -v least="$least" \
    'BEGIN {exit !(d < most && s > least)}' &&
    uses_flashcore "$directory/ours.txt" || status=1
  check_that "the model's logits with a cache of $k: $directory/ours.txt" test "$status" = 0
done
# What both have must be equal.
generate=("${own[@]}" -no-cnv --no-warmup --temp 0 -n 96 -c 4096 -p "One meaning, one place." --no-display-prompt)
"$bin/llama-completion" "${generate[@]}" >"$directory/own_tokens" 2>"$directory/own.txt" || true
GGML_BACKEND_PATH=$plugin "$bin/llama-completion" "${generate[@]}" >"$directory/tokens" 2>"$directory/ours.txt" || true
shorter=$(cat "$directory/own_tokens" "$directory/tokens" | wc -c)
for file in own_tokens tokens; do
  size=$(wc -c <"$directory/$file")
  shorter=$((size < shorter ? size : shorter))
done
status=0
((shorter >= 48)) && cmp -s -n "$shorter" "$directory/own_tokens" "$directory/tokens" &&
  uses_flashcore "$directory/ours.txt" || status=1
check_that "the model's generated tokens: $directory/tokens" test "$status" = 0

if [[ ${FLASHCORE_GGML_BENCH:-} == 1 ]]; then
  "$python" adapters/ggml/random_model.py "$llama/gguf-py" "$directory/large.gguf" 2 32 8 128
  for backend in '' "$plugin"; do
    say "${backend:+with FlashCore}${backend:-ggml}"
    GGML_BACKEND_PATH=$backend "$bin/llama-bench" -m "$directory/large.gguf" -t "$threads" -fa 1 -p 512 -n 16 \
      -d 4096,16384,32768 -r 2
  done
fi
say "ggml: $passed passed, $failed failed, $left_out skipped"
((failed == 0))
