#include "discover/correct/restrict.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "discover/correct/attr_text.h"
#include "discover/prove/entail.h"
#include "graph/op_def.h"
#include "graph/ops/conv_window.h"

namespace tessera {
namespace {

template <typename... Args>
Error cannot(fmt::format_string<Args...> text, Args&&... args) {
    return Error(Code::E0303, "{}", fmt::format(text, std::forward<Args>(args)...));
}

// Whether a >= 0 for all sizes.
bool never_negative(const Expr& a) {
    prover::Atoms atoms;
    return prover::Facts(atoms).implies(atoms.convert(a));
}

// What of the input a window reads, and the padding that it meets there.
struct Reach {
    Expr begin, end;
    int64_t pad_begin = 0, pad_end = 0;
};

Result<Reach> reach_of(const WindowAxis& axis, const Strip& strip) {
    Reach r;
    r.begin = axis.position(strip.begin, 0);
    r.end = axis.position(strip.end - 1, axis.kernel - 1) + 1;
    if (!never_negative(r.begin)) {
        const auto before = r.begin.as_int();
        if (!before) return cannot("whether {} is in the padding is open", to_string(r.begin));
        r.pad_begin = -*before;
        r.begin = 0;
    }
    if (!never_negative(axis.input - r.end)) {
        const auto beyond = (r.end - axis.input).as_int();
        if (!beyond) return cannot("whether {} is in the padding is open", to_string(r.end));
        r.pad_end = *beyond;
        r.end = axis.input;
    }
    if (!never_negative(r.end - r.begin - 1)) return cannot("a strip may lie in the padding alone");
    return r;
}

}  // namespace

TermWriter::TermWriter(const Claim& claim) : claim_(claim), dims_(sizes_by_dims(claim)) {}

std::string TermWriter::size(const Expr& e) const {
    std::string text = to_string(substitute(e, dims_));
    std::erase(text, '`');  // around what is no plain name
    return text;
}

std::string TermWriter::slice(const std::string& of, int64_t axis, const Expr& begin, const Expr& end) const {
    return fmt::format("slice({}, [{}], [{}], [{}], [1])", of, size(begin), size(end), axis);
}

std::string TermWriter::call(const Node& node, const std::vector<std::string>& inputs, const AttrMap& attrs) const {
    std::string text = fmt::format("{}({}", node.op().name, fmt::join(inputs, ", "));
    for (const auto& [name, value] : attrs)
        if (auto written = attr_text(value)) text += fmt::format(", {}={}", name, *written);
    return text + ")";
}

std::string TermWriter::whole(const Value& value) const {
    if (!value.node()) return value.name();
    std::vector<std::string> inputs;
    for (const Value* in : value.node()->inputs()) inputs.push_back(whole(*in));
    return call(*value.node(), inputs, value.node()->attrs());
}

Result<std::string> TermWriter::restricted(const Value& value, const Strip& strip) const {
    const Dim& extent = value.type().tensor().shape[strip.axis];
    if (strip.begin.is_int(0) && strip.end == extent) return whole(value);
    if (value.kind() == Value::Kind::Input) return slice(value.name(), strip.axis, strip.begin, strip.end);
    if (!value.node()) return cannot("a constant is not restricted");
    const Node& node = *value.node();
    const bool window = node.op().has(Trait::Window) && node.op().attr("pads") && node.inputs().size() > 1;
    return window && strip.axis >= 2 ? through_window(node, strip) : through_body(node, strip);
}

Result<std::string> TermWriter::through_window(const Node& node, const Strip& strip) const {
    const ConvWindow window = TRY(weight_window(node.view(), 0, 1));
    const size_t spatial = window.axes.size(), at = static_cast<size_t>(strip.axis) - 2;
    const Reach reach = TRY(reach_of(window.axes[at], strip));
    AttrMap attrs = node.attrs();
    std::vector<int64_t> pads(2 * spatial, 0);
    for (size_t i = 0; i < spatial; ++i) {
        const auto begin = window.axes[i].pad_begin.as_int(), end = window.axes[i].pad_end.as_int();
        if (!begin || !end) return cannot("its padding is not known");
        pads[i] = *begin;
        pads[spatial + i] = *end;
    }
    pads[at] = reach.pad_begin;
    pads[spatial + at] = reach.pad_end;
    attrs.erase("auto_pad");
    attrs.insert_or_assign("pads", Attr(pads));
    std::vector<std::string> inputs{TRY(restricted(*node.input(0), {strip.axis, reach.begin, reach.end}))};
    for (size_t i = 1; i < node.inputs().size(); ++i) inputs.push_back(whole(*node.input(i)));
    return call(node, inputs, attrs);
}

// An input that is read at the strip's own index is sliced; one that is read at no index of it stays whole.
Result<std::string> TermWriter::through_body(const Node& node, const Strip& strip) const {
    const OpDef& op = node.op();
    const Shape& shape = node.output()->type().tensor().shape;
    if (!op.body || (op.body_applies && !op.body_applies(node.view()))) return cannot("{} has no body", op.name);
    std::vector<Expr> at;
    for (int64_t d = 0; d < shape.rank(); ++d) at.push_back(index_var(fmt::format("_o{}", d), shape[d].as_int()));
    const Expr index = at[static_cast<size_t>(strip.axis)];
    const Expr body = op.body(node.view(), Indices(at));
    std::vector<std::set<int64_t>> sliced(node.inputs().size());
    bool other = false;
    map_loads(body, [&](const Expr& load) {
        for (size_t d = 0; d < load.args().size(); ++d) {
            if (load.arg(d) == index)
                sliced[static_cast<size_t>(load.node().slot)].insert(static_cast<int64_t>(d));
            else
                other = other || depends_on(load.arg(d), index);
        }
        return real_const(0, load.dtype());
    });
    if (other) return cannot("{} does not read its inputs at the index of axis {}", op.name, strip.axis);
    std::vector<std::string> inputs;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        if (sliced[i].size() > 1) return cannot("{} reads an input twice at one index", op.name);
        const Strip of_input{sliced[i].empty() ? 0 : *sliced[i].begin(), strip.begin, strip.end};
        inputs.push_back(sliced[i].empty() ? whole(*node.input(i)) : TRY(restricted(*node.input(i), of_input)));
    }
    return call(node, inputs, node.attrs());
}

}  // namespace tessera
