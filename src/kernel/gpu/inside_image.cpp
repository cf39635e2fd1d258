#include "kernel/gpu/inside_image.h"

#include <algorithm>

namespace tessera {
namespace {

// A condition as a sum that is above 0 where it holds.
std::optional<Expr> above_zero(const Expr& condition) {
    if (condition.is(ExprKind::Lt)) return condition.arg(1) - condition.arg(0);
    if (condition.is(ExprKind::Le)) return condition.arg(1) - condition.arg(0) + 1;
    return {};
}

}  // namespace

bool asks_for_inside(const Expr& condition, const std::vector<Expr>& at, const Buffer& image,
                     const std::vector<size_t>& dims) {
    if (condition.is(ExprKind::And))
        return std::all_of(condition.args().begin(), condition.args().end(),
                           [&](const Expr& part) { return asks_for_inside(part, at, image, dims); });
    const auto asked = above_zero(condition);
    return asked && std::any_of(dims.begin(), dims.end(), [&](size_t d) {
               return (*asked - at[d] - 1).is_int(0) || (*asked + at[d] - image.shape[d]).is_int(0);
           });
}

}  // namespace tessera
