#include "kernel/analyse/byte_sums.h"

#include <algorithm>

namespace tessera {

std::optional<Centered> match_centered(const Expr& e) {
    if (e.dtype() != DType::i32) return {};
    const bool less = e.is(ExprKind::Sub);
    const Expr& from = less ? e.arg(0) : e;
    if (!from.is(ExprKind::Cast)) return {};
    const DType t = from.arg(0).dtype();
    if (t != DType::i8 && t != DType::u8) return {};
    return Centered{from.arg(0), less ? e.arg(1) : int_const(0, DType::i32)};
}

bool makes_words(const Compute& compute, const Stage& stage) {
    if (!stage.reduce.empty() || compute.buffers[size_t(stage.buffer)].dtype != DType::i32) return false;
    // Neither what words are made of, nor the sum of a window, for each column anew.
    const bool sums_taps = stage.value.is(ExprKind::Add) && loaded_slots(stage.value).size() > 0;
    return std::any_of(compute.stages.begin(), compute.stages.end(), [&](const Stage& reader) {
        const std::vector<int> read = loaded_slots(reader.value);
        if (std::count(read.begin(), read.end(), stage.buffer) == 0) return false;
        return sums_words(reader) || (sums_taps && reader.axes.size() > stage.axes.size());
    });
}

bool sums_words(const Stage& stage) { return is_product(stage.value) && !stage.value.is(ExprKind::Mul); }

}  // namespace tessera
