// The functions of the C interface: results, errors, hostile pointers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"
#include "tests/api/c_problem.hpp"

namespace flashcore::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A plan of small_problem() on the reference kernel, destroyed at the end.
class CPlan : public ::testing::Test {
 protected:
  void SetUp() override {
    const flashcore_problem problem = small_problem();
    flashcore_plan_options options = default_options();
    options.kernel = "reference";
    ASSERT_EQ(flashcore_plan_create(&problem, &options, &plan_), FLASHCORE_OK);
  }
  void TearDown() override { flashcore_plan_destroy(plan_); }

  flashcore_status run(const flashcore_arguments& arguments) {
    return flashcore_plan_run(plan_, &arguments, nullptr, 0, nullptr);
  }

  flashcore_plan* plan_ = nullptr;
  SmallData data_;
};

TEST_F(CPlan, GivesTheBitsOfTheCppInterface) {
  ASSERT_EQ(run(data_.arguments()), FLASHCORE_OK) << flashcore_last_error();
  PlanOptions options;
  options.kernel = "reference";
  const Result<Plan> plan = make_plan(small_cpp_problem(), options);
  ASSERT_TRUE(plan.ok());
  SmallData other;
  const Status status = plan->run({.q = other.q.data(),
                                   .k = other.k.data(),
                                   .v = other.v.data(),
                                   .o = other.o.data(),
                                   .lse = other.lse.data()});
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(data_.o, other.o);
  EXPECT_EQ(data_.lse, other.lse);
  EXPECT_STREQ(flashcore_plan_kernel(plan_), "reference");
  EXPECT_EQ(flashcore_plan_reason(plan_), std::string(plan->reason()));
  EXPECT_EQ(flashcore_plan_workspace_bytes(plan_), plan->workspace_bytes());
}

TEST_F(CPlan, MissingDataIsNamedAndNothingIsWritten) {
  const auto message_without = [&](auto member) {
    flashcore_arguments arguments = data_.arguments();
    arguments.*member = nullptr;
    EXPECT_EQ(run(arguments), FLASHCORE_INVALID_ARGUMENT);
    EXPECT_TRUE(data_.untouched());
    return std::string(flashcore_last_error());
  };
  EXPECT_THAT(message_without(&flashcore_arguments::q), StartsWith("q: pointer is null"));
  EXPECT_THAT(message_without(&flashcore_arguments::k), StartsWith("k: pointer is null"));
  EXPECT_THAT(message_without(&flashcore_arguments::v), StartsWith("v: pointer is null"));
  EXPECT_THAT(message_without(&flashcore_arguments::o), StartsWith("o: pointer is null"));
  EXPECT_THAT(message_without(&flashcore_arguments::lse), StartsWith("lse: pointer is null"));
}

TEST_F(CPlan, MisalignedDataIsRefused) {
  flashcore_arguments arguments = data_.arguments();
  arguments.k = reinterpret_cast<const char*>(data_.k.data()) + 2;
  EXPECT_EQ(run(arguments), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("k: pointer"));
  EXPECT_TRUE(data_.untouched());
}

TEST_F(CPlan, ArgumentsOfAnotherVersion) {
  flashcore_arguments arguments = data_.arguments();
  arguments.struct_size =
      offsetof(flashcore_arguments, lse);  // no LSE, although the problem has one
  EXPECT_EQ(run(arguments), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("lse: pointer is null"));
  arguments.struct_size = offsetof(flashcore_arguments, dropout_seed);
  EXPECT_EQ(run(arguments), FLASHCORE_OK);

  std::vector<uint64_t> memory(sizeof arguments / 8 + 2, 0);
  arguments.struct_size = memory.size() * 8;
  std::memcpy(memory.data(), &arguments, sizeof arguments);
  const auto* longer = reinterpret_cast<const flashcore_arguments*>(memory.data());
  EXPECT_EQ(flashcore_plan_run(plan_, longer, nullptr, 0, nullptr), FLASHCORE_OK);
  memory.back() = 1;
  EXPECT_EQ(flashcore_plan_run(plan_, longer, nullptr, 0, nullptr), FLASHCORE_UNSUPPORTED);
  EXPECT_THAT(flashcore_last_error(), StartsWith("arguments: byte"));
}

TEST_F(CPlan, RunRefusesWhatIsNoPlan) {
  const flashcore_arguments arguments = data_.arguments();
  EXPECT_EQ(flashcore_plan_run(nullptr, &arguments, nullptr, 0, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("plan: pointer"));
  EXPECT_EQ(flashcore_plan_run(plan_, nullptr, nullptr, 0, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("arguments: pointer is null"));

  const std::vector<uint64_t> garbage(64, 0x1234567812345678);
  const auto* no_plan = reinterpret_cast<const flashcore_plan*>(garbage.data());
  EXPECT_EQ(flashcore_plan_run(no_plan, &arguments, nullptr, 0, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_STREQ(flashcore_plan_kernel(no_plan), "");
  EXPECT_STREQ(flashcore_plan_reason(no_plan), "");
  EXPECT_EQ(flashcore_plan_workspace_bytes(no_plan), 0u);
  EXPECT_TRUE(data_.untouched());
}

// A destroyed plan is looked up, and not dereferenced: the address sanitizer checks that.
TEST(CApi, APlanThatWasDestroyedIsNoPlan) {
  const flashcore_problem problem = small_problem();
  flashcore_plan* gone = nullptr;
  ASSERT_EQ(flashcore_plan_create(&problem, nullptr, &gone), FLASHCORE_OK);
  EXPECT_STRNE(flashcore_plan_kernel(gone), "");
  flashcore_plan_destroy(gone);
  EXPECT_STREQ(flashcore_plan_kernel(gone), "");
  EXPECT_STREQ(flashcore_plan_reason(gone), "");
  EXPECT_EQ(flashcore_plan_workspace_bytes(gone), 0u);
  flashcore_arguments arguments;
  ASSERT_EQ(flashcore_arguments_init(&arguments, sizeof arguments), FLASHCORE_OK);
  EXPECT_EQ(flashcore_plan_run(gone, &arguments, nullptr, 0, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("plan: pointer"));
  flashcore_plan_destroy(gone);  // a second time: nothing happens
}

// One thread destroys the plan while others run it: every run either computes, or finds no plan.
TEST_F(CPlan, MayBeDestroyedWhileItRuns) {
  const flashcore_arguments arguments = data_.arguments();
  std::atomic<int> started{0}, other{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, output = std::vector<float>(4096)]() mutable {
        flashcore_arguments mine = arguments;
        mine.o = output.data();
        mine.lse = output.data() + 2048;
        for (int n = 0; n < 200; ++n) {
          const flashcore_status status = flashcore_plan_run(plan_, &mine, nullptr, 0, nullptr);
          if (status != FLASHCORE_OK && status != FLASHCORE_INVALID_ARGUMENT) ++other;
          ++started;
        }
      });
    }
    while (started < 100) std::this_thread::yield();
    flashcore_plan_destroy(plan_);
  }
  EXPECT_EQ(other, 0);
  EXPECT_EQ(flashcore_plan_run(plan_, &arguments, nullptr, 0, nullptr), FLASHCORE_INVALID_ARGUMENT);
  plan_ = nullptr;
}

TEST(CApi, NullPlanIsHarmless) {
  flashcore_plan_destroy(nullptr);
  EXPECT_STREQ(flashcore_plan_kernel(nullptr), "");
  EXPECT_STREQ(flashcore_plan_reason(nullptr), "");
  EXPECT_EQ(flashcore_plan_workspace_bytes(nullptr), 0u);
}

TEST(CApi, PlanCreateRefusesNulls) {
  const flashcore_problem problem = small_problem();
  EXPECT_EQ(flashcore_plan_create(&problem, nullptr, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("plan: pointer is null"));
  auto* plan = reinterpret_cast<flashcore_plan*>(uintptr_t{8});
  EXPECT_EQ(flashcore_plan_create(nullptr, nullptr, &plan), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr) << "it must be null after an error";
  EXPECT_THAT(flashcore_last_error(), StartsWith("problem: pointer is null"));
}

TEST(CApi, LastErrorIsOfTheLastCallAndOfTheThread) {
  EXPECT_EQ(plan_outcome(nullptr).status, FLASHCORE_INVALID_ARGUMENT);
  const std::string before = flashcore_last_error();
  EXPECT_FALSE(before.empty());
  std::thread([] { EXPECT_STREQ(flashcore_last_error(), ""); }).join();
  EXPECT_EQ(flashcore_last_error(), before);
  size_t count = 0;
  ASSERT_EQ(flashcore_device_count(&count), FLASHCORE_OK);
  EXPECT_STREQ(flashcore_last_error(), "");
}

TEST(CApi, LongErrorsAreCut) {
  const flashcore_problem problem = small_problem();
  flashcore_plan_options options = default_options();
  options.kernel = "reference";
  // An error from the callback: the path with the most layers.
  const auto thrower = [](void*, const char*, const char*, int32_t) {
    throw std::runtime_error(std::string(5000, 'y'));
  };
  EXPECT_EQ(flashcore_explain(&problem, &options, thrower, nullptr), FLASHCORE_INTERNAL);
  EXPECT_EQ(std::string(flashcore_last_error()), std::string(1023, 'y'));
}

TEST(CApi, NoExceptionCrosses) {
  const flashcore_problem problem = small_problem();
  const auto throws_int = [](void*, const char*, const char*, int32_t) { throw 7; };
  EXPECT_EQ(flashcore_explain(&problem, nullptr, throws_int, nullptr), FLASHCORE_INTERNAL);
  const auto no_memory = [](void*, const char*, const char*, int32_t) { throw std::bad_alloc(); };
  EXPECT_EQ(flashcore_explain(&problem, nullptr, no_memory, nullptr), FLASHCORE_OUT_OF_MEMORY);
  EXPECT_THAT(flashcore_last_error(), StartsWith("memory:"));
}

struct Seen {
  std::vector<std::string> kernels;
  std::vector<std::string> refusals;
};

void remember(void* user, const char* kernel, const char* refusal, int32_t automatic) {
  EXPECT_TRUE(automatic == 0 || automatic == 1);
  static_cast<Seen*>(user)->kernels.emplace_back(kernel);
  static_cast<Seen*>(user)->refusals.emplace_back(refusal);
}

TEST(CApi, VerdictsAreThoseOfExplain) {
  const flashcore_problem problem = small_problem();
  struct One {
    std::string kernel, refusal, declines, note;
    bool automatic;
  };
  std::vector<One> seen;
  const auto visit = [](void* user, const flashcore_verdict* verdict) {
    EXPECT_EQ(verdict->struct_size, sizeof *verdict);
    EXPECT_EQ(verdict->reserved, 0);
    static_cast<std::vector<One>*>(user)->push_back({verdict->kernel, verdict->refusal,
                                                     verdict->declines, verdict->note,
                                                     verdict->automatic == 1});
  };
  ASSERT_EQ(flashcore_visit_verdicts(&problem, nullptr, visit, &seen), FLASHCORE_OK);
  const Result<std::vector<KernelVerdict>> verdicts = explain(small_cpp_problem());
  ASSERT_TRUE(verdicts.ok());
  ASSERT_EQ(seen.size(), verdicts->size());
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].kernel, (*verdicts)[i].kernel);
    EXPECT_EQ(seen[i].refusal, (*verdicts)[i].refusal);
    EXPECT_EQ(seen[i].declines, (*verdicts)[i].declines);
    EXPECT_EQ(seen[i].note, (*verdicts)[i].note);
    EXPECT_EQ(seen[i].automatic, (*verdicts)[i].automatic);
  }
  EXPECT_EQ(flashcore_visit_verdicts(&problem, nullptr, nullptr, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("visit: pointer is null"));
}

TEST(CApi, ExplainGivesEveryVerdict) {
  const flashcore_problem problem = small_problem();
  Seen seen;
  ASSERT_EQ(flashcore_explain(&problem, nullptr, remember, &seen), FLASHCORE_OK);
  const Result<std::vector<KernelVerdict>> verdicts = explain(small_cpp_problem());
  ASSERT_TRUE(verdicts.ok());
  ASSERT_EQ(seen.kernels.size(), verdicts->size());
  for (size_t i = 0; i < verdicts->size(); ++i) {
    EXPECT_EQ(seen.kernels[i], (*verdicts)[i].kernel);
    EXPECT_EQ(seen.refusals[i], (*verdicts)[i].refusal);
  }
  EXPECT_THAT(seen.kernels, Contains("reference"));
}

TEST(CApi, ExplainRefusesBadInputWithoutACall) {
  flashcore_problem problem = small_problem();
  Seen seen;
  EXPECT_EQ(flashcore_explain(&problem, nullptr, nullptr, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("function: pointer is null"));
  EXPECT_EQ(flashcore_explain(nullptr, nullptr, remember, &seen), FLASHCORE_INVALID_ARGUMENT);
  problem.dropout_p = 2;
  EXPECT_EQ(flashcore_explain(&problem, nullptr, remember, &seen), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("dropout_p: is 2"));
  EXPECT_THAT(seen.kernels, IsEmpty());
}

TEST(CApi, TensorsAreThoseOfTheCppInterface) {
  const int64_t shape[] = {2, 3, 5, 7};
  for (int32_t rank = 1; rank <= FLASHCORE_MAX_RANK; ++rank) {
    flashcore_tensor tensor;
    std::memset(&tensor, 0xff, sizeof tensor);
    ASSERT_EQ(flashcore_tensor_contiguous(&tensor, FLASHCORE_BF16, rank, shape), FLASHCORE_OK);
    EXPECT_EQ(tensor.dtype, FLASHCORE_BF16);
    EXPECT_EQ(tensor.rank, rank);
    int64_t stride = 1;
    for (int32_t d = FLASHCORE_MAX_RANK; d-- > 0;) {
      EXPECT_EQ(tensor.shape[d], d < rank ? shape[d] : 0);
      EXPECT_EQ(tensor.stride[d], d < rank ? stride : 0);
      if (d < rank) stride *= shape[d];
    }
  }
  const int64_t stride[] = {-1, 0, 1ll << 40, 1};
  flashcore_tensor tensor;
  ASSERT_EQ(flashcore_tensor_strided(&tensor, FLASHCORE_F16, 4, shape, stride), FLASHCORE_OK);
  for (int d = 0; d < 4; ++d) EXPECT_EQ(tensor.stride[d], stride[d]);
}

TEST(CApi, TensorHelpersRefuseBadInputAndWriteNothing) {
  const int64_t shape[] = {2, 3, 5, 7};
  flashcore_tensor tensor;
  std::memset(&tensor, 0x5a, sizeof tensor);
  const flashcore_tensor before = tensor;
  EXPECT_EQ(flashcore_tensor_contiguous(nullptr, FLASHCORE_F32, 4, shape),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("tensor: pointer is null"));
  EXPECT_EQ(flashcore_tensor_contiguous(&tensor, FLASHCORE_F32, 4, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("shape: pointer is null"));
  for (const int32_t dtype : {-1, 9, INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(flashcore_tensor_contiguous(&tensor, dtype, 4, shape), FLASHCORE_INVALID_ARGUMENT);
    EXPECT_THAT(flashcore_last_error(), StartsWith("dtype: is number"));
  }
  for (const int32_t rank : {0, 5, -1, INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(flashcore_tensor_contiguous(&tensor, FLASHCORE_F32, rank, shape),
              FLASHCORE_INVALID_ARGUMENT);
    EXPECT_THAT(flashcore_last_error(), StartsWith("rank: is"));
  }
  EXPECT_EQ(flashcore_tensor_strided(&tensor, FLASHCORE_F32, 4, shape, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("stride: pointer is null"));
  EXPECT_EQ(std::memcmp(&tensor, &before, sizeof tensor), 0);
}

TEST(CApi, NamesOfCodesAndTypes) {
  EXPECT_STREQ(flashcore_status_name(FLASHCORE_OK), "ok");
  EXPECT_STREQ(flashcore_status_name(FLASHCORE_INTERNAL), "internal");
  EXPECT_STREQ(flashcore_status_name(99), "unknown");
  EXPECT_STREQ(flashcore_status_name(INT32_MIN), "unknown");
  EXPECT_STREQ(flashcore_dtype_name(FLASHCORE_F8E4M3), "f8e4m3");
  EXPECT_STREQ(flashcore_dtype_name(-1), "unknown");
  EXPECT_EQ(flashcore_dtype_size(FLASHCORE_BF16), 2u);
  EXPECT_EQ(flashcore_dtype_size(FLASHCORE_F64), 8u);
  EXPECT_EQ(flashcore_dtype_size(FLASHCORE_I64), 8u);
  EXPECT_EQ(flashcore_dtype_size(9), 0u);
  EXPECT_EQ(flashcore_dtype_size(-1), 0u);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST(Devices, AFormerNameIsTheSameMember) {
  DeviceInfo info;
  EXPECT_EQ(info.shared_memory_per_block, 0);
  info.shared_memory_per_block = 99;
  const DeviceInfo copy = info;
  EXPECT_EQ(copy.shared_memory_a_block, 99);  // the former name
}
#pragma GCC diagnostic pop

TEST(CApi, DevicesAreThoseOfTheCppInterface) {
  const std::vector<DeviceInfo> all = devices();
  size_t count = 0;
  ASSERT_EQ(flashcore_device_count(&count), FLASHCORE_OK);
  ASSERT_EQ(count, all.size());
  for (size_t i = 0; i < count; ++i) {
    flashcore_device_info info;
    std::memset(&info, 0xff, sizeof info);
    info.struct_size = sizeof info;
    ASSERT_EQ(flashcore_device_get(i, &info), FLASHCORE_OK);
    EXPECT_EQ(info.struct_size, sizeof info);
    EXPECT_EQ(info.kind, static_cast<int32_t>(all[i].device.kind));
    EXPECT_EQ(info.index, all[i].device.index);
    EXPECT_EQ(info.compute_capability, all[i].compute_capability);
    EXPECT_EQ(info.multiprocessors, all[i].multiprocessors);
    EXPECT_EQ(info.memory_bytes, all[i].memory_bytes);
    EXPECT_EQ(all[i].name.substr(0, 255), info.name);
  }
  flashcore_device_info info = {};
  info.struct_size = sizeof info;
  EXPECT_EQ(flashcore_device_get(count, &info), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("position: is"));
  EXPECT_EQ(flashcore_device_get(SIZE_MAX, &info), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(flashcore_device_get(0, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(flashcore_device_count(nullptr), FLASHCORE_INVALID_ARGUMENT);
  info.struct_size = 0;
  EXPECT_EQ(flashcore_device_get(0, &info), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("info: struct_size is 0"));
}

TEST(CApi, BuildInfoIsThatOfTheCppInterface) {
  const BuildInfo wanted = build_info();
  EXPECT_EQ(flashcore_version(), wanted.version);
  // A newer caller's struct: members that are not known here are zeroed.
  struct Longer {
    flashcore_build_info info;
    uint64_t more[3];
  } longer;
  std::memset(&longer, 0xff, sizeof longer);
  longer.info.struct_size = sizeof longer;
  ASSERT_EQ(flashcore_build_info_get(&longer.info), FLASHCORE_OK) << flashcore_last_error();
  EXPECT_EQ(longer.info.struct_size, sizeof longer);
  EXPECT_EQ(longer.info.version, wanted.version);
  EXPECT_EQ(longer.info.compiler, wanted.compiler);
  EXPECT_EQ(longer.info.build_type, wanted.build_type);
  EXPECT_EQ(longer.info.cuda_targets, wanted.cuda_targets);
  EXPECT_EQ(longer.info.cpu_target, wanted.cpu_target);
  EXPECT_EQ(longer.info.cuda, wanted.cuda ? 1 : 0);
  EXPECT_EQ(longer.info.reserved, 0);
  EXPECT_EQ(longer.more[0], 0u);
  EXPECT_EQ(longer.more[2], 0u);
  EXPECT_EQ(flashcore_build_info_get(nullptr), FLASHCORE_INVALID_ARGUMENT);
}

TEST(CApi, DropoutIsThatOfTheCppInterface) {
  int kept = 0;
  for (int64_t key = 0; key < 1000; ++key) {
    int32_t keeps = -1;
    ASSERT_EQ(flashcore_dropout_keeps(3, 5, 0.25f, 1, 2, 3, key, &keeps), FLASHCORE_OK);
    ASSERT_EQ(keeps, dropout_keeps(3, 5, 0.25f, 1, 2, 3, key) ? 1 : 0);
    kept += keeps;
  }
  EXPECT_GT(kept, 690);  // 750 expected, standard deviation 14
  EXPECT_LT(kept, 810);
  int32_t keeps = 7;
  EXPECT_EQ(flashcore_dropout_keeps(3, 5, NAN, 1, 2, 3, 4, &keeps), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(flashcore_dropout_keeps(3, 5, -0.1f, 1, 2, 3, 4, &keeps), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(flashcore_dropout_keeps(3, 5, 0.5f, 1, 2, 3, -4, &keeps), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("key: is -4"));
  EXPECT_EQ(flashcore_dropout_keeps(3, 5, 0.5f, 1ll << 31, 2, 3, 4, &keeps),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("batch: is 2147483648"));
  EXPECT_EQ(keeps, 7);
  EXPECT_EQ(flashcore_dropout_keeps(3, 5, 0.5f, 1, 2, 3, 4, nullptr), FLASHCORE_INVALID_ARGUMENT);
}

TEST(CApi, MissingDeviceIsUnsupportedOrOutOfRange) {
  const flashcore_problem problem = small_problem();
  flashcore_plan_options options = default_options();
  options.device_kind = FLASHCORE_CUDA;
  options.device_index = 1000;
  const Outcome outcome = plan_outcome(&problem, &options);
  EXPECT_EQ(outcome.status,
            devices().size() > 1 ? FLASHCORE_INVALID_ARGUMENT : FLASHCORE_UNSUPPORTED);
  EXPECT_THAT(outcome.message, HasSubstr("cuda:1000"));
}

}  // namespace
}  // namespace flashcore::testing
