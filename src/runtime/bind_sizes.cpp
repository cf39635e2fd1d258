#include "runtime/bind_sizes.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tessera {
namespace {

// The value of `name` that makes e this size, where e is linear in it and its other symbols are known.
std::optional<int64_t> solve(const Expr& e, const std::string& name, int64_t size, SymbolValues known) {
    auto at = [&](int64_t n) {
        known[name] = n;
        return evaluate_int(e, known);
    };
    auto zero = at(0), one = at(1);
    int64_t step = 0, rest = 0;
    if (!zero || !one || __builtin_sub_overflow(*one, *zero, &step) || __builtin_sub_overflow(size, *zero, &rest))
        return {};
    if (step == 0 || rest % step != 0 || rest / step < 0) return {};
    return at(rest / step) == size ? std::optional(rest / step) : std::nullopt;
}

// `values` gave the expected size; the first of `sources` that is a symbol gave that one's.
Error contradiction(const SizeSource& source, int64_t size, int64_t expected, const std::vector<SizeSource>& sources,
                    const SymbolValues& values) {
    std::vector<std::string> because;
    for (const std::string& name : free_symbols(source.size))
        for (const SizeSource& first : sources)
            if (first.size.is(ExprKind::Var) && first.size.node().name == name) {
                because.push_back(fmt::format("{} is {} by input \"{}\"", name, values.at(name), first.input->name()));
                break;
            }
    Error error(Code::E0405, "input \"{}\": expected size {} in dimension {} ({}), got {}", source.input->name(),
                expected, source.axis, to_string(source.input->type()), size);
    return because.empty() ? error : std::move(error).note("{}", fmt::join(because, ", "));
}

}  // namespace

std::vector<SizeSource> size_sources(const Graph& graph) {
    std::vector<SizeSource> sources;
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
        const Value* v = graph.inputs()[i].get();
        if (!v->type().is_tensor()) continue;
        const Shape& shape = v->type().tensor().shape;
        for (int64_t d = 0; d < shape.rank(); ++d)
            if (!shape[d].as_int()) sources.push_back({v, i, d, shape[d]});
    }
    // Those that are a symbol first, so that the others find it known.
    std::stable_partition(sources.begin(), sources.end(), [](const auto& s) { return s.size.is(ExprKind::Var); });
    return sources;
}

void read_sizes(const std::vector<SizeSource>& sources, const std::vector<Datum>& inputs, std::vector<int64_t>& into) {
    into.clear();
    for (const SizeSource& s : sources) {
        const Datum& d = inputs[s.position];
        into.push_back(d.is_tensor() && s.axis < d.tensor().rank() ? d.tensor().size(s.axis) : 0);
    }
}

Result<SymbolValues> bind_sizes(const std::vector<SizeSource>& sources, const std::vector<int64_t>& sizes) {
    SymbolValues values;
    for (size_t i = 0; i < sources.size(); ++i)
        if (sources[i].size.is(ExprKind::Var)) values.try_emplace(sources[i].size.node().name, sizes[i]);
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < sources.size(); ++i) {
            std::vector<std::string> unknown = free_symbols(sources[i].size);
            std::erase_if(unknown, [&](const std::string& name) { return values.contains(name); });
            if (unknown.size() != 1) continue;
            auto value = solve(sources[i].size, unknown[0], sizes[i], values);
            if (!value) continue;
            values[unknown[0]] = *value;
            found = true;
        }
    }
    for (size_t i = 0; i < sources.size(); ++i) {
        auto expected = evaluate_int(sources[i].size, values);
        if (expected && *expected != sizes[i]) return contradiction(sources[i], sizes[i], *expected, sources, values);
        if (!expected)
            return Error(Code::E0405, "input \"{}\" has {} elements in dimension {}, from which {} cannot be inferred",
                         sources[i].input->name(), sizes[i], sources[i].axis, to_string(sources[i].size));
    }
    return values;
}

}  // namespace tessera
