// Programs, tasks and the protocol, without running anything.
#include "evolve/task/task.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "evolve/propose/proposer.hpp"
#include "evolve/task/folder.hpp"
#include "evolve/task/sha256.hpp"
#include "tests/cli/scratch.hpp"

namespace flashcore::evolve {
namespace {

using Json = nlohmann::ordered_json;

TEST(Sha256, GivesTheNumbersOfTheStandard) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Program, HasTheValuesOfItsParameters) {
  const std::string source = "//@ param A {1, 2}\n//@ param B {x, y}\nint a = A;\n";
  const Result<Program> program = make_program(source, {{"B", "y"}});
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(text_of(*program), "#define A 1\n#define B y\n#line 1\n" + source);
  EXPECT_EQ(values_text(program->values), "A=1 B=y");
  EXPECT_NE(hash_of(*program), hash_of(*make_program(source, {})));
  EXPECT_EQ(text_of(*make_program("int a;\n", {})), "int a;\n");
}

TEST(Program, RefusesWhatIsNotDeclared) {
  const auto refusal = [](const std::string& source, const Values& values) {
    return make_program(source, values).status().message();
  };
  EXPECT_EQ(refusal("//@ param A {1, 2}\n", {{"A", "3"}}),
            "parameters.A: is '3', wanted a value of its list");
  EXPECT_EQ(refusal("//@ param A {1}\n", {{"B", "3"}}),
            "parameters: has 'B', wanted one that the source declares");
  EXPECT_EQ(refusal("//@ param A {1}\n//@ param A {2}\n", {}),
            "parameter A: is declared twice, wanted once");
  EXPECT_EQ(refusal("//@ param A {}\n", {}), "parameter A: has no values, wanted one or more");
  EXPECT_EQ(refusal("//@ param A {1\n", {}),
            "parameter: is '//@ param A {1', wanted a line such as //@ param BLOCK_Q {32, 64}");
  EXPECT_EQ(refusal("//@ param A {1, system(\"x\")}\n", {}),
            "parameter A: has the value 'system(\"x\")', wanted a number or a name");
}

TEST(Folder, KeepsATaskAndRefusesOthers) {
  const tests::Scratch scratch;
  const CallShape shape{1, 4, 2, 64, 64, 32, 0};
  const std::string folder = scratch.path("work");
  ASSERT_TRUE(make_folder(folder, {FLASHCORE_SEED, {shape}, false}).ok());
  const Result<RunFolder> read = open_folder(folder);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->task.language, "c");
  EXPECT_EQ(shape_text(read->task.shapes.front()), "1,4,64,32 of 2 heads and 64 keys");
  EXPECT_EQ(read->seed.values.size(), 4u);
  EXPECT_GT(read->task.peak_flop_per_second, 1e8);
  EXPECT_THAT(make_folder(folder, {FLASHCORE_SEED, {shape}, false}).message(),
              testing::HasSubstr("has a task already"));
  const auto from = [&](const std::string& source) {
    return make_folder(scratch.path("other"), {source, {shape}, false});
  };
  EXPECT_EQ(shipped_or_file("ladder/99_none").status().message(),
            "--from: is 'ladder/99_none', wanted a file, or a kernel of this library such as "
            "ladder/08_register_softmax");
  EXPECT_FALSE(shipped_or_file("../../seed").ok());
  EXPECT_EQ(from("seed.py").message(), "--from: is 'seed.py', wanted a .c, .cpp or .cu file");
  EXPECT_FALSE(from("nothing.c").ok());
  EXPECT_FALSE(open_folder(scratch.path("other")).ok());
}

TEST(Folder, ReadsFormerNames) {
  Json task = {{"device", {{"peak_flop_a_second", 2.0}, {"threads", 1}}}};  // a former name
  use_current_keys(task);
  EXPECT_EQ(task.dump(), R"({"device":{"peak_flop_per_second":2.0,"threads":1}})");
}

TEST(Folder, RefusesATaskThatWasBent) {
  const tests::Scratch scratch;
  const std::string folder = scratch.path("work");
  ASSERT_TRUE(make_folder(folder, {FLASHCORE_SEED, {{1, 1, 1, 8, 8, 16, 0}}, false}).ok());
  const Json good = open_folder(folder)->task_json;
  const auto refusal = [&](const char* pointer, const Json& value) {
    Json bent = good;
    bent[Json::json_pointer(pointer)] = value;
    return task_from(bent).status().message();
  };
  EXPECT_EQ(refusal("/version", 2), "version: is 2, wanted 1");
  EXPECT_EQ(refusal("/shapes/0/seqlen_q", 0), "shapes[0].seqlen_q: is 0, wanted 1 or more");
  EXPECT_EQ(refusal("/shapes", Json::array()), "shapes: there are none, wanted one or more");
  EXPECT_EQ(refusal("/device/kind", "cuda"),
            "device.kind: is \"cuda\", wanted one of \"cpu\", \"gpu\"");
  EXPECT_EQ(refusal("/dtype", "f16"),
            "dtype: is f16 in a task for c, wanted f32 on the CPU, f16 or bf16 in CUDA");
  EXPECT_EQ(refusal("/budgets/call_seconds", 0), "budgets.call_seconds: is 0, wanted more than 0");
}

TEST(Protocol, TellsWhatThePresetSays) {
  std::vector<Attempt> attempts(2);
  for (size_t i = 0; i < 2; ++i) {
    attempts[i].id = static_cast<int64_t>(i) + 1;
    attempts[i].done = true;
    attempts[i].outcome = "valid";
    attempts[i].score = 1 + static_cast<double>(i);
    attempts[i].program = *make_program("//@ param A {1, 2}\n", {});
    attempts[i].origin.thought = "because";
  }
  Request request{.attempt = 3,
                  .random = ~uint64_t{0},
                  .preset = "full",
                  .operation = "crossover",
                  .parents = {&attempts[1], &attempts[0]},
                  .elites = {&attempts[1], &attempts[0]},
                  .attempts = &attempts,
                  .task = Json::object()};
  const Json full = request_json(request);
  EXPECT_TRUE(check_request(full).ok()) << check_request(full).message();
  EXPECT_EQ(full["parents"].size(), 2u);
  EXPECT_EQ(full["history"].size(), 2u);
  EXPECT_EQ(full["insights"][1]["measured"], 2);
  request.preset = "insight";
  EXPECT_FALSE(request_json(request).contains("history"));
  EXPECT_TRUE(request_json(request)["parents"][0].contains("insights"));
  request.preset = "free";
  const Json free = request_json(request);
  EXPECT_TRUE(check_request(free).ok());
  EXPECT_FALSE(free.contains("insights"));
  EXPECT_FALSE(free["parents"][0].contains("insights"));
  Json bent = full;
  bent["operator"] = "guess";
  EXPECT_FALSE(check_request(bent).ok());
}

TEST(Protocol, HoldsAnswersToTheSchema) {
  std::vector<Attempt> attempts(1);
  attempts[0].program = *make_program("//@ param A {1, 2}\n", {});
  Request request;
  request.parents = {&attempts[0]};
  const auto answer = [&](const char* text) { return proposal_from(Json::parse(text), request); };
  const Result<Proposal> values = answer(R"({"version": 1, "name": "n", "parameters": {"A": 2}})");
  ASSERT_TRUE(values.ok()) << values.status().message();
  EXPECT_EQ(values->program.values.at("A"), "2");
  EXPECT_EQ(answer(R"({"version": 1, "name": "n", "source": "int a;"})")->program.source, "int a;");
  EXPECT_EQ(answer(R"({"version": 1})").status().message(), "has no 'name', wanted one");
  EXPECT_FALSE(answer(R"({"version": 1, "name": 3, "source": ""})").ok());
  EXPECT_FALSE(answer(R"([1])").ok());
  EXPECT_FALSE(
      answer(R"({"version": 1, "name": "n", "source": "", "predicted": {"score": -1}})").ok());
}

}  // namespace
}  // namespace flashcore::evolve
