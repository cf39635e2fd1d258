// Attention as stages that a schedule can tile. All is transposed: queries are the innermost axis, so that maxima, sums
// and scales of a row are plain vector operations, and keys and values are read as they lie.
#include <algorithm>

#include "kernel/cpu/attention.h"

namespace tessera {
namespace {

class Staging {
  public:
    Staging(const Compute& compute, const Attention& attention, const AttentionTiles& tiles)
        : a_(attention), dtype_(compute.buffers[size_t(a_.product->buffer)].dtype) {
        made_.compute = {.name = compute.name, .symbols = compute.symbols, .params = compute.params};
        made_.compute.known = compute.known;
        made_.compute.buffers.assign(compute.buffers.begin(), compute.buffers.begin() + std::ptrdiff_t(compute.params));
        const auto& axes = a_.product->axes;
        for (size_t i = 0; i < a_.outer.size(); ++i)
            outer_.push_back(take("h" + std::to_string(i), axes[a_.outer[i]], axes[a_.outer[i]].extent));
        auto filled = [](const Expr& extent, int64_t multiple) { return ceil_div(extent, multiple) * multiple; };
        queries_ = axes[*a_.query].extent;
        columns_ = axes[a_.column].extent;
        query_ = take("q", axes[*a_.query], filled(queries_, tiles.queries));
        column_ = take("c", axes[a_.column], filled(columns_, tiles.rows));
        key_ = take("k", a_.key, a_.key.extent);
        depth_ = take("d", a_.depth, a_.depth.extent);
        last_key_ = {index_var(key_.var.node().name, filled(key_.extent, tiles.rows).as_int()),
                     filled(key_.extent, tiles.rows)};
    }

    AttentionStages run() {
        const Expr zero = constant(0, dtype_);
        made_.queries = map("qt", over({depth_, query_}), filled_up(a_.q));
        made_.keys = map("kb", over({last_key_, depth_}),
                         substitute(select(lt(last_key_.var, key_.extent), at(a_.k), zero), padded_key()));
        made_.dot = add({.name = "dot",
                         .axes = over({last_key_, query_}),
                         .reduce = {depth_},
                         .value = get(made_.keys, {last_key_, depth_}) * get(made_.queries, {depth_, query_})});
        made_.scores = map("st", over({key_, query_}), score());
        const std::vector<ReduceAxis> row = over({query_});
        made_.most = add({.name = "most",
                          .axes = row,
                          .reduce = {key_},
                          .combine = ReduceOp::Max,
                          .value = get(made_.scores, {key_, query_})});
        // exp of what is never positive: said so, it takes fewer instructions.
        const Expr below = min(get(made_.scores, {key_, query_}) - get(made_.most, {query_}), zero);
        made_.exps = map("exps", over({key_, query_}), call(Fn::Exp, {below}));
        made_.sums = add({.name = "sums", .axes = row, .reduce = {key_}, .value = get(made_.exps, {key_, query_})});
        made_.values = map("vb", over({key_, column_}), select(lt(column_.var, columns_), at(a_.v), zero));
        made_.product = add({.name = "ot",
                             .axes = over({column_, query_}),
                             .reduce = {key_},
                             .value = get(made_.values, {key_, column_}) * get(made_.exps, {key_, query_})});
        made_.inverse = map("inverse", row, constant(1, dtype_) / get(made_.sums, {query_}));
        made_.result = map("result", over({column_, query_}), result());
        out();
        return std::move(made_);
    }

  private:
    // An axis of the attention under another name, and perhaps longer.
    ReduceAxis take(std::string name, const ReduceAxis& axis, const Expr& extent) {
        const auto& symbols = made_.compute.symbols;
        while (std::find(symbols.begin(), symbols.end(), name) != symbols.end()) name += "_";
        ReduceAxis made{index_var(name, extent.as_int()), extent};
        names_.insert_or_assign(axis.var.node().name, made.var);
        return made;
    }
    Bindings padded_key() const { return {{key_.var.node().name, last_key_.var}}; }

    Expr at(const Expr& e) const { return substitute(e, names_); }

    // What queries beyond the last read does not matter: zeros, where queries lie side by side; else what the last
    // reads.
    Expr filled_up(const Expr& e) const {
        const Expr& query = a_.product->axes[*a_.query].var;
        bool along = false;
        for (const Expr& l : loads_in(e)) along |= !l.args().empty() && depends_on(l.args().back(), query);
        if (along) return select(lt(query_.var, queries_), at(e), constant(0, e.dtype()));
        Bindings names = names_;
        names.insert_or_assign(query.node().name, min(query_.var, queries_ - 1));
        return substitute(e, names);
    }

    std::vector<ReduceAxis> over(std::vector<ReduceAxis> inner) const {
        inner.insert(inner.begin(), outer_.begin(), outer_.end());
        return inner;
    }

    Expr get(const std::string& stage, const std::vector<ReduceAxis>& inner) const {
        std::vector<Expr> indices;
        for (const ReduceAxis& a : over(inner)) indices.push_back(a.var);
        for (const Stage& s : made_.compute.stages)
            if (s.name == stage) return load(s.buffer, s.value.dtype(), std::move(indices));
        return {};
    }

    // Its name.
    std::string add(Stage stage) {
        auto& buffers = made_.compute.buffers;
        auto taken = [&](const Buffer& b) { return b.name == stage.name; };
        while (std::any_of(buffers.begin(), buffers.end(), taken)) stage.name += "_";
        stage.buffer = int(buffers.size());
        Buffer buffer{.name = stage.name, .dtype = stage.value.dtype(), .shape = {}};
        for (const ReduceAxis& a : stage.axes) {
            buffer.shape.push_back(a.extent);
            stage.store.push_back(a.var);
        }
        buffers.push_back(std::move(buffer));
        made_.compute.stages.push_back(std::move(stage));
        return made_.compute.stages.back().name;
    }
    std::string map(std::string name, std::vector<ReduceAxis> axes, Expr value) {
        return add({.name = std::move(name), .axes = std::move(axes), .value = std::move(value)});
    }

    // f of the products. What it reads for each query is copied, transposed like all else.
    Expr score() {
        const Expr& f = a_.weights.score;
        const Expr product = substitute(get(made_.dot, {last_key_, query_}), {{last_key_.var.node().name, key_.var}});
        std::vector<std::pair<Expr, Expr>> copies{{a_.score_load, product}};
        for (const Expr& e : loads_in(f)) {
            if (e == a_.score_load || !depends_on(e, a_.product->axes[*a_.query].var)) continue;
            bool nested = false;  // in the index of another load
            for (const Expr& other : loads_in(f))
                for (const Expr& index : other.args()) visit(index, [&](const Expr& x) { nested |= x == e; });
            if (nested) continue;
            made_.bias.push_back(map("bias", over({key_, query_}), filled_up(e)));
            copies.emplace_back(e, get(made_.bias.back(), {key_, query_}));
        }
        // Loads that are copied stand aside while the variables of the others are renamed.
        auto number_of = [&](const Expr& x) {
            size_t i = 0;
            while (i < copies.size() && !(copies[i].first == x)) ++i;
            return i;
        };
        Expr e = map_loads(f, [&](const Expr& x) -> Expr {
            const size_t i = number_of(x);
            return i < copies.size() ? load(-1 - int(i), x.dtype(), {}) : x;
        });
        return map_loads(at(e), [&](const Expr& x) -> Expr {
            return x.node().slot < 0 ? copies[size_t(-1 - x.node().slot)].second : x;
        });
    }

    // The product with V, divided by the sums. Without keys it is zero, and rows without weights are zero times V.
    Expr result() {
        const Expr zero = constant(0, dtype_);
        Expr value = get(made_.product, {column_, query_}) * get(made_.inverse, {query_});
        if (bounds(key_.extent).low.value_or(0) < 1) value = select(eq(key_.extent, 0), zero, value);
        if (a_.weights.blind.is(ExprKind::Const)) return value;
        made_.zeros = add({.name = "zeros",
                           .axes = over({column_}),
                           .reduce = {key_},
                           .value = select(lt(column_.var, columns_), at(a_.v), zero) * zero});
        Expr blind = map_loads(a_.weights.blind, [&](const Expr& x) -> Expr {
            return x == a_.weights.sum_load ? load(-1, dtype_, {}) : x;
        });
        blind = map_loads(at(blind),
                          [&](const Expr& x) -> Expr { return x.node().slot == -1 ? get(made_.sums, {query_}) : x; });
        Expr flag = select(blind, constant(1, dtype_), zero);
        if (!loads_in(a_.weights.blind).empty()) flag = select(lt(query_.var, queries_), flag, zero);
        made_.blind = map("blind", over({query_}), flag);
        return select(ne(get(made_.blind, {query_}), zero), get(made_.zeros, {column_}), value);
    }

    // Each element where the Compute has it, by queries and then columns.
    void out() {
        const Stage& product = *a_.product;
        ReduceAxis query{index_var(query_.var.node().name, queries_.as_int()), queries_};
        ReduceAxis column{index_var(column_.var.node().name, columns_.as_int()), columns_};
        Bindings shorter{{query.var.node().name, query.var}, {column.var.node().name, column.var}};
        Stage stage{.name = "out", .buffer = product.buffer, .axes = over({query, column})};
        stage.value = substitute(get(made_.result, {column_, query_}), shorter);
        const std::vector<Expr>* store = &product.store;
        Bindings names;
        for (const auto& [name, var] : names_) names.emplace(name, substitute(var, shorter));
        if (a_.epilogue) {
            const Stage& map = *a_.epilogue;
            stage.buffer = map.buffer;
            store = &map.store;
            Bindings own;
            for (const ReduceAxis& axis : map.axes) own.insert_or_assign(axis.var.node().name, Expr(0));
            const Expr read = loads_in(map.value, product.buffer)[0];
            for (size_t n = 0; n < product.axes.size(); ++n)
                if (!product.axes[n].extent.is_int(1))
                    own.insert_or_assign(read.arg(n).node().name, substitute(product.axes[n].var, names));
            const Expr value = stage.value;
            Expr mapped = map_loads(map.value, [&](const Expr& x) -> Expr {
                return x.node().slot == product.buffer ? load(-1, dtype_, {}) : x;
            });
            stage.value = map_loads(substitute(mapped, own),
                                    [&](const Expr& x) -> Expr { return x.node().slot == -1 ? value : x; });
            names = own;
        }
        for (const Expr& e : *store) stage.store.push_back(substitute(e, names));
        while (std::any_of(made_.compute.stages.begin(), made_.compute.stages.end(),
                           [&](const Stage& s) { return s.name == stage.name; }))
            stage.name += "_";
        made_.out = stage.name;
        made_.compute.stages.push_back(std::move(stage));
    }

    const Attention& a_;
    const DType dtype_;
    AttentionStages made_;
    Bindings names_;
    std::vector<ReduceAxis> outer_;
    ReduceAxis query_, column_, key_, depth_, last_key_;
    Expr queries_, columns_;
};

}  // namespace

AttentionStages attention_stages(const Compute& compute, const Attention& attention, const AttentionTiles& tiles) {
    return Staging(compute, attention, tiles).run();
}

}  // namespace tessera
