#include "discover/correct/targets.h"

#include <algorithm>
#include <map>

#include "discover/correct/attr_text.h"
#include "discover/correct/moves.h"
#include "discover/prove/comprehension.h"
#include "graph/op_def.h"

namespace tessera {
namespace {

constexpr const char* kNames[] = {"x", "w", "b"};

// A sum of products of its first two inputs' elements: how many elements are summed over, 0 where it is none.
double terms_of(const Node& node) {
    const OpDef& op = node.op();
    if (!op.has(Trait::Pure) || !op.body || node.output_count() != 1 || node.inputs().size() < 2 ||
        node.inputs().size() > 3)
        return 0;
    for (const Value* in : node.inputs()) {
        if (!in || !in->type().is_tensor() || !is_float(in->type().tensor().dtype)) return 0;
        if (!in->type().tensor().shape.sizes()) return 0;
    }
    if (op.body_applies && !op.body_applies(node.view())) return 0;
    if (!node.output()->type().tensor().shape.sizes()) return 0;
    std::vector<Expr> at;
    for (const Dim& d : node.output()->type().tensor().shape)
        at.push_back(index_var(fmt::format("_o{}", at.size()), d.as_int()));
    double terms = 0;
    visit(op.body(node.view(), Indices(at)), [&](const Expr& e) {
        if (!e.is(ExprKind::Reduce) || e.node().reduce_op != ReduceOp::Sum) return;
        const std::vector<int> slots = loaded_slots(e);
        if (std::find(slots.begin(), slots.end(), 0) == slots.end() ||
            std::find(slots.begin(), slots.end(), 1) == slots.end())
            return;
        terms = 1;
        for (const ReduceAxis& axis : e.node().axes) terms *= double(axis.extent.as_int().value_or(1));
    });
    return terms;
}

// A size as a multiple of a factor that moves may split off.
Dim sized(const std::string& name, int64_t size, const std::vector<int64_t>& factors) {
    for (int64_t f : factors)
        if (size % f == 0 && size > f) return symbol(name) * f;
    return symbol(name);
}

// Symbols for sizes: one for each number first, then apart where the op allows it. Kernels keep their numbers.
Claim with_symbols(Claim claim, const Node& node) {
    std::vector<int64_t> factors = window_factors(node);
    if (std::find(factors.begin(), factors.end(), 2) == factors.end()) factors.push_back(2);
    struct Place {
        Shape* shape;
        int64_t axis, size;
        bool image;
    };
    std::vector<Place> places;
    const bool window = node.op().has(Trait::Window);
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        Shape& shape = claim.shapes.at(kNames[i]);
        const int64_t plain = i == 0 || !window ? shape.rank() : std::min<int64_t>(shape.rank(), 2);
        for (int64_t d = 0; d < plain; ++d)
            places.push_back({&shape, d, *shape[d].as_int(), window && i == 0 && d != 1});
    }
    auto put = [&](const Place& p, const std::string& name) {
        (*p.shape)[p.axis] = p.image ? sized(name, p.size, factors) : symbol(name);
    };
    const Claim numbers = claim;
    for (const Place& p : places)
        if (p.image) put(p, fmt::format("S{}", p.axis));
    for (const Place& p : places)
        if (!p.image) put(p, fmt::format("K{}", p.size));
    if (!check_well_formed(claim).ok()) return numbers;
    int made = 0;
    for (size_t i = 0; i < places.size(); ++i) {
        if (places[i].image) continue;
        const Dim shared = (*places[i].shape)[places[i].axis];
        // Alone, or with one other of that size.
        for (size_t j = i; j < places.size(); ++j) {
            if (places[j].image || !((*places[j].shape)[places[j].axis] == shared)) continue;
            const std::string name = fmt::format("C{}", made);
            put(places[i], name);
            if (j != i) put(places[j], name);
            if (check_well_formed(claim).ok()) {
                ++made;
                break;
            }
            (*places[i].shape)[places[i].axis] = shared;
            (*places[j].shape)[places[j].axis] = shared;
        }
    }
    return claim;
}

SymbolValues values_of(const Claim& claim, const Node& node) {
    SymbolValues values;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        const Shape& shape = claim.shapes.at(kNames[i]);
        const Shape& sizes = node.input(i)->type().tensor().shape;
        for (int64_t d = 0; d < shape.rank(); ++d)
            for (const std::string& s : free_symbols(shape[d])) {
                const int64_t factor = *evaluate_int(shape[d], {{s, 1}});
                values[s] = *sizes[d].as_int() / factor;
            }
    }
    return values;
}

std::optional<Claim> claim_about(const Node& node) {
    std::string term = node.op().name + "(";
    Claim claim;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        term += fmt::format("{}{}", i ? ", " : "", kNames[i]);
        claim.shapes.emplace(kNames[i], node.input(i)->type().tensor().shape);
    }
    for (const auto& [name, value] : node.attrs()) {
        if (is_hint(node, name)) continue;
        const auto text = attr_text(value);
        if (!text) return {};
        term += fmt::format(", {}={}", name, *text);
    }
    term += ")";
    Result<Rules> read = read_rules(fmt::format("{0} [reassociates]: {1} => {1}", node.op().name, term), "target");
    if (!read.ok()) return {};
    claim.rule = std::move((*read)[0]);
    return claim;
}

}  // namespace

double product_work(const Node& node) {
    double work = terms_of(node);
    if (work > 0)
        for (const Dim& d : node.output()->type().tensor().shape) work *= double(d.as_int().value_or(1));
    return work;
}

std::vector<MutationTarget> find_targets(const Graph& graph) {
    std::vector<MutationTarget> targets;
    std::map<std::string, size_t> known;    // by the claim with numbers
    std::map<std::string, size_t> general;  // by the claim with symbols
    for (const auto& node : graph.nodes()) {
        const double work = product_work(*node);
        if (work == 0) continue;
        std::optional<Claim> claim = claim_about(*node);
        if (!claim) continue;
        const std::string text = to_string(*claim);
        auto found = known.find(text);
        if (found == known.end()) {
            MutationTarget target{with_symbols(*claim, *node), {}, {}, 0};
            target.sizes = values_of(target.claim, *node);
            auto [like, fresh] = general.try_emplace(to_string(target.claim), targets.size());
            if (fresh) targets.push_back(std::move(target));
            found = known.emplace(text, like->second).first;
        }
        MutationTarget& target = targets[found->second];
        target.where.push_back(node->name().empty() ? node->output()->name() : node->name());
        target.work += work;
    }
    std::stable_sort(targets.begin(), targets.end(),
                     [](const MutationTarget& a, const MutationTarget& b) { return a.work > b.work; });
    return targets;
}

}  // namespace tessera
