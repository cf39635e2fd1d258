#include "graph/ops/conv_window.h"

#include <algorithm>

#include "base/check.h"
#include "expr/index_bound.h"
#include "graph/op_def.h"

namespace tessera {
namespace {

constexpr int64_t kMaxWindowInt = int64_t{1} << 30;

thread_local SymbolicWindows* current_symbols = nullptr;

Expr meaning_of(int64_t value) { return current_symbols ? current_symbols->meaning(value) : Expr(value); }

std::string auto_pad_of(const OpView& op) { return op.def().attr("auto_pad") ? op.string("auto_pad") : "NOTSET"; }

// The output size for every input size that is accepted, where `whole` is it for those that the window fits: what
// window_output says of a number, as a formula. Graphs that are compiled assume that the window fits.
Dim for_every_size(const WindowAxis& axis, const Dim& whole, bool pools, bool ceil_mode) {
    const Expr last = axis.last(), larger = last - axis.input;
    if (ceil_mode && !axis.pad_begin.is_int(0)) return select(ge(last, 0), whole, max(min(whole, axis.input), 0));
    // Where `last` is negative, `whole` is at most 0, and so it is of any window that fits every input but an empty
    // one.
    const bool fits = !pools || ceil_mode || bounds(larger + 1).low.value_or(-1) >= 0;
    if (!fits) return max(max(whole, min(min(axis.input, 1), ceil_div(last, axis.stride) + 1)), 0);
    // Of an input of size max(n, 0), 0 or floor((n + larger) / stride) + 1.
    if (const Expr n = index_bound(axis.input); !ceil_mode && bounds(larger).high.value_or(0) < 0)
        return max(floor_div(n + larger, axis.stride) + 1, 0);
    return max(whole, 0);
}

// Checks what is constant of one axis, and gives its output size.
Result<Dim> window_output(const OpView& op, WindowAxis& axis, const std::string& auto_pad, bool ceil_mode) {
    if (auto k = axis.kernel.as_int(); k && (*k < 1 || *k > kMaxWindowInt))
        return op.error(Code::E0212, "a kernel of size {}", *k);
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
        Dim output = ceil_div(axis.input, axis.stride);
        Expr total = max((output - 1) * axis.stride + axis.extent() - axis.input, 0);
        Expr half = floor_div(total, 2);
        axis.pad_begin = auto_pad == "SAME_UPPER" ? half : total - half;
        axis.pad_end = total - axis.pad_begin;
        return output;
    }
    const Expr last = axis.last();
    if (auto n = last.as_int(); n && *n < 0) {
        if (axis.input.is_int(0)) return Dim(0);
        // A pool divides towards zero, so that its first window may be larger than the input; what is outside is left
        // out. ONNX says nothing of it, but networks rely on it.
        const auto stride = axis.stride.as_int();
        if (const bool pools = op.def().attr("ceil_mode") != nullptr; pools && stride && *n / *stride >= -1)
            return Dim(*n / *stride + 1);
        return op.shape_error("a window of {} does not fit into an input of {} padded by {} and {}",
                              to_string(axis.extent()), to_string(axis.input), to_string(axis.pad_begin),
                              to_string(axis.pad_end));
    }
    // A window that would start beyond the input, in the padding after it, is left out.
    ceil_mode = ceil_mode && auto_pad != "VALID";
    const Dim whole =
        ceil_mode ? min(ceil_div(last, axis.stride), floor_div(axis.input + axis.pad_begin - 1, axis.stride)) + 1
                  : floor_div(last, axis.stride) + 1;
    return current_symbols ? for_every_size(axis, whole, op.def().attr("ceil_mode") != nullptr, ceil_mode) : whole;
}

}  // namespace

SymbolicWindows::SymbolicWindows() : outer_(std::exchange(current_symbols, this)) {}
SymbolicWindows::~SymbolicWindows() { current_symbols = outer_; }
SymbolicWindows* SymbolicWindows::current() { return current_symbols; }

int64_t SymbolicWindows::add(const Expr& size) {
    for (size_t i = 0; i < sizes_.size(); ++i)
        if (sizes_[i] == size) return kMaxWindowInt - 1 - int64_t(i);
    sizes_.push_back(size);
    return kMaxWindowInt - int64_t(sizes_.size());
}

Expr SymbolicWindows::meaning(int64_t value) const {
    int64_t i = kMaxWindowInt - 1 - value;
    return i >= 0 && i < int64_t(sizes_.size()) ? sizes_[size_t(i)] : Expr(value);
}

Shape ConvWindow::output() const {
    Shape s;
    for (const WindowAxis& a : axes) s.push_back(a.output);
    return s;
}

std::vector<ReduceAxis> ConvWindow::offsets(const OpView& op) const {
    std::vector<ReduceAxis> k;
    for (const WindowAxis& a : axes) k.push_back(op.reduce(a.kernel));
    return k;
}

Indices ConvWindow::positions(const Indices& o, const std::vector<ReduceAxis>& k) const {
    std::vector<Expr> at;
    for (size_t i = 0; i < axes.size(); ++i) at.push_back(axes[i].position(o[int64_t(i)], k[i].var));
    return at;
}

Indices vars(const std::vector<ReduceAxis>& axes) {
    std::vector<Expr> list;
    for (const ReduceAxis& a : axes) list.push_back(a.var);
    return list;
}

Result<std::vector<int64_t>> window_ints(const OpView& op, const char* attr, size_t count, int64_t low,
                                         int64_t fallback) {
    if (!op.def().attr(attr)) return std::vector<int64_t>(count, fallback);
    std::vector<int64_t> list = op.ints_or(attr, {});
    if (list.empty()) return std::vector<int64_t>(count, fallback);
    if (list.size() != count) return op.error(Code::E0212, "{} has {} entries, but needs {}", attr, list.size(), count);
    for (int64_t v : list)
        if (v < low || v > kMaxWindowInt)
            return op.error(Code::E0212, "{} has {}, which is not in [{}, 2^30]", attr, v, low);
    return list;
}

Result<ConvWindow> conv_window(const OpView& op, const Shape& input, const Shape& kernel) {
    if (input.rank() != kernel.rank()) return op.shape_error("a kernel {} over spatial dimensions {}", kernel, input);
    size_t rank = size_t(input.rank());
    auto strides = TRY(window_ints(op, "strides", rank, 1, 1));
    auto dilations = TRY(window_ints(op, "dilations", rank, 1, 1));
    auto pads = TRY(window_ints(op, "pads", 2 * rank, 0, 0));
    std::string auto_pad = auto_pad_of(op);
    bool ceil_mode = op.def().attr("ceil_mode") && op.integer("ceil_mode") != 0;
    ConvWindow window;
    for (size_t i = 0; i < rank; ++i) {
        bool padded = auto_pad == "NOTSET";
        WindowAxis axis{input[int64_t(i)],
                        kernel[int64_t(i)],
                        0,
                        meaning_of(strides[i]),
                        meaning_of(dilations[i]),
                        padded ? meaning_of(pads[i]) : Expr(0),
                        padded ? meaning_of(pads[rank + i]) : Expr(0)};
        axis.output = TRY(window_output(op, axis, auto_pad, ceil_mode));
        window.axes.push_back(axis);
    }
    return window;
}

Result<ConvWindow> weight_window(const OpView& op, size_t x, size_t w) {
    const Shape &in = op.shape(x), &weight = op.shape(w);
    if (in.rank() < 3 || in.rank() != weight.rank())
        return op.shape_error("needs [N, C, D1, ...] and a weight of the same rank, has {} and {}", in, weight);
    Shape kernel = weight.slice(2, weight.rank());
    auto stated = TRY(window_ints(op, "kernel_shape", size_t(kernel.rank()), 1, 0));
    for (int64_t i = 0; i < kernel.rank(); ++i)
        if (stated[size_t(i)] && kernel[i].as_int() && !kernel[i].is_int(stated[size_t(i)]))
            return op.shape_error("kernel_shape has {}, but the weight {} has {}", stated[size_t(i)], weight,
                                  to_string(kernel[i]));
    return conv_window(op, in.slice(2, in.rank()), kernel);
}

Result<Shape> conv_shape(const OpView& op, size_t x, size_t w) {
    ConvWindow window = TRY(weight_window(op, x, w));
    const Shape &in = op.shape(x), &weight = op.shape(w);
    int64_t group = op.integer("group");
    if (group < 1) return op.error(Code::E0212, "group is {}", group);
    auto channels = in[1].as_int(), per_group = weight[1].as_int(), filters = weight[0].as_int();
    if (channels && per_group && (*channels % group != 0 || *channels / group != *per_group))
        return op.shape_error("the weight {} expects {} channels in each of {} groups, but the input {} has {}", weight,
                              *per_group, group, in, *channels);
    if (filters && *filters % group != 0)
        return op.shape_error("{} filters do not divide into {} groups", *filters, group);
    return Shape{in[0], weight[0]} + window.output();
}

Expr conv_sum(const OpView& op, size_t x, size_t w, const Indices& o, const Expr& outside,
              const std::function<Expr(const Expr& x, const Expr& w)>& term) {
    auto window = weight_window(op, x, w);
    CHECK(window.ok());
    auto in = op.in(x), weight = op.in(w);
    ReduceAxis c = op.reduce(weight.dim(1));
    std::vector<ReduceAxis> k = window->offsets(op);
    Expr channel = c.var;
    if (int64_t group = op.integer("group"); group != 1)
        channel = floor_div(o[1], floor_div(weight.dim(0), group)) * weight.dim(1) + c.var;
    Expr read = in.at_or(Indices{o[0], channel} + window->positions(o.slice(2, o.rank()), k), outside, 2);
    Expr factor = weight.at(Indices{o[1], c.var} + vars(k));
    std::vector<ReduceAxis> axes{c};
    axes.insert(axes.end(), k.begin(), k.end());
    return sum(axes, term(read, factor));
}

namespace {

template <typename T>
const T* attr_in(const AttrMap& attrs, const char* name) {
    auto it = attrs.find(name);
    return it == attrs.end() ? nullptr : std::get_if<T>(&it->second);
}

// The pads of a window that are numbers: all that begin, then all that end.
std::optional<std::vector<int64_t>> known_pads(const Result<ConvWindow>& window) {
    if (!window.ok()) return std::nullopt;
    std::vector<int64_t> pads;
    for (bool end : {false, true})
        for (const WindowAxis& axis : window->axes) {
            auto n = (end ? axis.pad_end : axis.pad_begin).as_int();
            if (!n) return std::nullopt;
            pads.push_back(*n);
        }
    return pads;
}

using FindWindow = std::function<Result<ConvWindow>()>;

void write_pads(const OpView& op, AttrMap& attrs, const FindWindow& window) {
    const auto* mode = attr_in<std::string>(attrs, "auto_pad");
    const auto* ceil_mode = attr_in<int64_t>(attrs, "ceil_mode");
    if (!mode || *mode == "NOTSET" || (ceil_mode && *ceil_mode)) return;
    if (!op.type(0).is_tensor() || !op.shape(0).ranked() || op.rank(0) < 3) return;
    std::vector<int64_t> pads;
    if (*mode != "VALID") {
        auto known = known_pads(window());
        if (!known) return;
        pads = std::move(*known);
    }
    attrs.erase("auto_pad");
    attrs.erase("pads");
    if (std::any_of(pads.begin(), pads.end(), [](int64_t n) { return n != 0; })) attrs["pads"] = pads;
}

void canonical_window(const OpView& op, AttrMap& attrs, const FindWindow& window) {
    write_pads(op, attrs, window);
    auto drop_all = [&](const char* name, int64_t n) {
        const auto* list = attr_in<std::vector<int64_t>>(attrs, name);
        if (list && std::all_of(list->begin(), list->end(), [&](int64_t v) { return v == n; })) attrs.erase(name);
    };
    drop_all("strides", 1);
    drop_all("dilations", 1);
    drop_all("pads", 0);
}

}  // namespace

void canonical_conv(const OpView& op, AttrMap& attrs, size_t w) {
    canonical_window(op, attrs, [&] { return weight_window(op, 0, w); });
}

void canonical_pool(const OpView& op, AttrMap& attrs) {
    canonical_window(op, attrs, [&]() -> Result<ConvWindow> {
        if (!op.has_attr("kernel_shape")) return op.error(Code::E0206, "has no kernel_shape");
        return conv_window(op, op.shape(0).slice(2, op.rank(0)), Shape(op.ints("kernel_shape")));
    });
}

}  // namespace tessera
