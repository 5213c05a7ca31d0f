#!/usr/bin/env bash
# Builds, and tests what was built. Ends in a line "N passed, N failed, N skipped".
#
#   ./test.sh                   the library, the command, Python and the examples
#   ./test.sh --all             that, and every other stage: linters, sanitizers, fuzzers, Rust, the simulator
#   ./test.sh --long            that, with what takes hours: before a release
#   ./test.sh lint release      only these stages
#   ./test.sh --list            their names
#
# Build folders are kept, so a second run compiles only what changed.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"
cd "$root"

default_stages=(release example install python)
# What takes longest comes last: FLASHCORE_TEST_MINUTES may end before it begins.
stages=(release example install resources lint headers bare python torch rust thread simulator address fuzz fresh)
long_stages=("${stages[@]}" packages ggml engines)
# These need no CUDA: where there is a toolkit they run with it hidden, as on a machine without. The build of
# address and fuzz sees its headers, for those are all that plans of CUDA kernels need.
bare_stages=(bare python torch rust thread engines)
passed=0
failed=0
skipped=0
failures=()

# Programs with a sanitizer want an address space without surprises where that can be had.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
  fixed_addresses=(setarch "$(uname -m)" -R)
fi

# Counts one check.
count() {
  if (($1 == 0)); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$2")
  fi
}

# check COMMAND...: runs it and counts it as one check, named as the stage.
check() {
  local status=0
  "$@" || status=$?
  count "$status" "$stage"
}

# run_ctest DIRECTORY [CTEST ARGUMENT...]: counts every test that ran.
run_ctest() {
  local directory=$1 log counts status=0 good bad left_out
  shift
  log=$(mktemp)
  counts=$(mktemp)
  rm -rf "$directory/results"
  mkdir "$directory/results"
  "${fixed_addresses[@]}" ctest --test-dir "$directory" -j "$(nproc)" --output-on-failure \
    --no-tests=error --timeout 1800 --output-junit results/ctest.xml "$@" >"$log" 2>&1 || status=$?
  if ! scripts/count_tests.py "$directory/results/ctest.xml" "$directory/results" >"$counts"; then
    tail -n 40 "$log"
    count 1 "$stage: ctest did not run"
    rm -f "$log" "$counts"
    return
  fi
  if ((status != 0)); then
    grep -vE '^ *[0-9]+/[0-9]+ Test .* Passed|^ +Start |^ *\[ +(OK|RUN) +\]' "$log" | tail -n 300
  fi
  cat "$counts"
  IFS=' ,' read -r good _ bad _ left_out _ <<<"$(tail -n 1 "$counts")"
  passed=$((passed + good))
  skipped=$((skipped + left_out))
  if ((bad > 0)); then
    failed=$((failed + bad))
    failures+=("$stage: $bad of $((good + bad)) tests")
  elif ((status != 0)); then
    count 1 "$stage: ctest failed"
  fi
  rm -f "$log" "$counts"
}

# configured DIRECTORY [CMAKE ARGUMENT...], built DIRECTORY [TARGET...]: count and return a failure.
configured() {
  configure "$@" && return 0
  count 1 "$stage: configuration"
  return 1
}
built() {
  local directory=$1 targets=()
  shift
  (($# == 0)) || targets=(--target "$@")
  quietly "${fixed_addresses[@]}" cmake --build "$directory" -j "$(job_count)" "${targets[@]}" &&
    return 0
  count 1 "$stage: build"
  return 1
}

# For the GPUs of this machine, or 90a: what a user builds. A full run builds for every GPU, what is for fp16
# alone only for 90a; a long one builds everything.
stage_release() {
  local gpus=90a one_type=OFF
  if has_gpu; then gpus=native; fi
  if [[ $run != default ]]; then gpus="80+ptx;89;90a"; fi
  if [[ $run == all ]]; then one_type=ON; fi
  configured build -DCMAKE_BUILD_TYPE=Release -DFLASHCORE_TESTS=ON -UFLASHCORE_CUDA \
    "-DFLASHCORE_CUDA_ARCHITECTURES=$gpus" "-DFLASHCORE_CUDA_ONE_TYPE=$one_type" || return 0
  built build || return 0
  report_cuda build
  run_ctest build
}

stage_example() { check ./run.sh; }

# build-lint: the commands of each file by itself, in a folder that is configured and never built, with the headers
# that the release build generated.
configured_for_lint() {
  if [[ ! -f build/src/generated/build_info.hpp ]]; then
    say "The release build is not there: run ./test.sh release first."
    count 1 "$stage: no release build"
    return 1
  fi
  configured build-lint -DCMAKE_BUILD_TYPE=Release -DFLASHCORE_TESTS=ON -DFLASHCORE_UNITY=OFF \
    -DFLASHCORE_PCH=OFF || return 1
  (cd build && find . -path '*/generated/*' \( -name '*.hpp' -o -name '*.cuh' -o -name '*.inc' \) -print0 |
    tar -c --null -T -) | tar -x -C build-lint
}

stage_lint() {
  configured_for_lint || return 0
  local changed=(--changed)
  if [[ $run == long ]]; then changed=(); fi
  if [[ $run == all ]]; then export FLASHCORE_TIDY_SECONDS=${FLASHCORE_TIDY_SECONDS:-240}; fi
  check scripts/lint.sh "${changed[@]}" build-lint
}

stage_headers() {
  configured_for_lint || return 0
  local changed=(--changed)
  if [[ $run == long ]]; then changed=(); fi
  check scripts/check_headers.py "${changed[@]}" build-lint
}

stage_install() { check scripts/check_install.sh build; }

# The compiler's report on registers, spills and shared memory; needs no GPU.
stage_resources() {
  if cuda_is_built build; then
    check python3 tools/check_resources.py build
  else
    say "Not checked: the CUDA kernels are not built."
    skipped=$((skipped + 1))
  fi
}

# What the release build and its checks are without a CUDA toolkit. The other stages without one have
# the tests.
stage_bare() {
  if [[ -f build/CMakeCache.txt ]] && ! cuda_is_built build; then
    say "Nothing more to do: the release build is without CUDA."
    return
  fi
  configured build-bare -DCMAKE_BUILD_TYPE=Release -DFLASHCORE_TESTS=OFF || return 0
  if cuda_is_built build-bare; then
    say "The CUDA toolkit is not hidden, so this build is told to leave it out."
    configured build-bare -DFLASHCORE_CUDA=OFF || return 0
  fi
  built build-bare flashcore flashcore_shared flashcore_command || return 0
  check scripts/check_install.sh build-bare
}

# llama.cpp with our backend for ggml.
stage_ggml() {
  configured build-bare -DCMAKE_BUILD_TYPE=Release -DFLASHCORE_TESTS=OFF -DFLASHCORE_CUDA=OFF || return 0
  built build-bare flashcore flashcore_shared flashcore_command || return 0
  quietly cmake --install build-bare --prefix build-ggml/flashcore
  counted_by ggml scripts/ggml.sh build-ggml/flashcore build-ggml
}

# The README's two commands on a minimal system; in a whole long run without objects of other builds.
stage_fresh() {
  local scratch=()
  if [[ $run == long ]]; then scratch=(--scratch); fi
  counted_by fresh scripts/fresh.sh "${scratch[@]}"
}

# The wheel and the packages for Debian, installed and used on minimal systems without a compiler; the source's archive and the
# recipe for Conan.
stage_packages() {
  counted_by wheel scripts/wheel.sh build-wheel
  counted_by deb scripts/check_deb.sh build-deb
  counted_by fetch scripts/check_fetch.sh build-fetch
  counted_by conan scripts/check_conan.sh build-conan
}

# without_cuda STAGE: runs a stage in a process for which there is no CUDA toolkit, and counts what
# it counts.
without_cuda() {
  local log good bad left_out
  log=$(mktemp)
  scripts/without_cuda.sh env "FLASHCORE_TEST_RUN=$run" ./test.sh "$1" | tee "$log" |
    grep -vE '^(===|---) |^Seconds: |^[0-9]+ passed, ' || true
  if IFS=' ,' read -r good _ bad _ left_out _ < <(tail -n 1 "$log" | grep -E '^[0-9]+ passed, '); then
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + left_out))
    ((bad == 0)) || failures+=("$1, without CUDA")
  else
    count 1 "$1: did not run without CUDA"
  fi
  rm -f "$log"
}

# counted_by NAME COMMAND...: a script whose last line is "NAME: N passed, M failed", with ", K skipped" or not. One
# that exits with 77 says why it cannot run here, and counts as one skipped.
counted_by() {
  local name=$1 log status=0 good bad left_out
  shift
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if ((status == 77)); then
    tail -n 1 "$log"
    skipped=$((skipped + 1))
    rm -f "$log"
    return
  fi
  if ! read -r good bad left_out < <(
      sed -nE "s/^$name: ([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\1 \2 \4/p" "$log"); then
    tail -n 60 "$log"
    count 1 "$stage: the tests did not run"
    rm -f "$log"
    return
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  skipped=$((skipped + ${left_out:-0}))
  if ((status == 0)); then
    tail -n 1 "$log"
  else
    tail -n 300 "$log"
    failures+=("$stage: $bad of $((good + bad)) checks")
  fi
  rm -f "$log"
}

# The wheel in an environment of its own, and the tests of python/tests in it.
stage_python() { counted_by python scripts/python.sh build-python; }

# PyTorch and transformers, over the same wheel.
stage_torch() {
  if ! compgen -G 'build-python/wheel/flashcore-*.whl' >/dev/null; then
    stage_python
  fi
  counted_by torch scripts/torch.sh build-python/wheel build-torch
}

# vLLM and SGLang with our backends, over the same wheel.
stage_engines() {
  if ! compgen -G 'build-python/wheel/flashcore-*.whl' >/dev/null; then
    stage_python
  fi
  counted_by engines scripts/engines.sh build-python/wheel build-engines
}

# The Rust crates, with the distribution's two compilers.
stage_rust() { counted_by rust scripts/rust.sh build-rust; }

# What a run that is not a long one leaves out: all instruction sets but the best under sanitizers, most recorded
# verdicts and launches there, 7 of 10 random problems of each kernel on the simulator, and two thirds of its injected faults, other ones at each commit.
shorter() {
  [[ $run == long ]] ||
    export FLASHCORE_TEST_TARGETS=best FLASHCORE_TEST_RECORDED=few FLASHCORE_SIMULATED_SHARE=0.3
}

# Quick to compile, and with the line numbers that a report needs.
sanitized=(-DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1"
           -DFLASHCORE_CUDA=OFF)

# One build for address and fuzz: Clang's, or GCC's without the fuzzers.
built_with_address() {
  local fuzz=OFF
  if has_clang; then
    local -x CC=clang-14 CXX=clang++-14
    fuzz=ON
    grep -qs '^CMAKE_CXX_COMPILER:.*clang' build-address/CMakeCache.txt || rm -rf build-address
  fi
  configured build-address "${sanitized[@]}" -DFLASHCORE_TESTS=ON -DFLASHCORE_SANITIZE=address,undefined \
    -DFLASHCORE_FUZZ=$fuzz || return 1
  built build-address "$@"
}

stage_address() {
  built_with_address || return 0
  shorter
  # Without those of the scripts, which no sanitizer sees.
  run_ctest build-address -E '^tools[.]'
  check scripts/rust_address.sh build-address
}

# The programs in which threads meet.
stage_thread() {
  configured build-thread "${sanitized[@]}" -DFLASHCORE_TESTS=ON -DFLASHCORE_SANITIZE=thread ||
    return 0
  built build-thread threads || return 0
  shorter
  run_ctest build-thread -L threads
}

# The simulator of CUDA kernels (docs/simulator.md): small kernels with faults that it must find, then
# every kernel of the library, and faults injected into them.
stage_simulator() {
  configured build-simulator -DCMAKE_BUILD_TYPE=Release -DFLASHCORE_CUDA=OFF \
    -DFLASHCORE_SIMULATOR=ON -DFLASHCORE_TESTS=ON || return 0
  built build-simulator flashcore_command simulator_test recorded_values calls_device_test || return 0
  shorter
  local left_out=()
  if [[ $run != long ]]; then
    local commit
    commit=$(git rev-parse --short=6 HEAD 2>/dev/null || echo 0)
    left_out=(-LE "^third[^$((16#$commit % 3))]\$|^clang\$")
  fi
  run_ctest build-simulator -L simulator "${left_out[@]}"
}

stage_fuzz() {
  if ! has_clang; then
    say "Not run: there is no Clang 14, or it cannot read this system's C++ library."
    skipped=$((skipped + 1))
    return
  fi
  built_with_address fuzzers || return 0
  local seconds=10
  if [[ $run == long ]]; then seconds=30; fi
  check scripts/fuzz.sh build-address "${FLASHCORE_FUZZ_SECONDS:-$seconds}"
}

run=${FLASHCORE_TEST_RUN:-default}
chosen=("${default_stages[@]}")
case ${1:-} in
  --list) printf '%s\n' "${long_stages[@]}"; exit ;;
  --all) run=all chosen=("${stages[@]}"); shift ;;
  --long) run=long chosen=("${long_stages[@]}"); shift ;;
  -*) fail "$1: is no option, wanted --all, --long or --list" ;;
esac
if (($# > 0)); then
  chosen=("$@")
  for stage in "${chosen[@]}"; do
    [[ " ${long_stages[*]} " == *" $stage "* ]] || fail "There is no stage $stage; there are: ${long_stages[*]}"
  done
fi

packages=("${build_packages[@]}" "${test_packages[@]}")
for stage in "${chosen[@]}"; do
  case $stage in
    address) packages+=("${lint_packages[@]}" "${rust_packages[@]}") ;;
    lint | headers | fuzz) packages+=("${lint_packages[@]}") ;;
    rust) packages+=("${rust_packages[@]}") ;;
  esac
done
need_packages "${packages[@]}"
can_hide_cuda=""
if [[ -n $(find_nvcc) ]] && scripts/without_cuda.sh true; then can_hide_cuda=yes; fi
times=()
for stage in "${chosen[@]}"; do
  started=$SECONDS
  say "=== $stage"
  if ((${FLASHCORE_TEST_MINUTES:-0} > 0 && SECONDS > 60 * FLASHCORE_TEST_MINUTES)); then
    say "Not begun: $FLASHCORE_TEST_MINUTES minutes are over."
    skipped=$((skipped + 1))
    continue
  fi
  if [[ -n $can_hide_cuda && " ${bare_stages[*]} " == *" $stage "* ]]; then
    without_cuda "$stage"
  else
    "stage_$stage" || count 1 "$stage"
  fi
  say "--- $stage: $((SECONDS - started)) s"
  times+=("$stage $((SECONDS - started))")
done

say "Seconds: $(IFS=,; echo "${times[*]}")"

for failure in "${failures[@]}"; do say "FAILED: $failure"; done
say "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
