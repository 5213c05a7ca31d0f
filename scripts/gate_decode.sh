#!/usr/bin/env bash
# The checks that a decode kernel must pass before it is chosen automatically, on a machine with a
# GPU: device tests, gates, sanitizers, and times. Needs a finished build: cmake --build build.
#
# usage: scripts/gate_decode.sh KERNEL [OUT]    decode_sm80, decode_sm90 or mla_sm90; evidence and logs go to
#                                               OUT, default: build/gate_KERNEL
set -euo pipefail
cd "$(dirname "$0")/.."
kernel=$1
out=${2:-build/gate_$kernel}
mkdir -p "$out"
flashcore=build/bin/flashcore
verify=("$flashcore" verify --device cuda --kernel "$kernel")
suites=decode,paged,ragged,speculative
if [[ $kernel == mla_sm90 ]]; then
  # Only latent rows.
  verify+=(--shapes none --latent)
  suites=mla
fi

# One captured graph for all lengths; equal bits; page indices.
build/tests/cuda/device/device_test --gtest_filter="*Decode*" | tee "$out/device.txt"

# The gate table, hard scores, random problems; with caches: 10,000. Each runs twice and must repeat its bits.
"${verify[@]}" --random 2000 --random-seed 190000000 --out "$out/verify.json"
"${verify[@]}" --shapes none --paged --narrow --random 10000 --random-seed 191000000 --out "$out/verify-paged.json"
"${verify[@]}" --shapes none --paged --narrow --random 500 --random-seed 192000000 --largest-seqlen 2000 \
  --largest-head-dim 128 --out "$out/verify-paged-long.json"
if [[ $kernel == decode_sm80 ]]; then
  # Wide rows and MLA. One problem in five has a tree mask.
  "${verify[@]}" --shapes none --paged --narrow --random 5000 --random-seed 195000000 --largest-head-dim 256 \
    --out "$out/verify-wide.json"
  "${verify[@]}" --shapes none --paged --narrow --random 2000 --random-seed 198000000 --largest-head-dim 576 \
    --out "$out/verify-mla.json"
fi
"${verify[@]}" --shapes none --batch-invariant --random 500 --random-seed 193000000
"${verify[@]}" --shapes none --paged --narrow --random 12 --sanitizers --random-seed 194000000 \
  --out "$out/sanitizers.json"

"$flashcore" bench --device cuda --suite "$suites" --also "$kernel" --peers auto \
  --backends flash,cudnn --out "$out/bench-decode.json"
