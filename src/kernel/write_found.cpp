// Ops that find elements: the places of those that are not zero, or where a condition holds, in order. Blocks are
// counted at once, then each writes its places from where the blocks before it end.
#include "kernel/write_kernel.h"

namespace tessera {
namespace {

constexpr int64_t kBlock = 4096;

// Keeps how many of `count` elements are wanted, and their places.
Stmt find_places(KernelWriter& w, const Expr& count, const std::function<Expr(const Expr&)>& wanted) {
    const Expr blocks = ceil_div(count, kBlock);
    Elements found = w.kept(DType::i64, {Expr(1)}), places = w.kept(DType::i64, {count});
    Elements from = w.scratch(DType::i64, {blocks});
    auto in_block = [&](const Expr& b, const std::function<Stmt(const Expr&)>& body) {
        return w.loop(min(Expr(kBlock), count - b * kBlock), [&](const Expr& i) { return body(b * kBlock + i); });
    };
    Stmt tally = w.parallel(blocks, [&](const Expr& b) {
        Stmt add = in_block(b, [&](const Expr& i) { return from.add({b}, cast(wanted(i), DType::i64)); });
        return seq({from.set({b}, Expr(0)), add});
    });
    Stmt starts = w.local(DType::i64, {}, [&](const Elements& here) {
        Stmt each = w.loop(blocks, [&](const Expr& b) {
            return seq(
                {here.set({}, from.at({b})), from.set({b}, found.at({Expr(0)})), found.add({Expr(0)}, here.at({}))});
        });
        return seq({found.set({Expr(0)}, Expr(0)), each});
    });
    Stmt write = w.parallel(blocks, [&](const Expr& b) {
        return w.local(DType::i64, {}, [&](const Elements& next) {
            Stmt each = in_block(b, [&](const Expr& i) {
                Stmt put = seq({places.set({next.at({})}, i), next.add({}, Expr(1))});
                return if_then(wanted(i), put);
            });
            return seq({next.set({}, from.at({b})), each});
        });
    });
    return seq({tally, starts, write});
}

Stmt write_non_zero(KernelWriter& w) {
    const Shape& x = w.op().shape(0);
    const int places = w.kept_number(1);
    w.result(0, [=](const Indices& o) {
        Expr rest = load(places, DType::i64, {o[1]}), at = 0;
        for (int64_t d = x.rank() - 1; d >= 0; --d) {
            at = select(eq(o[0], d), d == 0 ? rest : mod(rest, x[d]), at);
            rest = floor_div(rest, x[d]);
        }
        return at;
    });
    Elements from = w.in(0, {x.elements()});
    return find_places(w, x.elements(), [&](const Expr& i) {
        Expr e = from.at({i});
        return e.dtype() == DType::boolean ? e : ne(e, constant(0, e.dtype()));
    });
}

int64_t compressed_axis(const OpView& op) {
    if (!op.has_attr("axis")) return 0;
    return op.integer("axis") < 0 ? op.integer("axis") + op.rank(0) : op.integer("axis");
}

Stmt write_compress(KernelWriter& w) {
    const Shape x = w.op().shape(0);
    const DType dtype = w.op().dtype(0);
    const int64_t axis = compressed_axis(w.op());
    const int places = w.kept_number(1);
    const bool flat = !w.op().has_attr("axis");
    w.result(0, [=](const Indices& o) {
        Expr place = load(places, DType::i64, {o[axis]});
        if (!flat) return load(0, dtype, o.with(axis, place).list());
        std::vector<Expr> at(size_t(x.rank()));
        for (int64_t d = x.rank() - 1; d >= 0; --d) {
            at[size_t(d)] = d == 0 ? place : mod(place, x[d]);
            place = floor_div(place, x[d]);
        }
        return load(0, dtype, at);
    });
    // The op's check has seen that the condition holds nowhere beyond the end.
    Elements condition = w.in(1);
    return find_places(w, w.op().shape(1)[0], [&](const Expr& i) { return condition.at({i}); });
}

}  // namespace

std::vector<KernelWriting> found_kernels() {
    auto in_columns = [](const OpView&) { return std::vector<int64_t>{1}; };
    auto along_axis = [](const OpView& op) { return std::vector<int64_t>{compressed_axis(op)}; };
    return {{"non_zero", write_non_zero, {}, in_columns}, {"compress", write_compress, {1}, along_axis}};
}

}  // namespace tessera
