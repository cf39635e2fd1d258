#include "discover/correct/moves.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "discover/correct/attr_text.h"
#include "graph/op_def.h"
#include "graph/ops/conv_window.h"

namespace tessera {
namespace {

constexpr size_t kMostVariants = 96;
constexpr int64_t kMostPadding = 3;

// One axis of a window, as its attributes say it.
struct AxisAttrs {
    int64_t stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;
    auto operator<=>(const AxisAttrs&) const = default;
};

std::optional<std::vector<AxisAttrs>> axes_of(const Node& node) {
    if (!node.op().has(Trait::Window) || !node.op().attr("dilations") || node.inputs().size() < 2) return {};
    Result<ConvWindow> window = weight_window(node.view(), 0, 1);
    if (!window.ok()) return {};
    std::vector<AxisAttrs> axes;
    for (const WindowAxis& a : window->axes) {
        auto s = a.stride.as_int(), d = a.dilation.as_int(), b = a.pad_begin.as_int(), e = a.pad_end.as_int();
        if (!s || !d || !b || !e) return {};
        axes.push_back({*s, *d, *b, *e});
    }
    return axes;
}

// What one axis could be instead, its own first.
std::vector<AxisAttrs> alternatives(const AxisAttrs& own) {
    std::vector<AxisAttrs> list{own};
    auto add = [&](AxisAttrs a) {
        if (std::find(list.begin(), list.end(), a) == list.end()) list.push_back(a);
    };
    auto without_dilation = [&](AxisAttrs a) {
        a.pad_begin /= a.dilation;
        a.pad_end /= a.dilation;
        a.dilation = 1;
        return a;
    };
    auto without_stride = [](AxisAttrs a) {
        a.stride = 1;
        return a;
    };
    auto without_pads = [](AxisAttrs a) {
        a.pad_begin = a.pad_end = 0;
        return a;
    };
    add(without_dilation(own));
    add(without_stride(own));
    add(without_pads(own));
    add(without_pads(without_dilation(own)));
    return list;
}

std::string attrs_text(const Node& node, const std::vector<AxisAttrs>& axes, bool other_kernel = false) {
    std::vector<int64_t> strides, dilations, pads, pads_end;
    bool strided = false, dilated = false, padded = false;
    for (const AxisAttrs& a : axes) {
        strides.push_back(a.stride);
        dilations.push_back(a.dilation);
        pads.push_back(a.pad_begin);
        pads_end.push_back(a.pad_end);
        strided = strided || a.stride != 1;
        dilated = dilated || a.dilation != 1;
        padded = padded || a.pad_begin || a.pad_end;
    }
    pads.insert(pads.end(), pads_end.begin(), pads_end.end());
    std::string text;
    for (const auto& [name, value] : node.attrs()) {
        if (name == "strides" || name == "dilations" || name == "pads" || name == "auto_pad" || is_hint(node, name))
            continue;
        if (name == "kernel_shape" && other_kernel) continue;  // the kernel says it
        text += fmt::format(", {}={}", name, attr_text(value).value_or("?"));
    }
    if (padded) text += fmt::format(", pads=[{}]", fmt::join(pads, ", "));
    if (strided) text += fmt::format(", strides=[{}]", fmt::join(strides, ", "));
    if (dilated) text += fmt::format(", dilations=[{}]", fmt::join(dilations, ", "));
    return text;
}

// Sizes and orders of axes around one that is unfolded, as text.
class Unfolded {
  public:
    Unfolded(const std::vector<AxisAttrs>& axes, const std::vector<int64_t>& taps, size_t axis,
             const std::string& image, const std::string& kernel)
        : axes_(axes), taps_(taps), axis_(axis), image_(image), kernel_(kernel) {}

    // Beside one another as channels: what each tap reads. Then the axis joins the batch.
    std::string image() const {
        const AxisAttrs& a = axes_[axis_];
        const size_t rank = axes_.size() + 2;
        std::vector<int64_t> pads(2 * rank, 0);
        pads[2 + axis_] = a.pad_begin;
        pads[rank + 2 + axis_] = a.pad_end;
        std::string padded = image_;
        if (a.pad_begin || a.pad_end) padded = fmt::format("pad({}, [{}])", image_, fmt::join(pads, ", "));
        std::vector<std::string> parts, sizes{fmt::format("{} * ({})", dim(image_, 0), length(axis_)),
                                              fmt::format("{} * {}", taps_[axis_], dim(image_, 1))};
        for (int64_t tap = 0; tap < taps_[axis_]; ++tap)
            parts.push_back(fmt::format("slice({}, [{}], [{} + ({}) * {}], [{}], [{}])", padded, tap * a.dilation,
                                        tap * a.dilation + 1 - a.stride, length(axis_), a.stride, 2 + axis_, a.stride));
        for (size_t i = 0; i < axes_.size(); ++i)
            if (i != axis_) sizes.push_back(dim(image_, 2 + i));
        return fmt::format("reshape(transpose(concat({}, axis=1), perm=[{}]), [{}], allowzero=1)",
                           fmt::join(parts, ", "), fmt::join(first_order(), ", "), fmt::join(sizes, ", "));
    }

    std::string kernel() const {
        std::vector<std::string> sizes{dim(kernel_, 0), fmt::format("{} * {}", taps_[axis_], dim(kernel_, 1))};
        for (size_t i = 0; i < axes_.size(); ++i)
            if (i != axis_) sizes.push_back(dim(kernel_, 2 + i));
        return fmt::format("reshape(transpose({}, perm=[{}]), [{}], allowzero=1)", kernel_,
                           fmt::join(first_order(), ", "), fmt::join(sizes, ", "));
    }

    std::string back(const std::string& result) const {
        std::vector<std::string> sizes{dim(image_, 0), length(axis_), dim(kernel_, 0)};
        std::vector<size_t> order{0, 2};
        for (size_t i = 0; i < axes_.size(); ++i) {
            if (i != axis_) sizes.push_back(length(i));
            order.push_back(i == axis_ ? 1 : i < axis_ ? i + 3 : i + 2);
        }
        return fmt::format("transpose(reshape({}, [{}], allowzero=1), perm=[{}])", result, fmt::join(sizes, ", "),
                           fmt::join(order, ", "));
    }

    std::vector<AxisAttrs> others() const {
        std::vector<AxisAttrs> list = axes_;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(axis_));
        return list;
    }

  private:
    const std::vector<AxisAttrs>& axes_;
    const std::vector<int64_t>& taps_;
    size_t axis_;
    const std::string &image_, &kernel_;

    static std::string dim(const std::string& of, size_t axis) { return fmt::format("dim({}, {})", of, axis); }
    // Of the result along an axis of the window.
    std::string length(size_t i) const {
        const AxisAttrs& a = axes_[i];
        const int64_t more = a.pad_begin + a.pad_end - (taps_[i] - 1) * a.dilation - 1;
        const std::string steps = fmt::format("{} {} {}", dim(image_, 2 + i), more < 0 ? '-' : '+', std::abs(more));
        return a.stride == 1 ? fmt::format("{} {} {}", dim(image_, 2 + i), more + 1 < 0 ? '-' : '+', std::abs(more + 1))
                             : fmt::format("({}) / {} + 1", steps, a.stride);
    }
    // The axis first, behind the batch.
    std::vector<size_t> first_order() const {
        std::vector<size_t> order{0, 2 + axis_, 1};
        for (size_t i = 0; i < axes_.size(); ++i)
            if (i != axis_) order.push_back(2 + i);
        return order;
    }
};

}  // namespace

std::vector<Move> all_moves(int64_t rank, Move::Kind kind, int64_t factor) {
    std::vector<Move> moves;
    for (int64_t from = 0; from < rank; ++from)
        for (int64_t to = 0; to < rank; ++to)
            for (bool from_fast : {false, true})
                for (bool to_fast : {false, true}) {
                    // An axis of 1 has no slow and fast part.
                    const bool of_first = kind == Move::Kind::Whole       ? from == 0 && !from_fast
                                          : kind == Move::Kind::WholeBack ? to == 0 && !to_fast
                                                                          : true;
                    if (from != to && of_first) moves.push_back({from, to, from_fast, to_fast, kind, factor});
                }
    return moves;
}

std::string move_text(const Move& m, int64_t rank) {
    auto dim = [](const char* of, int64_t axis) { return fmt::format("dim({}, {})", of, axis); };
    std::string factor = std::to_string(m.factor), rest = fmt::format("{} / {}", dim("x", m.from), m.factor);
    std::string condition = fmt::format("{} % {} == 0", dim("x", m.from), m.factor);
    if (m.kind == Move::Kind::Whole) {
        factor = dim("x", m.from);
        rest = "1";
        condition = fmt::format("{} != 1", factor);
    }
    if (m.kind == Move::Kind::WholeBack) {
        factor = dim("z", m.to);
        rest = dim("z", m.from);
        condition = fmt::format("{} == 1 and {} == {} * {} and {} != 1", dim("x", m.to), dim("x", m.from), factor, rest,
                                factor);
    }
    // The axis in two, the factor's part moved beside the other axis, both in one.
    std::vector<std::string> split, joined;
    std::vector<int64_t> order;
    const int64_t part = m.from + (m.from_fast ? 1 : 0);  // the factor's place after the split
    for (int64_t d = 0; d < rank; ++d) {
        const std::string size = dim("x", d);
        if (d == m.from && !m.from_fast) split.push_back(factor);
        split.push_back(d == m.from ? rest : size);
        if (d == m.from && m.from_fast) split.push_back(factor);
        joined.push_back(d == m.from ? rest : d == m.to ? fmt::format("{} * {}", factor, size) : size);
        const int64_t place = d < m.from ? d : d > m.from ? d + 1 : m.from + (m.from_fast ? 0 : 1);
        if (d == m.to && !m.to_fast) order.push_back(part);
        order.push_back(place);
        if (d == m.to && m.to_fast) order.push_back(part);
    }
    return fmt::format(
        "reshape(transpose(reshape(x, [{}], allowzero=1), perm=[{}]), [{}], allowzero=1) if rank(x) == {} and {}",
        fmt::join(split, ", "), fmt::join(order, ", "), fmt::join(joined, ", "), rank, condition);
}

std::vector<std::string> attribute_variants(const Node& node) {
    const auto axes = axes_of(node);
    if (!axes) {
        std::string text;
        for (const auto& [name, value] : node.attrs())
            if (!is_hint(node, name)) text += fmt::format(", {}={}", name, attr_text(value).value_or("?"));
        return {text};
    }
    std::vector<std::vector<AxisAttrs>> all{{}};
    for (const AxisAttrs& own : *axes) {
        std::vector<std::vector<AxisAttrs>> longer;
        for (const auto& begun : all)
            for (const AxisAttrs& a : alternatives(own)) {
                longer.push_back(begun);
                longer.back().push_back(a);
            }
        all = std::move(longer);
    }
    std::vector<std::string> texts;
    for (const auto& one : all)
        if (texts.size() < kMostVariants) texts.push_back(attrs_text(node, one));
    return texts;
}

std::vector<std::string> unfolded_texts(const Node& node, const std::vector<std::string>& operands) {
    const auto axes = axes_of(node);
    if (!axes || axes->size() < 3) return {};
    const Shape& kernel = node.input(1)->type().tensor().shape;
    std::vector<int64_t> taps;
    for (int64_t d = 2; d < kernel.rank(); ++d) taps.push_back(kernel[d].as_int().value_or(0));
    if (*std::min_element(taps.begin(), taps.end()) < 1) return {};
    const auto axis = static_cast<size_t>(std::min_element(taps.begin(), taps.end()) - taps.begin());
    const Unfolded unfolded(*axes, taps, axis, operands[0], operands[1]);
    std::string call = fmt::format("{}({}, {}", node.op().name, unfolded.image(), unfolded.kernel());
    for (size_t i = 2; i < operands.size(); ++i) call += ", " + operands[i];
    return {unfolded.back(call + attrs_text(node, unfolded.others(), true) + ")")};
}

std::vector<std::string> padded_texts(const Node& node, const std::vector<std::string>& operands) {
    const auto axes = axes_of(node);
    if (!axes) return {};
    const Shape& image = node.input(0)->type().tensor().shape;
    const Shape& result = node.output()->type().tensor().shape;
    const auto rank = static_cast<size_t>(image.rank());
    int64_t most = 1;
    std::vector<size_t> open;  // axes that are no multiple
    for (size_t i = 0; i < axes->size(); ++i)
        if (const int64_t f = (*axes)[i].dilation; f > 1 && !mod(image[int64_t(i) + 2], f).is_int(0)) {
            open.push_back(i + 2);
            most = std::max(most, f);
        }
    std::vector<std::string> texts;
    for (int64_t more = 1; more < most && more <= kMostPadding; ++more) {
        std::vector<int64_t> pads(2 * rank, 0);
        std::vector<std::string> begins, ends, steps;
        for (size_t axis : open) {
            pads[rank + axis] = more;
            const auto grown = (result[int64_t(axis)] - image[int64_t(axis)]).as_int();  // without a stride
            if (!grown) return {};
            begins.push_back("0");
            ends.push_back(
                fmt::format("dim({}, {}) {} {}", operands[0], axis, *grown < 0 ? '-' : '+', std::abs(*grown)));
            steps.push_back("1");
        }
        std::string call = fmt::format("{}(pad({}, [{}])", node.op().name, operands[0], fmt::join(pads, ", "));
        for (size_t i = 1; i < operands.size(); ++i) call += ", " + operands[i];
        texts.push_back(fmt::format("slice({}{}), [{}], [{}], [{}], [{}])", call, attrs_text(node, *axes),
                                    fmt::join(begins, ", "), fmt::join(ends, ", "), fmt::join(open, ", "),
                                    fmt::join(steps, ", ")));
    }
    return texts;
}

std::vector<int64_t> window_factors(const Node& node) {
    std::set<int64_t> factors;
    if (const auto axes = axes_of(node))
        for (const AxisAttrs& a : *axes)
            for (int64_t f : {a.stride, a.dilation})
                if (f > 1) factors.insert(f);
    return {factors.begin(), factors.end()};
}

}  // namespace tessera
