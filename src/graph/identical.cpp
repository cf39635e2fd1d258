#include <bit>
#include <unordered_map>

#include "graph/graph.h"

namespace tessera {
namespace {

bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
        if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
    return true;
}

class Comparison {
  public:
    std::string difference;

    bool graphs(const Graph& a, const Graph& b) {
        std::string in = fmt::format("graph \"{}\": ", a.name());
        if (a.name() != b.name()) return differ("{}the other is called \"{}\"", in, b.name());
        if (a.doc_string != b.doc_string) return differ("{}doc strings differ", in);
        if (a.metadata != b.metadata) return differ("{}metadata differs", in);
        if (a.inputs().size() != b.inputs().size())
            return differ("{}{} inputs and {}", in, a.inputs().size(), b.inputs().size());
        for (size_t i = 0; i < a.inputs().size(); ++i)
            if (!values(*a.inputs()[i], *b.inputs()[i], in + fmt::format("input {}", i))) return false;
        if (!constants(a, b, in)) return false;
        if (a.nodes().size() != b.nodes().size())
            return differ("{}{} nodes and {}", in, a.nodes().size(), b.nodes().size());
        for (size_t i = 0; i < a.nodes().size(); ++i)
            if (!nodes(*a.nodes()[i], *b.nodes()[i], in)) return false;
        if (a.outputs().size() != b.outputs().size())
            return differ("{}{} outputs and {}", in, a.outputs().size(), b.outputs().size());
        for (size_t i = 0; i < a.outputs().size(); ++i) {
            if (!same_value(a.outputs()[i], b.outputs()[i], in + fmt::format("output {}", i))) return false;
            // A nested graph's outputs go by their place.
            if (!a.outer() && a.output_names()[i] != b.output_names()[i])
                return differ("{}output {} is called \"{}\" and \"{}\"", in, i, a.output_names()[i],
                              b.output_names()[i]);
        }
        return true;
    }

  private:
    std::unordered_map<const Value*, const Value*> match_;

    template <typename... Args>
    bool differ(fmt::format_string<Args...> text, Args&&... args) {
        difference = fmt::format(text, std::forward<Args>(args)...);
        return false;
    }

    bool values(const Value& a, const Value& b, const std::string& what) {
        if (a.name() != b.name()) return differ("{} is called \"{}\" and \"{}\"", what, a.name(), b.name());
        if (!(a.type() == b.type())) return differ("{} (\"{}\") is {} and {}", what, a.name(), a.type(), b.type());
        if (a.tensor().has_value() != b.tensor().has_value() || (a.tensor() && !a.tensor()->same_bits(*b.tensor())))
            return differ("{} (\"{}\") has other contents", what, a.name());
        match_[&a] = &b;
        return true;
    }

    // In any order: what matters is which there are.
    bool constants(const Graph& a, const Graph& b, const std::string& in) {
        if (a.constants().size() != b.constants().size())
            return differ("{}{} constants and {}", in, a.constants().size(), b.constants().size());
        std::unordered_map<std::string_view, const Value*> by_name;
        for (const auto& v : b.constants()) by_name.emplace(v->name(), v.get());
        for (const auto& v : a.constants()) {
            auto it = by_name.find(v->name());
            if (it == by_name.end()) return differ("{}constant \"{}\" is missing in the other", in, v->name());
            if (!values(*v, *it->second, in + "constant")) return false;
        }
        return true;
    }

    bool same_value(const Value* a, const Value* b, const std::string& what) {
        if (!a && !b) return true;
        if (!a || !b) return differ("{} is given in one only", what);
        auto it = match_.find(a);
        if (it == match_.end() || it->second != b) return differ("{} is \"{}\" and \"{}\"", what, a->name(), b->name());
        return true;
    }

    bool attributes(const Attr& a, const Attr& b, const std::string& what) {
        if (attr_kind(a) != attr_kind(b))
            return differ("{} is {} and {}", what, attr_kind_name(attr_kind(a)), attr_kind_name(attr_kind(b)));
        bool same;
        switch (attr_kind(a)) {
            case AttrKind::Graph: return graphs(*std::get<GraphPtr>(a), *std::get<GraphPtr>(b));
            case AttrKind::Float: same = same_floats({std::get<float>(a)}, {std::get<float>(b)}); break;
            case AttrKind::Floats:
                same = same_floats(std::get<std::vector<float>>(a), std::get<std::vector<float>>(b));
                break;
            default: same = a == b; break;
        }
        return same || differ("{} has another value", what);
    }

    bool nodes(const Node& a, const Node& b, const std::string& in) {
        std::string what = in + fmt::format("{} \"{}\"", a.op().name,
                                            a.name().empty() && a.output_count() ? a.output()->name() : a.name());
        if (&a.op() != &b.op()) return differ("{} is {} in the other", what, b.op().name);
        if (a.name() != b.name()) return differ("{} is called \"{}\" in the other", what, b.name());
        if (a.metadata() != b.metadata()) return differ("{}: metadata differs", what);
        size_t inputs = std::max(a.inputs().size(), b.inputs().size());
        for (size_t i = 0; i < inputs; ++i)
            if (!same_value(a.input(i), b.input(i), what + fmt::format(": input {}", i))) return false;
        for (const auto& [name, attr] : a.attrs()) {
            auto it = b.attrs().find(name);
            if (it == b.attrs().end()) return differ("{}: attribute {} is missing in the other", what, name);
            if (!attributes(attr, it->second, what + ": attribute " + name)) return false;
        }
        for (const auto& [name, _] : b.attrs())
            if (!a.attrs().count(name)) return differ("{}: attribute {} is in the other only", what, name);
        if (a.output_count() != b.output_count())
            return differ("{} has {} outputs and {}", what, a.output_count(), b.output_count());
        for (size_t i = 0; i < a.output_count(); ++i) {
            if (a.output_given(i) != b.output_given(i)) return differ("{}: output {} is given in one only", what, i);
            if (!a.output_given(i)) {
                match_[a.output(i)] = b.output(i);
                continue;
            }
            if (!values(*a.output(i), *b.output(i), what + fmt::format(": output {}", i))) return false;
        }
        return true;
    }
};

}  // namespace

bool identical(const Graph& a, const Graph& b, std::string* difference) {
    Comparison comparison;
    bool same = comparison.graphs(a, b);
    if (difference) *difference = comparison.difference;
    return same;
}

}  // namespace tessera
