#!/usr/bin/env bash
# What decode_sm80 owes before it may be chosen by itself, on a machine with a GPU: device tests, gates, sanitizers, and
# its first times. Takes about 20 minutes of an H200. The build has to be there: cmake --build build.
#
# usage: scripts/gate_decode.sh [OUT]    evidence and logs go to OUT, build/gate_decode if it is not given
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/gate_decode}
mkdir -p "$out"
flashcore=build/bin/flashcore
kernel=(--device cuda --kernel decode_sm80)

# One captured graph for all lengths, bits, page indices.
build/tests/cuda/device/decode_sm80_device_test | tee "$out/device.txt"

# The gate table, hard scores, random problems; with caches: 10,000. Twice each, the same bits.
"$flashcore" verify "${kernel[@]}" --random 2000 --random-seed 190000000 --json > "$out/verify.json"
"$flashcore" verify "${kernel[@]}" --shapes none --paged --random 40000 --random-seed 191000000 --json \
  > "$out/verify-paged.json"
"$flashcore" verify "${kernel[@]}" --shapes none --paged --random 2000 --random-seed 192000000 --largest-seqlen 2000 \
  --largest-head-dim 128 --json > "$out/verify-paged-long.json"
"$flashcore" verify "${kernel[@]}" --shapes none --batch-invariant --random 500 --random-seed 193000000 --json \
  > "$out/verify-batch-invariant.json"
"$flashcore" verify "${kernel[@]}" --shapes none --paged --random 0 --sanitizers --random-seed 194000000 \
  | tee "$out/sanitizers.txt"

# First times, against docs/decode-sm80.md's predictions.
"$flashcore" bench --device cuda --suite decode --also decode_sm80 --out "$out/bench-decode.json"
for page in 1 16 64; do
  "$flashcore" run "${kernel[@]}" --dtype bf16 --shape 16,32,1,128 --heads-kv 8 --seqlen-kv 8192 --paged "$page"
done | tee "$out/paged.txt"
"$flashcore" run "${kernel[@]}" --dtype bf16 --kv-dtype f8e4m3 --shape 16,32,1,128 --heads-kv 8 --seqlen-kv 8192 --paged 64 \
  | tee "$out/fp8.txt"
for queries in 1 2 4 8 16; do
  "$flashcore" run "${kernel[@]}" --dtype bf16 --shape "16,32,$queries,128" --heads-kv 8 --seqlen-kv 8192 --causal
done | tee "$out/queries.txt"
