// fmt as an object of our own, for the static build: the distribution ships it only as a shared library, and its
// header-only form costs three seconds in every file.
#include <fmt/format-inl.h>

namespace fmt::detail {
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl<char>(locale_ref) -> char;
template auto dragonbox::to_decimal<float>(float) -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal<double>(double) -> dragonbox::decimal_fp<double>;
}  // namespace fmt::detail
