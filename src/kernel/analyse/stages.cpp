#include "kernel/analyse/stages.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/check.h"

namespace tessera {

const Stage& find_stage(const Schedule& s, std::string_view name) {
    for (const Stage& stage : s.compute().stages)
        if (stage.name == name) return stage;
    CHECK(false);
    return s.compute().stages[0];
}

const Stage* writer_of(const Schedule& s, int buffer) {
    for (const Stage& stage : s.compute().stages)
        if (stage.buffer == buffer) return &stage;
    return nullptr;
}

std::vector<Expr> loads_of(const Stage& stage, int buffer) {
    std::vector<Expr> loads;
    visit(stage.value, [&](const Expr& x) {
        if (x.is(ExprKind::Load) && (buffer < 0 || x.node().slot == buffer)) loads.push_back(x);
    });
    return loads;
}

std::vector<std::string> readers_of(const Schedule& s, int buffer) {
    std::vector<std::string> names;
    for (const Stage& stage : s.compute().stages)
        if (!loads_of(stage, buffer).empty()) names.push_back(stage.name);
    return names;
}

const ReduceAxis* last_larger_axis(const Stage& stage) {
    for (auto a = stage.axes.rbegin(); a != stage.axes.rend(); ++a)
        if (!a->extent.is_int(1)) return &*a;
    return nullptr;
}

std::optional<Expr> stride_of(const Schedule& s, int buffer, const std::vector<Expr>& indices, const Expr& var) {
    const Buffer& b = s.compute().buffers[size_t(buffer)];
    CHECK(indices.size() == b.shape.size(), "{} of rank {} is indexed by {}", b.name, b.shape.size(), indices.size());
    Expr total = 0, place = 0, stride = 1;
    bool known = true;
    for (size_t d = indices.size(); d-- > 0;) {
        const Expr& apart = b.strides.empty() ? stride : b.strides[d];
        auto step = step_of(indices[d], var);
        known &= step.has_value();
        if (step) total = total + *step * apart;
        place = place + indices[d] * apart;
        stride = stride * b.shape[d];
    }
    // Quotients and remainders of an axis that was merged make a whole again.
    return known ? total : step_of(place, var);
}

std::optional<Expr> stride_of(const Schedule& s, const Expr& load, const Expr& var) {
    return stride_of(s, load.node().slot, load.args(), var);
}

Expr elements_of(const std::vector<ReduceAxis>& axes) {
    Expr n = 1;
    for (const ReduceAxis& a : axes) n = n * a.extent;
    return n;
}

bool is_known(const Schedule& s, const Expr& operand) {
    bool known = true;
    visit(operand, [&](const Expr& x) {
        if (!x.is(ExprKind::Load)) return;
        size_t slot = size_t(x.node().slot);
        known &= slot < s.compute().known.size() && s.compute().known[slot];
    });
    return known;
}

bool used_beside_loads(const Expr& value, const Expr& var) {
    std::set<const ExprNode*> seen;
    std::function<bool(const Expr&)> used = [&](const Expr& e) {
        if (e == var) return true;
        if (e.is(ExprKind::Load) || !seen.insert(&e.node()).second) return false;
        return std::any_of(e.args().begin(), e.args().end(), used);
    };
    return used(value);
}

bool is_costly(const Expr& value) {
    bool costly = false;
    visit(value, [&](const Expr& x) {
        if (x.is(ExprKind::Pow) || x.is(ExprKind::Rem) || x.is(ExprKind::Mod)) costly |= is_float(x.dtype());
        if (!x.is(ExprKind::Call)) return;
        Fn f = x.node().fn;
        costly |= f != Fn::Abs && f != Fn::Sign && f != Fn::Floor && f != Fn::Ceil && f != Fn::Round &&
                  f != Fn::Trunc && f != Fn::IsNan && f != Fn::IsInf;
    });
    return costly;
}

std::optional<std::vector<std::vector<int>>> matching_groups(const Stage& out, const Stage& producer,
                                                             const std::vector<std::vector<int>>& groups) {
    std::optional<Expr> read;
    bool one = true;
    visit(out.value, [&](const Expr& x) {
        if (!x.is(ExprKind::Load) || x.node().slot != producer.buffer) return;
        one &= !read || *read == x;
        read = x;
    });
    if (!read || !one) return std::nullopt;
    std::vector<std::vector<int>> result;
    size_t placed = 0;
    for (const auto& group : groups) {
        // The index of the group's merged axis, over the axes of `out`.
        Expr index = 0, extent = 1;
        for (int i : group) {
            index = index * producer.axes[size_t(i)].extent + read->arg(size_t(i));
            extent = extent * producer.axes[size_t(i)].extent;
        }
        std::vector<int> mine;
        Expr covered = 1;
        for (int i = int(out.axes.size()) - 1; i >= 0; --i) {
            if (depends_on(index, out.axes[size_t(i)].var)) mine.insert(mine.begin(), i);
        }
        // Axes of one element that nobody reads along are given to a group without axes below, or to the first; others
        // stand anywhere.
        std::vector<int> ordered;
        std::vector<int> left = mine;
        while (!left.empty()) {
            auto next = std::find_if(left.rbegin(), left.rend(), [&](int i) {
                auto step = step_of(index, out.axes[size_t(i)].var);
                return out.axes[size_t(i)].extent.is_int(1) || (step && *step == covered);
            });
            if (next == left.rend()) return std::nullopt;
            covered = covered * out.axes[size_t(*next)].extent;
            ordered.insert(ordered.begin(), *next);
            left.erase(std::next(next).base());
        }
        if (covered != extent) return std::nullopt;
        placed += ordered.size();
        result.push_back(ordered);
    }
    for (size_t i = 0; i < out.axes.size(); ++i) {
        bool found = false;
        for (const auto& g : result) found |= std::count(g.begin(), g.end(), int(i)) > 0;
        if (found) continue;
        if (!out.axes[i].extent.is_int(1)) return std::nullopt;
        auto none = std::find_if(result.begin(), result.end(), [](const auto& g) { return g.empty(); });
        std::vector<int>& group = none == result.end() ? result[0] : *none;
        group.insert(group.begin(), int(i));
        ++placed;
    }
    if (placed != out.axes.size()) return std::nullopt;
    if (std::any_of(result.begin(), result.end(), [](const auto& g) { return g.empty(); })) return std::nullopt;
    return result;
}

}  // namespace tessera
