// The functions of fmt, compiled once: with fmt's header-only target every file that formats text
// compiles its own copy, which took two thirds of the build's time. cmake/dependencies.cmake uses
// this file where it knows fmt's version, and the header-only target elsewhere.
#include <fmt/format-inl.h>

namespace fmt {
inline namespace v9 {
namespace detail {

template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl<char>(locale_ref) -> char;
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template void buffer<char>::append(const char*, const char*);

}  // namespace detail
}  // namespace v9
}  // namespace fmt
