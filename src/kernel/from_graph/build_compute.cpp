#include "kernel/from_graph/build_compute.h"

#include <algorithm>
#include <map>
#include <set>

#include "expr/divide_within.h"
#include "kernel/ir/narrow_floats.h"
#include "kernel/schedule/split_axes.h"

namespace tessera {
namespace {

constexpr char kPlace = '@';  // begins the names of symbols that are no graph's

class Building {
  public:
    Building(const Definitions& all, const Layouts& layouts, const Grouping& grouping, int group,
             const std::vector<Storage>& storage, const std::vector<ProgramBuffer>& buffers)
        : all_(all),
          layouts_(layouts),
          grouping_(grouping),
          group_(group),
          storage_(storage),
          program_(buffers),
          members_(grouping.groups[size_t(group)]) {}

    GroupCompute run() {
        std::vector<Expr> values;
        for (int n : members_) values.push_back(inlined(n));
        for (const Expr& v : values) collect_reads(v);
        for (int n : made_.reads) made_.read_elements.push_back(elements_read(n, values));
        for (int n : members_)
            if (grouping_.whole[size_t(n)]) add_param(n, fmt::format("y{}", made_.writes.size()), made_.writes);
        made_.compute.params = made_.compute.buffers.size();
        for (int n : members_)
            if (!grouping_.whole[size_t(n)]) add_intermediate(n);
        for (size_t i = 0; i < members_.size(); ++i) add_stage(members_[i], values[i]);
        split_axes(made_.compute);
        for (Stage& s : made_.compute.stages) order_reduction(s);
        give_names();
        note_nodes();
        return std::move(made_);
    }

  private:
    const Definition& def(int n) const { return all_.list[size_t(n)]; }
    bool inside(int n) const { return grouping_.group_of[size_t(n)] == group_; }
    bool inlines(int n) const { return grouping_.group_of[size_t(n)] < 0 && def(n).has_body(); }

    // The order in which the dimensions of a definition lie in memory.
    const std::vector<int>& order(int n) const { return layouts_.order[size_t(n)]; }

    // The body of a definition with the bodies of those that are inlined in the place of their loads.
    const Expr& inlined(int n) {
        auto found = bodies_.find(n);
        if (found != bodies_.end()) return found->second;
        held_.push_back(n);
        Expr body = map_loads(def(n).body, [&](const Expr& e) -> Expr {
            if (!inlines(e.node().slot)) return e;
            const Expr& value = inlined(e.node().slot);
            if (is_alias(e.node().slot, value)) return e;
            Bindings at;
            for (size_t d = 0; d < e.args().size(); ++d) at.emplace(fmt::format("%i{}", d), e.arg(d));
            return substitute(value, at);
        });
        return bodies_.emplace(n, divide_within(body, def(n).axes())).first->second;
    }

    Expr offset_of(int n, const std::vector<Expr>& at) const {
        Expr offset = 0;
        for (int d : order(n)) offset = offset * def(n).shape[size_t(d)] + at[size_t(d)];
        return offset;
    }

    // Whether a definition is another one's memory under its own shape.
    bool is_alias(int n, const Expr& value) {
        if (auto known = aliases_.find(n); known != aliases_.end()) return known->second >= 0;
        int& of = aliases_[n] = -1;
        if (!value.is(ExprKind::Load) || value.dtype() != def(n).dtype) return false;
        int from = value.node().slot;
        if (auto further = aliases_.find(from); further != aliases_.end() && further->second >= 0)
            from = further->second;
        if (from == value.node().slot && (inside(from) || inlines(from))) return false;
        const Storage& s = storage_[size_t(from)];
        if (s.buffer < 0 || !s.offset.empty()) return false;
        if (!(Shape(def(n).shape).elements() == Shape(def(from).shape).elements())) return false;
        if (!(offset_of(n, index_vars(def(n).shape)) == offset_of(value.node().slot, value.args()))) return false;
        of = from;
        return true;
    }

    void collect_reads(const Expr& value) {
        for (int n : loaded_slots(value))
            if (!inside(n) && !slots_.contains(n)) add_param(n, fmt::format("x{}", made_.reads.size()), made_.reads);
    }

    Expr elements_read(int n, const std::vector<Expr>& values) const {
        Expr all = Shape(def(n).shape).elements(), looked_up = 0;
        for (size_t i = 0; i < values.size(); ++i) {
            const Definition& stage = def(members_[i]);
            Expr times = Shape(stage.shape).elements();
            for (const ReduceAxis& r : stage.reduce) times = times * r.extent;
            bool whole = false;
            visit(values[i], [&](const Expr& e) {
                if (!e.is(ExprKind::Load) || e.node().slot != n) return;
                auto known = [](const Expr& at) { return !at.node().reads; };
                whole |= std::all_of(e.args().begin(), e.args().end(), known);
                looked_up = looked_up + times;
            });
            if (whole) return all;
        }
        auto a = all.as_int(), b = looked_up.as_int();
        return a && b ? Expr(std::min(*a, *b)) : a ? looked_up : all;
    }

    void add_param(int n, std::string name, std::vector<int>& list) {
        auto alias = aliases_.find(n);
        const bool other = alias != aliases_.end() && alias->second >= 0;
        const int buffer = storage_[size_t(other ? alias->second : n)].buffer;
        CHECK(buffer >= 0, "definition {} is read but not kept", n);
        const ProgramBuffer& b = program_[size_t(buffer)];
        slots_[n] = int(made_.compute.buffers.size());
        made_.compute.buffers.push_back(
            {.name = std::move(name), .dtype = stored_as(b.dtype), .shape = other ? shape_of(n) : b.shape});
        made_.compute.known.push_back(b.role == BufferRole::Constant);
        made_.args.push_back(buffer);
        list.push_back(n);
    }

    void add_intermediate(int n) {
        slots_[n] = int(made_.compute.buffers.size());
        made_.compute.buffers.push_back({.name = fmt::format("t{}", slots_[n] - int(made_.compute.params)),
                                         .dtype = def(n).dtype,
                                         .shape = shape_of(n)});
    }

    std::vector<Expr> shape_of(int n) const {  // as it lies in memory
        std::vector<Expr> shape;
        for (int d : order(n)) shape.push_back(def(n).shape[size_t(d)]);
        return shape;
    }

    std::vector<Expr> place(int n, const std::vector<Expr>& at) const {
        std::vector<Expr> out;
        const std::vector<Expr>& offset = storage_[size_t(n)].offset;
        for (int d : order(n)) out.push_back(at[size_t(d)]);
        for (size_t d = 0; d < offset.size(); ++d) out[d] = out[d] + offset[d];
        return out;
    }

    void add_stage(int n, const Expr& value) {
        const Definition& d = def(n);
        Stage stage;
        stage.name = stage_name(d);
        stage.buffer = slots_.at(n);
        stage.combine = d.combine;
        if (d.kind == Definition::Kind::Reduction && d.node && d.node->attrs().contains("halvings"))
            made_.compute.halvings = int(d.node->view().integer("halvings"));
        Bindings names;
        std::vector<Expr> at(d.shape.size());
        for (int dim : order_of_axes(n, value)) {
            const Expr& extent = d.shape[size_t(dim)];
            Expr var = index_var(fmt::format("%a{}", stage.axes.size()), extent.as_int());
            names.emplace(fmt::format("%i{}", dim), var);
            at[size_t(dim)] = var;
            stage.axes.push_back({var, extent});
        }
        for (const ReduceAxis& axis : d.reduce) {
            Expr var = index_var(fmt::format("%b{}", stage.reduce.size()), axis.extent.as_int());
            names.emplace(axis.var.node().name, var);
            stage.reduce.push_back({var, axis.extent});
        }
        stage.store = place(n, at);
        free_store(n, stage);
        stage.value = map_loads(substitute(value, names), [&](const Expr& e) {
            return load(slots_.at(e.node().slot), e.dtype(), place(e.node().slot, e.args()));
        });
        drop_missing_units(stage);
        made_.compute.stages.push_back(std::move(stage));
    }

    // Axes go as the elements lie; but those of a sum over channels that lie side by side as its images do, wherever it
    // is stored.
    const std::vector<int>& order_of_axes(int n, const Expr& value) const {
        const Definition& d = def(n);
        const bool alone = members_.size() == 1 && storage_[size_t(n)].offset.empty();
        if (!alone || d.kind != Definition::Kind::Reduction || !value.is(ExprKind::Mul)) return order(n);
        for (int slot : loaded_slots(value)) {
            const std::vector<int>& lies = order(slot);
            const bool image = lies.size() == d.shape.size() && lies.size() > 2 && lies.back() == 1;
            if (image && order(n).back() != 1) return lies;
        }
        return order(n);
    }

    // A reduction axis of one element that a factor does not have (the one channel of a signal) is none.
    static void drop_missing_units(Stage& stage) {
        for (size_t r = stage.reduce.size(); r-- > 0 && stage.reduce.size() > 1;) {
            const Expr& var = stage.reduce[r].var;
            const auto& factors = stage.value.args();
            if (!stage.reduce[r].extent.is_int(1) || !stage.value.is(ExprKind::Mul)) continue;
            if (std::all_of(factors.begin(), factors.end(), [&](const Expr& f) { return depends_on(f, var); }))
                continue;
            stage.value = substitute(stage.value, {{var.node().name, Expr(0)}});
            stage.reduce.erase(stage.reduce.begin() + std::ptrdiff_t(r));
        }
    }

    // Where in a joined definition a part is stored is a symbol of its own: parts that are made alike are made by the
    // same kernel.
    void free_store(int n, Stage& stage) {
        const std::vector<Expr>& offset = storage_[size_t(n)].offset;
        for (size_t d = 0; d < offset.size(); ++d) {
            if (!offset[d].as_int() || stage.axes[d].extent == program_[size_t(storage_[size_t(n)].buffer)].shape[d])
                continue;
            std::string name = fmt::format("{}{}", kPlace, offsets_.size());
            offsets_.emplace(name, offset[d]);
            stage.store[d] = stage.axes[d].var + symbol(name);
        }
    }

    // Reduction axes in the order in which what is read lies in memory, as its first large load has it.
    static void order_reduction(Stage& stage) {
        if (stage.reduce.size() < 2) return;
        std::vector<size_t> place(stage.reduce.size(), 0);
        visit(stage.value, [&](const Expr& e) {
            if (!e.is(ExprKind::Load)) return;
            for (size_t r = 0; r < stage.reduce.size(); ++r)
                for (size_t d = 0; d < e.args().size(); ++d) {
                    bool along = false;
                    visit(e.arg(d), [&](const Expr& x) { along |= x == stage.reduce[r].var; });
                    if (along && place[r] == 0) place[r] = d + 1;
                }
        });
        std::vector<size_t> index(stage.reduce.size());
        for (size_t r = 0; r < index.size(); ++r) index[r] = r;
        std::stable_sort(index.begin(), index.end(), [&](size_t a, size_t b) { return place[a] < place[b]; });
        std::vector<ReduceAxis> sorted;
        for (size_t r : index) sorted.push_back(stage.reduce[r]);
        stage.reduce = std::move(sorted);
    }

    std::string stage_name(const Definition& d) {
        std::string name = d.node ? d.node->op().name : "copy";
        if (!d.value) name += fmt::format("_{}", reduction_name(d.combine));
        std::string unique = name;
        for (int i = 1;; ++i) {
            bool taken = std::any_of(made_.compute.stages.begin(), made_.compute.stages.end(),
                                     [&](const Stage& s) { return s.name == unique; });
            if (!taken) return unique;
            unique = fmt::format("{}_{}", name, i);
        }
    }

    static const char* reduction_name(ReduceOp op) {
        switch (op) {
            case ReduceOp::Sum: return "sum";
            case ReduceOp::Prod: return "prod";
            case ReduceOp::Min: return "min";
            case ReduceOp::Max: return "max";
        }
        return "";
    }

    // The graph's symbols become n0, n1, ... in the order in which they are met, axes i0, i1, ... and r0, r1, ...
    void give_names() {
        Compute& c = made_.compute;
        Bindings own;
        std::set<std::string> axes;
        for (const Stage& s : c.stages)
            for (const auto* list : {&s.axes, &s.reduce})
                for (const ReduceAxis& a : *list) axes.insert(a.var.node().name);
        auto meet = [&](const Expr& e) {
            for (const std::string& name : free_symbols(e)) {
                if (axes.contains(name) || own.contains(name)) continue;
                std::string fresh = fmt::format("n{}", c.symbols.size());
                own.emplace(name, symbol(fresh));
                c.symbols.push_back(fresh);
                auto offset = offsets_.find(name);
                made_.symbols.push_back(offset == offsets_.end() ? symbol(name) : offset->second);
            }
        };
        for (Buffer& b : c.buffers) {
            for (const Expr& e : b.shape) meet(e);
            for (Expr& e : b.shape) e = substitute(e, own);
        }
        for (Stage& s : c.stages) {
            for (const ReduceAxis& a : s.axes) meet(a.extent);
            for (const ReduceAxis& a : s.reduce) meet(a.extent);
            for (const Expr& e : s.store) meet(e);
            meet(s.value);
            Bindings names = own;
            auto rename = [&](std::vector<ReduceAxis>& axes, char letter) {
                for (size_t i = 0; i < axes.size(); ++i) {
                    axes[i].extent = substitute(axes[i].extent, names);
                    Expr var = index_var(fmt::format("{}{}", letter, i), axes[i].extent.as_int());
                    names.emplace(axes[i].var.node().name, var);
                    axes[i].var = var;
                }
            };
            rename(s.axes, 'i');
            rename(s.reduce, 'r');
            for (Expr& e : s.store) e = substitute(e, names);
            s.value = substitute(s.value, names);
        }
    }

    // What is left of a node whose reduction another group holds: nothing but that, in its place.
    bool places_another(int n) const {
        if (!inlines(n) || !def(n).body.is(ExprKind::Load)) return false;
        int from = def(n).body.node().slot;
        return def(from).node == def(n).node && !inside(from);
    }

    void note_nodes() {
        std::sort(held_.begin(), held_.end());
        for (int n : held_)
            if (def(n).node && !places_another(n) &&
                std::find(made_.nodes.begin(), made_.nodes.end(), def(n).node) == made_.nodes.end())
                made_.nodes.push_back(def(n).node);
        std::string& name = made_.compute.name;
        name.clear();
        for (const Node* node : made_.nodes) name += (name.empty() ? "" : "_") + node->op().name;
        if (name.empty()) name = "copy";
        if (name.size() > 60) name.resize(60);
    }

    const Definitions& all_;
    const Layouts& layouts_;
    const Grouping& grouping_;
    const int group_;
    const std::vector<Storage>& storage_;
    const std::vector<ProgramBuffer>& program_;
    const std::vector<int>& members_;
    std::map<int, Expr> bodies_;
    std::map<int, int> slots_;    // by definition
    std::map<int, int> aliases_;  // by definition that could be inlined: whose memory it is; -1: nobody's
    std::vector<int> held_;
    Bindings offsets_;  // by symbol: where a part is stored
    GroupCompute made_;
};

}  // namespace

GroupCompute build_compute(const Definitions& all, const Layouts& layouts, const Grouping& grouping, int group,
                           const std::vector<Storage>& storage, const std::vector<ProgramBuffer>& buffers) {
    return Building(all, layouts, grouping, group, storage, buffers).run();
}

}  // namespace tessera
