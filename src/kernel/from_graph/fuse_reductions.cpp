#include <algorithm>
#include <map>
#include <set>

#include "kernel/from_graph/fuse_groups.h"

namespace tessera {
namespace {

constexpr int kMaxSteps = 40;  // maps that are tried beyond what is known to fit
// A block computes some columns from end to end. Fewer than this do not fill a GPU, unless there is little to read.
constexpr double kFewColumns = 4096, kLittle = 1 << 20;

// A reduction and what is computed from it, grown as far as it has one result that others read.
class Region {
  public:
    Region(const Fusion& fusion, int first)
        : fusion_(fusion), acc_(fusion.acc), members_{first}, code_(fusion.code_of(first)) {
        rows_ = is_row_reduction(acc_, first);
        contraction_ = is_contraction(acc_, first);
        if (fusion.blocks && !rows_ && !contraction_ && reduces_columns(first) && fills_blocks(first))
            for (size_t k = 0; k < acc_.def(first).shape.size(); ++k) columns_[first].push_back(int(k));
    }

    std::vector<int> grow() {
        std::vector<int> best(members_.begin(), members_.end());
        for (int step = 0; step < kMaxSteps; ++step) {
            int next = next_member();
            if (next < 0 || !(code_ += fusion_.code_of(next)).fits()) break;
            members_.insert(next);
            if (!columns_.empty()) columns_[next] = *columns_of(next);
            if (exits() != 1 || (fusion_.blocks && widens(next))) continue;
            best.assign(members_.begin(), members_.end());
            step = 0;
        }
        return best;
    }
    bool rows() const { return rows_ || !columns_.empty(); }

  private:
    // The first reader outside that can be computed along with the members.
    int next_member() const {
        int next = -1;
        for (int m : members_)
            for (int r : acc_.readers(m))
                if (!members_.contains(r) && (next < 0 || r < next) && joins(r)) next = r;
        return next;
    }

    bool joins(int n) const {
        if (fusion_.decided[size_t(n)] || !acc_.live(n)) return false;
        const Definition& d = acc_.def(n);
        if (d.kind == Definition::Kind::Reduction && (!rows() || is_contraction(acc_, n))) return false;
        if (!d.has_body()) return false;
        if (!columns_.empty()) return columns_of(n).has_value();
        for (const Reading& a : acc_.reads(n))
            if (members_.contains(a.source) && !(rows_ ? same_row(n, a) || reshaped(n, a) : elementwise(n, a)))
                return false;
        return true;
    }

    // What is stored is then twice as long, and nothing is saved.
    bool widens(int n) const {
        const Expr& e = acc_.body(n);
        return e.is(ExprKind::Cast) && e.arg(0).is(ExprKind::Load) &&
               dtype_bytes(e.dtype()) > dtype_bytes(e.arg(0).dtype());
    }

    bool elementwise(int n, const Reading& a) const {
        const std::vector<Expr>&shape = acc_.def(n).shape, &of = acc_.def(a.source).shape;
        return same_elements(shape, of, a.at) || (contraction_ && same_elements_by_digits(shape, of, a.at));
    }

    // The dimensions in the order of memory, without those of one element, unless the region has one row only.
    std::vector<int> row_axes(int n) const {
        const std::vector<Expr>& of_first = acc_.def(*members_.begin()).shape;
        const bool one_row =
            std::all_of(of_first.begin(), of_first.end(), [](const Expr& size) { return size.is_int(1); });
        std::vector<int> axes;
        for (int axis : acc_.order(n))
            if (one_row || !acc_.def(n).shape[size_t(axis)].is_int(1)) axes.push_back(axis);
        return axes;
    }

    // The source's rows are the reader's: the outermost dimensions of both, in the same order.
    bool same_row(int n, const Reading& a) const {
        const Definition &d = acc_.def(n), &first = acc_.def(*members_.begin());
        const std::vector<int> rows = row_axes(*members_.begin()), own = row_axes(n), from = row_axes(a.source);
        if (own.size() < rows.size() || from.size() < rows.size()) return false;
        if (d.kind == Definition::Kind::Reduction && own.size() != rows.size()) return false;
        for (size_t k = 0; k < rows.size(); ++k) {
            const Expr& at = a.at[size_t(from[k])];
            if (!(first.shape[size_t(rows[k])] == d.shape[size_t(own[k])])) return false;
            if (!at.is(ExprKind::Var) || at.node().name != fmt::format("%i{}", own[k])) return false;
        }
        return true;
    }

    // For blocks: the reader is the source in another shape, each element where it was in memory. Rows stay rows.
    bool reshaped(int n, const Reading& a) const {
        const Definition &d = acc_.def(n), &from = acc_.def(a.source);
        if (!fusion_.blocks || d.kind != Definition::Kind::Map || from.kind != Definition::Kind::Map) return false;
        return same_elements_by_digits(d.shape, from.shape, a.at) &&
               acc_.place(a.source, a.at) == acc_.place(n, index_vars(d.shape));
    }

    // Whether a reduction goes over axes that are not the innermost of what it reads: its results are neighbours there.
    bool reduces_columns(int n) const {
        const Definition& d = acc_.def(n);
        for (const Reading& a : acc_.reads(n)) {
            if (a.at.empty()) continue;
            for (const Expr& index : a.at) {
                const bool plain = index.is(ExprKind::Var) || index.as_int();
                if (!plain) return false;  // a window
            }
            const Expr& inner = a.at[size_t(acc_.order(a.source).back())];
            if (std::any_of(d.reduce.begin(), d.reduce.end(), [&](const auto& r) { return depends_on(inner, r.var); }))
                return false;
        }
        return !d.shape.empty();
    }

    bool fills_blocks(int n) const {
        const Definition& d = acc_.def(n);
        double length = 1;
        for (const ReduceAxis& axis : d.reduce) length *= size_of(axis.extent);
        const double columns = elements_of(d.shape);
        return columns >= kFewColumns || columns * length <= kLittle;
    }

    // The axes of a reader that are those of the first reduction's results, in their order, where all that it reads of
    // the members is at them.
    std::optional<std::vector<int>> columns_of(int n) const {
        const Definition &d = acc_.def(n), &first = acc_.def(*members_.begin());
        if (d.kind == Definition::Kind::Reduction && d.shape.size() != first.shape.size()) return {};
        std::optional<std::vector<int>> found;
        for (const Reading& a : acc_.reads(n)) {
            const auto source = columns_.find(a.source);
            if (source == columns_.end()) continue;
            for (const Expr& index : a.at)
                if (!index.is(ExprKind::Var) && !index.is_int(0)) return {};
            std::vector<int> axes;
            for (size_t k = 0; k < source->second.size(); ++k)
                for (size_t i = 0; i < d.shape.size(); ++i)
                    if (const Expr& at = a.at[size_t(source->second[k])]; at.is(ExprKind::Var) &&
                                                                          at.node().name == fmt::format("%i{}", i) &&
                                                                          d.shape[i] == first.shape[k])
                        axes.push_back(int(i));
            if (axes.size() != first.shape.size() || (found && *found != axes)) return {};
            found = axes;
        }
        return found;
    }

    int exits() const {
        int n = 0;
        for (int m : members_) {
            const std::vector<int>& readers = acc_.readers(m);
            n += acc_.kept(m) ||
                 std::any_of(readers.begin(), readers.end(), [&](int r) { return !members_.contains(r); });
        }
        return n;
    }

    const Fusion& fusion_;
    const Accesses& acc_;
    std::set<int> members_;
    CodeSize code_;
    bool rows_, contraction_;
    // Of a reduction over other axes than the innermost, for blocks: by member, the axes of the results.
    std::map<int, std::vector<int>> columns_;
};

// Maps of a region that become a part of what reads them: all but the last, where elements are computed one by one; by
// rows, those that are read once.
bool inlined(const Accesses& acc, const std::vector<int>& members, int n, bool rows) {
    if (n == members.back() || acc.def(n).kind != Definition::Kind::Map || acc.kept(n)) return false;
    if (!rows) return true;
    const std::vector<int>& readers = acc.readers(n);
    if (readers.size() != 1) return false;
    const Definition& reader = acc.def(readers[0]);
    std::vector<Expr> space = reader.shape;
    for (const ReduceAxis& r : reader.reduce) space.push_back(r.extent);
    return elements_of(space) <= elements_of(acc.def(n).shape);
}

void add_region(Fusion& fusion, const std::vector<int>& members, bool rows) {
    const Accesses& acc = fusion.acc;
    std::vector<int> stages;
    double saved = 0;
    for (int n : members) {
        fusion.decided[size_t(n)] = true;
        if (!inlined(acc, members, n, rows)) stages.push_back(n);
        if (n != members.back()) saved += 2 * bytes_of(acc.def(n));
    }
    const int group = fusion.add_group(stages);
    for (int n : members)
        if (fusion.group_of[size_t(n)] < 0) fusion.code[size_t(group)] += fusion.code_of(n);
    if (members.size() < 2) return;
    std::string names;
    for (size_t i = 1; i < members.size(); ++i) names += (i > 1 ? ", " : "") + acc.name(members[i]);
    fusion.choose(fmt::format("fuse {} into {}", names, acc.name(members[0])),
                  yes("{:.0f} KB are not written and read again", saved / 1000));
}

}  // namespace

CodeSize Fusion::code_of(int n) const {
    const double loads = double(acc.reads(n).size());
    return {operations(acc.body(n)) + loads, loads};
}

int Fusion::add_group(std::vector<int> members) {
    code.emplace_back();
    for (int n : members) {
        group_of[size_t(n)] = int(groups.size());
        decided[size_t(n)] = true;
        code.back() += code_of(n);
    }
    groups.push_back(std::move(members));
    return int(groups.size()) - 1;
}

void fuse_reductions(Fusion& fusion) {
    const Accesses& acc = fusion.acc;
    for (bool contractions : {true, false}) {
        for (int n = 0; n < acc.count(); ++n) {
            const Definition& d = acc.def(n);
            if (!acc.live(n) || d.kind != Definition::Kind::Reduction || fusion.decided[size_t(n)]) continue;
            if (is_contraction(acc, n) != contractions) continue;
            Region region(fusion, n);
            std::vector<int> members = region.grow();
            add_region(fusion, members, region.rows());
        }
    }
}

}  // namespace tessera
