// Writes seed corpora for the fuzz targets that read files: DIRECTORY/safetensors_fuzz and so on.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/bench/io/malformed_files.hpp"

namespace {

bool write_all(const std::filesystem::path& directory,
               const std::vector<flashcore::tests::FileCase>& cases) {
  std::filesystem::create_directories(directory);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::ofstream file(directory / ("seed-" + std::to_string(i)), std::ios::binary);
    file << cases[i].bytes;
    if (!file.flush()) return false;
  }
  return true;
}

// Tuning tables: with one entry, and with none.
std::vector<flashcore::tests::FileCase> table_cases() {
  const std::string head =
      R"({"schema": "flashcore-tuning", "version": 1, "device": {"name": "CPU",)"
      R"( "compute_capability": 0, "multiprocessors": 2}, "entries": [)";
  const std::string entry =
      R"({"key": "forward f32 d64", "kernel": "cpu_simd", "config": "rows=96", "is_default": false,)"
      R"( "us": 1.5, "default": "cpu_simd", "default_us": 2, "noise": 0.01, "source": "source 0",)"
      R"( "compiler": "GNU 12", "measured": "2026-11-24", "problems": ["q f32 [1]"]})";
  std::vector<flashcore::tests::FileCase> cases(2);
  cases[0].bytes = head + entry + "]}";
  cases[1].bytes = head + "]}";
  return cases;
}

// A file of each kind that is small; `kind`: documents_fuzz's first byte.
bool add_document(std::vector<flashcore::tests::FileCase>& cases, char kind, const char* name) {
  std::ifstream file(std::string(FLASHCORE_SOURCE "/") + name, std::ios::binary);
  cases.emplace_back().bytes =
      kind + std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  return file.good() || file.eof();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::vector<flashcore::tests::FileCase> documents;
  const bool read =
      add_document(documents, 0, "bench/cases/few_keys.json") &&
      add_document(documents, 0, "bench/cases/backward_packed.json") &&
      add_document(documents, 1, "docs/evidence/quantization.json") &&
      add_document(documents, 1, "docs/evidence/verify-forward_sm80_paged-sanitizers.json");
  const bool written =
      read && write_all(directory / "documents_fuzz", documents) &&
      write_all(directory / "safetensors_fuzz", flashcore::tests::safetensors_cases()) &&
      write_all(directory / "npy_fuzz", flashcore::tests::npy_cases()) &&
      write_all(directory / "tuning_fuzz", table_cases());
  return written ? 0 : 1;
}
