#!/usr/bin/env bash
# Everything that run.sh does, then every test. Ends in a line "N passed, N failed".
#
#   ./test.sh                   all stages
#   ./test.sh lint release      only these
#   ./test.sh --list            their names
#
# Build folders are kept, so a second run compiles only what changed.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"
cd "$root"

stages=(release example lint headers install resources bare python rust address thread simulator fuzz)
# These need no CUDA: where there is a toolkit they run with it hidden, as on a machine without. The
# fuzzers see its headers, for those are all that plans of CUDA kernels need.
bare_stages=(bare python rust address thread)
passed=0
failed=0
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
  local directory=$1 log status=0 total bad
  shift
  log=$(mktemp)
  "${fixed_addresses[@]}" ctest --test-dir "$directory" -j "$(nproc)" --output-on-failure \
    --no-tests=error --timeout 600 "$@" >"$log" 2>&1 || status=$?
  # "97% tests passed, 3 tests failed out of 100"
  if ! read -r bad total < <(sed -nE \
      's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$log"); then
    tail -n 40 "$log"
    count 1 "$stage: ctest did not run"
    rm -f "$log"
    return
  fi
  say "$((total - bad)) of $total tests passed"
  passed=$((passed + total - bad))
  failed=$((failed + bad))
  if ((status != 0)); then
    grep -vE '^ *[0-9]+/[0-9]+ Test .* Passed|^ +Start ' "$log" | tail -n 300
    failures+=("$stage: $bad of $total tests")
    ((bad > 0)) || failed=$((failed + 1))
  fi
  rm -f "$log"
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

# For every GPU, whatever run.sh has built; file by file, as the stages lint and headers want it.
stage_release() {
  configured build -DCMAKE_BUILD_TYPE=Release -DFLASHCORE_TESTS=ON -UFLASHCORE_CUDA \
    -UFLASHCORE_CUDA_ARCHITECTURES -DFLASHCORE_UNITY=OFF || return 0
  built build || return 0
  report_cuda build
  run_ctest build
}

stage_example() { check ./run.sh; }

stage_lint() { check scripts/lint.sh build; }

stage_headers() { check scripts/check_headers.py build; }

stage_install() { check scripts/check_install.sh build; }

# The compiler's report on registers, spills and shared memory; needs no GPU.
stage_resources() {
  if [[ ! -f tools/check_resources.py ]]; then
    say "No tools/check_resources.py here."
  elif cuda_is_built build; then
    check python3 tools/check_resources.py build
  else
    say "Not checked: the CUDA kernels are not built."
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

# without_cuda STAGE: runs a stage in a process for which there is no CUDA toolkit, and counts what
# it counts.
without_cuda() {
  local log good bad
  log=$(mktemp)
  scripts/without_cuda.sh ./test.sh "$1" | tee "$log" | grep -vE '^(===|---) |^[0-9]+ passed, ' || true
  if read -r good bad < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$log"); then
    passed=$((passed + good))
    failed=$((failed + bad))
    ((bad == 0)) || failures+=("$1, without CUDA")
  else
    count 1 "$1: did not run without CUDA"
  fi
  rm -f "$log"
}

# counted_by NAME COMMAND...: a script whose last line is "NAME: N passed, M failed", with more after
# it or not.
counted_by() {
  local name=$1 log status=0 good bad
  shift
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if ! read -r good bad < <(sed -nE "s/^$name: ([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p" "$log"); then
    tail -n 60 "$log"
    count 1 "$stage: the tests did not run"
    rm -f "$log"
    return
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
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

# The Rust crates, with the distribution's two compilers.
stage_rust() { counted_by rust scripts/rust.sh build-rust; }

# Quick to compile, and with the line numbers that a report needs.
sanitized=(-DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1"
           -DFLASHCORE_CUDA=OFF)

stage_address() {
  configured build-address "${sanitized[@]}" -DFLASHCORE_TESTS=ON \
    -DFLASHCORE_SANITIZE=address,undefined || return 0
  built build-address || return 0
  # Without those of the scripts, which no sanitizer sees.
  run_ctest build-address -E '^tools[.]'
  check scripts/rust_address.sh build-address
}

# The programs in which threads meet.
stage_thread() {
  configured build-thread "${sanitized[@]}" -DFLASHCORE_TESTS=ON -DFLASHCORE_SANITIZE=thread ||
    return 0
  # The build starts the test programs too, to list their tests.
  built build-thread threads || return 0
  run_ctest build-thread -L threads
}

# The simulator of CUDA kernels (docs/simulator.md): small kernels with faults that it must find, then
# every kernel of the library, and faults planted into them.
stage_simulator() {
  configured build-simulator -DCMAKE_BUILD_TYPE=Release -DFLASHCORE_CUDA=OFF \
    -DFLASHCORE_SIMULATOR=ON -DFLASHCORE_TESTS=ON || return 0
  built build-simulator flashcore_command flashcore_fp8_accuracy simulator_test recorded_values \
    serving_device_test quantize_device_test || return 0
  run_ctest build-simulator -L simulator
}

stage_fuzz() {
  if clang_is_too_old; then
    say "Not run: Clang 14 cannot read this system's C++ library."
    return
  fi
  CC=clang-14 CXX=clang++-14 configured build-fuzz "${sanitized[@]}" -DFLASHCORE_TESTS=OFF \
    -DFLASHCORE_FUZZ=ON || return 0
  built build-fuzz fuzzers || return 0
  check scripts/fuzz.sh build-fuzz "${FLASHCORE_FUZZ_SECONDS:-30}"
  # stand_in_test, where CUDA's headers are found.
  [[ ! -x build-fuzz/tests/fuzz/stand_in_test ]] || run_ctest build-fuzz/tests/fuzz
}

chosen=("${stages[@]}")
if (($# > 0)); then
  if [[ $1 == --list ]]; then
    printf '%s\n' "${stages[@]}"
    exit
  fi
  chosen=("$@")
  for stage in "${chosen[@]}"; do
    [[ " ${stages[*]} " == *" $stage "* ]] || fail "There is no stage $stage; there are: ${stages[*]}"
  done
fi

need_packages "${build_packages[@]}" "${test_packages[@]}"
can_hide_cuda=""
if [[ -n $(find_nvcc) ]] && scripts/without_cuda.sh true; then can_hide_cuda=yes; fi
times=()
for stage in "${chosen[@]}"; do
  started=$SECONDS
  say "=== $stage"
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
say "$passed passed, $failed failed"
((failed == 0))
