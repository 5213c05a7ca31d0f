#include "bench/process/forked_call.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

namespace flashcore::bench {
namespace {

using testing::HasSubstr;

TEST(ForkedCall, GivesBackWhatTheCopyReturned) {
  static int changed = 0;
  const std::string text(100000, 'x');  // more than a pipe holds
  const Result<std::string> told = call_in_copy(
      [&] {
        changed = 1;
        return text;
      },
      60);
  ASSERT_TRUE(told.ok()) << told.status().message();
  EXPECT_EQ(*told, text);
  EXPECT_EQ(changed, 0);
}

TEST(ForkedCall, ASignalIsAnError) {
  const Result<std::string> told = call_in_copy(
      [] {
        ::raise(SIGKILL);
        return std::string("never");
      },
      60);
  ASSERT_FALSE(told.ok());
  EXPECT_THAT(told.status().message(), HasSubstr("signal 9"));
}

TEST(ForkedCall, AnExceptionIsAnError) {
  const Result<std::string> told =
      call_in_copy([]() -> std::string { throw std::runtime_error("no"); }, 60);
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.status().message(), "it ended by an exception");
}

TEST(ForkedCall, TheCopyIsEndedWhenItTakesTooLong) {
  const Result<std::string> told = call_in_copy(
      [] {
        for (;;) ::pause();
        return std::string("never");
      },
      0.2);
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.status().message(), "it did not end in 0.2 s");
}

}  // namespace
}  // namespace flashcore::bench
