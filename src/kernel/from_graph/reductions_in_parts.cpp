// Split reductions for GPUs: a long reduction with few results is split over many blocks, and combined afterwards.
#include <algorithm>
#include <set>

#include "kernel/from_graph/definitions.h"
#include "kernel/ir/compute.h"

namespace tessera {
namespace {

constexpr int64_t kFewResults = 32;
constexpr int64_t kLong = 1 << 15;   // elements of one result, from which on they are cut
constexpr int64_t kPart = 4096;      // elements of a part, if there are not more parts than
constexpr int64_t kMostParts = 256;  // of all results together
constexpr int64_t kOpenParts = 64;   // where the number of elements is not known
constexpr int64_t kShort = 64;       // elements that one thread adds up as well
constexpr size_t kMostVisited = 40;  // between a product and the softmax of it, or a softmax and the next product

struct Cut {
    size_t axis = 0;
    int64_t parts = 1;
};

// Along the first axis that is long enough, or the longest.
Cut choose_cut(const Definition& d, int64_t results) {
    int64_t length = 1;
    for (size_t r = 0; r < d.reduce.size(); ++r) {
        const auto extent = d.reduce[r].extent.as_int();
        if (!extent) return {r, std::max<int64_t>(kOpenParts / results, 1)};
        length *= *extent;
    }
    if (length < kLong) return {};
    const int64_t wanted = std::clamp<int64_t>(length / kPart, 1, std::max<int64_t>(kMostParts / results, 1));
    auto extent = [&](size_t r) { return *d.reduce[r].extent.as_int(); };
    Cut cut;
    for (size_t r = 0; r < d.reduce.size() && extent(cut.axis) < wanted; ++r)
        if (extent(r) > extent(cut.axis)) cut.axis = r;
    cut.parts = std::min(wanted, extent(cut.axis));
    // Parts of equal length, where that takes not many fewer.
    for (int64_t p = cut.parts; 2 * p > cut.parts; --p)
        if (extent(cut.axis) % p == 0) return {cut.axis, p};
    return cut;
}

// A product of 16-bit operands.
bool is_narrow_product(const Definition& d, const std::vector<Definition>& all) {
    if (d.kind != Definition::Kind::Reduction || d.combine != ReduceOp::Sum || !d.body.is(ExprKind::Mul)) return false;
    const std::vector<int> read = loaded_slots(d.body);
    return std::any_of(read.begin(), read.end(), [&](int n) {
        return all[size_t(n)].dtype == DType::f16 || all[size_t(n)].dtype == DType::bf16;
    });
}

// As a maximum, or what a maximum was taken off.
bool follows_product(const Definition& d, const std::vector<Definition>& all) {
    std::vector<int> work = loaded_slots(d.body);
    std::set<int> seen;
    bool largest = d.combine == ReduceOp::Max, product = false;
    while (!work.empty() && seen.size() < kMostVisited) {
        const int n = work.back();
        work.pop_back();
        if (!seen.insert(n).second || !all[size_t(n)].has_body()) continue;
        const Definition& from = all[size_t(n)];
        largest |= from.kind == Definition::Kind::Reduction && from.combine == ReduceOp::Max;
        product |= is_narrow_product(from, all);
        if (!is_narrow_product(from, all))
            for (int read : loaded_slots(from.body)) work.push_back(read);
    }
    return largest && product;
}

bool leads_to_product(const Node& node) {
    std::vector<const Node*> work{&node};
    std::set<const Node*> seen;
    while (!work.empty() && seen.size() < kMostVisited) {
        const Node* n = work.back();
        work.pop_back();
        if (!seen.insert(n).second) continue;
        for (size_t i = 0; i < n->output_count(); ++i)
            for (const Use& use : n->output(i)->uses()) {
                if (!use.node) continue;
                if (use.node->is(Trait::Bilinear)) return true;
                work.push_back(use.node);
            }
    }
    return false;
}

}  // namespace

bool is_between_products(const Definition& d, const std::vector<Definition>& all) {
    return d.node && d.reduce.size() == 1 && follows_product(d, all) && leads_to_product(*d.node);
}

int add_in_parts(Definition d, const AddReduction& add) {
    Expr results = 1;
    for (const Expr& extent : d.shape) results = results * extent;
    const auto count = results.as_int();
    const bool exact = d.node && d.node->attrs().contains("halvings");
    if (d.kind != Definition::Kind::Reduction || !count || *count < 1 || *count > kFewResults || exact)
        return add(std::move(d));
    Expr length = 1;
    for (const ReduceAxis& axis : d.reduce) length = length * axis.extent;
    if (length.as_int().value_or(kLong) < kShort) return add(std::move(d));
    const DType dtype = d.dtype;
    std::vector<Expr> at = index_vars(d.shape);
    const Cut cut = choose_cut(d, *count);
    const bool single = d.shape.empty();  // a block has an element of its own
    Definition last = d;
    if (cut.parts > 1) {
        ReduceAxis& axis = d.reduce[cut.axis];
        const Expr share = ceil_div(axis.extent, cut.parts),
                   part = index_var(fmt::format("%i{}", at.size()), cut.parts);
        const Expr inside = index_var(axis.var.node().name, share.as_int()), element = part * share + inside;
        d.body = substitute(d.body, {{axis.var.node().name, element}});
        if (const auto known = axis.extent.as_int(); !known || *known % cut.parts != 0)
            d.body = select(lt(element, axis.extent), d.body, identity(d.combine, d.body.dtype()));
        axis = {inside, share};
        d.shape.push_back(cut.parts);
        const int partial = add(std::move(d));
        const Expr which = index_var("%r0", cut.parts);
        at.push_back(which);
        last.reduce = {{which, cut.parts}};
        last.body = load(partial, dtype, at);
    }
    if (!single) return add(std::move(last));
    last.shape = {1};
    Definition only;
    only.kind = Definition::Kind::Map;
    only.dtype = dtype;
    only.body = load(add(std::move(last)), dtype, {0});
    return add(std::move(only));
}

}  // namespace tessera
