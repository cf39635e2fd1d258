#include "graph/verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "graph/infer.h"
#include "graph/refine.h"

namespace tessera {
namespace {

class Verifier {
  public:
    std::vector<std::string> found;

    void graph(const Graph& g) {
        values(g);
        for (const auto& v : g.inputs()) defined_.insert(v.get());
        for (const auto& v : g.constants()) defined_.insert(v.get());
        for (const auto& n : g.nodes()) node(*n);
        for (size_t i = 0; i < g.outputs().size(); ++i) {
            const Value* v = g.outputs()[i];
            if (!v) {
                report(4, "{}: output {} is null", g.name(), i);
                continue;
            }
            if (!defined_.count(v)) report(5, "{}: output {} (\"{}\") is not defined there", g.name(), i, v->name());
            uses_[v].emplace_back(&g, nullptr, i);
        }
        names(g);
    }

    void uses() {
        for (const Value* v : all_) {
            std::vector<Place> listed, there = uses_[v];
            for (const Use& u : v->uses()) listed.emplace_back(u.graph, u.node, u.index);
            std::sort(listed.begin(), listed.end());
            std::sort(there.begin(), there.end());
            if (listed != there) report(6, "\"{}\" lists {} uses and has {}", v->name(), listed.size(), there.size());
        }
    }

  private:
    std::unordered_set<const Value*> defined_;  // so far, in program order
    std::vector<const Value*> all_;
    using Place = std::tuple<const Graph*, const Node*, size_t>;  // as a Use has it
    std::unordered_map<const Value*, std::vector<Place>> uses_;

    template <typename... Args>
    void report(int number, fmt::format_string<Args...> text, Args&&... args) {
        found.push_back(fmt::format("{}: {}", number, fmt::format(text, std::forward<Args>(args)...)));
    }

    void value(const Graph& g, const Value& v) {
        all_.push_back(&v);
        if (v.name().empty()) report(1, "a value of {} has no name", g.name());
        if (g.outer() && g.outer()->name_taken(v.name()))
            report(1, "\"{}\" is also the name of a value around {}", v.name(), g.name());
        if (g.find_value(v.name()) != &v) report(2, "\"{}\" is not found by its name", v.name());
        if (&v.graph() != &g) report(3, "\"{}\" thinks it is in another graph", v.name());
        if (v.type().is_none()) report(10, "\"{}\" has no type", v.name());
    }

    void values(const Graph& g) {
        for (size_t i = 0; i < g.inputs().size(); ++i) {
            const Value& v = *g.inputs()[i];
            value(g, v);
            if (v.kind() != Value::Kind::Input || v.index() != i)
                report(3, "input \"{}\" is not at its place", v.name());
            SymbolValues symbols;
            if (v.tensor() && !binds(v.type(), type_of(*v.tensor()), symbols))
                report(7, "the default of \"{}\" is {}, the input {}", v.name(), type_of(*v.tensor()), v.type());
        }
        for (const auto& v : g.constants()) {
            value(g, *v);
            if (v->kind() != Value::Kind::Constant) report(3, "constant \"{}\" is of another kind", v->name());
            if (!v->tensor() || !(type_of(*v->tensor()) == v->type()))
                report(7, "constant \"{}\" is not of its type", v->name());
        }
        for (const auto& n : g.nodes())
            for (size_t i = 0; i < n->output_count(); ++i) {
                const Value& v = *n->output(i);
                value(g, v);
                if (v.kind() != Value::Kind::Result || v.node() != n.get() || v.index() != i)
                    report(3, "\"{}\" is not at its place", v.name());
            }
    }

    void node(const Node& n) {
        for (size_t i = 0; i < n.inputs().size(); ++i) {
            const Value* v = n.inputs()[i];
            if (!v) continue;
            const Graph* g = &n.graph();
            while (g && g != &v->graph()) g = g->outer();
            if (!g) report(4, "{}: input {} (\"{}\") is of a graph that is not around it", n.where(), i, v->name());
            if (!defined_.count(v)) report(5, "{}: input {} (\"{}\") is defined later", n.where(), i, v->name());
            uses_[v].emplace_back(&n.graph(), &n, i);
        }
        if (!n.inputs().empty() && !n.inputs().back()) report(8, "{}: the last input is null", n.where());
        for (const auto& [name, attr] : n.attrs()) {
            auto* nested = std::get_if<GraphPtr>(&attr);
            if (!nested) continue;
            if ((*nested)->outer() != &n.graph())
                report(12, "{}: {} does not know the graph around it", n.where(), name);
            if (!((*nested)->info() == ModelInfo())) report(12, "{}: {} has model info", n.where(), name);
            graph(**nested);
        }
        OpView view = n.view();
        if (Status s = check_signature(view); !s.ok()) report(9, "{}: {}", n.where(), s.error().message());
        auto types = infer_types(view);
        const bool always = !n.graph().outer();  // it runs whenever the model does
        if (!types.ok() && always) report(10, "{}: {}", n.where(), types.error().message());
        for (size_t i = 0; i < n.output_count(); ++i) {
            defined_.insert(n.output(i));
            if (always && types.ok() && i < types->size() &&
                !refine((*types)[i], n.output(i)->type(), n.output(i)->name()))
                report(10, "{}: \"{}\" is {}, inference says {}", n.where(), n.output(i)->name(), n.output(i)->type(),
                       (*types)[i]);
        }
    }

    void names(const Graph& g) {
        if (g.output_names().size() != g.outputs().size())
            report(11, "{}: {} output names", g.name(), g.output_names().size());
        if (g.outer()) return;
        std::set<std::string_view> seen;
        for (const std::string& name : g.output_names())
            if (name.empty() || !seen.insert(name).second) report(11, "{}: output name \"{}\"", g.name(), name);
    }
};

}  // namespace

std::vector<std::string> violations(const Graph& graph) {
    Verifier verifier;
    verifier.graph(graph);
    verifier.uses();
    return std::move(verifier.found);
}

void verify(const Graph& graph) {
    auto list = violations(graph);
    std::string all;
    for (const std::string& v : list) all += "\n  " + v;
    CHECK(list.empty(), "the graph is broken (verify.h):{}", all);
}

}  // namespace tessera
