// Matrices. Determinants, by elimination with row exchanges in f64: each matrix by itself.
#include "kernel/written/write_block_product.h"

namespace tessera {
namespace {

class Det {
  public:
    explicit Det(KernelWriter& w) : w_(w), n_(w.op().shape(0)[-1]) {
        const Shape& x = w.op().shape(0);
        count_ = elements_between(x, 0, x.rank() - 2);
        x_ = w.in(0, {count_, n_, n_});
        y_ = w.out(0, {count_});
    }

    Stmt write() {
        return w_.parallel(count_, [&](const Expr& i) {
            return w_.local(DType::f64, {n_, n_}, [&](const Elements& m) {
                m_ = m;
                return w_.local(DType::i64, {}, [&](const Elements& pivot) {
                    pivot_ = pivot;
                    return w_.local(DType::f64, {}, [&](const Elements& det) {
                        det_ = det;
                        return w_.local(DType::f64, {}, [&](const Elements& spare) {
                            spare_ = spare;
                            return w_.local(DType::i64, {}, [&](const Elements& regular) {
                                regular_ = regular;
                                return one(i);
                            });
                        });
                    });
                });
            });
        });
    }

  private:
    Stmt one(const Expr& i) {
        return seq({
            w_.loop(n_,
                    [&](const Expr& r) {
                        return w_.loop(n_, [&](const Expr& c) { return m_.set({r, c}, x_.at({i, r, c})); });
                    }),
            det_.set({}, real_const(1)),
            regular_.set({}, Expr(1)),
            w_.loop(n_, [&](const Expr& c) { return if_then(eq(regular_.at({}), 1), column(c)); }),
            y_.set({i}, det_.at({})),
        });
    }

    Stmt column(const Expr& c) {
        Expr pivot = pivot_.at({});
        auto size = [&](const Expr& r) { return call(Fn::Abs, {m_.at({r, c})}); };
        Stmt find = w_.loop(n_ - c - 1, [&](const Expr& i) {
            Expr r = c + 1 + i;
            return if_then(gt(size(r), size(pivot)), pivot_.set({}, r));
        });
        Stmt exchange = if_then(ne(pivot, c), seq({w_.loop(n_,
                                                           [&](const Expr& j) {
                                                               return seq({
                                                                   spare_.set({}, m_.at({pivot, j})),
                                                                   m_.set({pivot, j}, m_.at({c, j})),
                                                                   m_.set({c, j}, spare_.at({})),
                                                               });
                                                           }),
                                                   det_.set({}, -det_.at({}))}));
        Stmt eliminate = w_.loop(n_ - c - 1, [&](const Expr& i) {
            Expr r = c + 1 + i;
            return seq({spare_.set({}, m_.at({r, c}) / m_.at({c, c})), w_.loop(n_ - c, [&](const Expr& k) {
                            Expr j = c + k;
                            return m_.set({r, j}, m_.at({r, j}) - spare_.at({}) * m_.at({c, j}));
                        })});
        });
        return seq({
            pivot_.set({}, c),
            find,
            exchange,
            det_.set({}, det_.at({}) * m_.at({c, c})),
            if_then(eq(m_.at({c, c}), real_const(0)), regular_.set({}, Expr(0)), eliminate),
        });
    }

    KernelWriter& w_;
    const Expr n_;
    Expr count_;
    Elements x_, y_, m_, pivot_, det_, spare_, regular_;
};

Stmt write_det(KernelWriter& w) { return Det(w).write(); }

}  // namespace

std::vector<KernelWriting> matrix_kernels() {
    return {
        {"det", write_det}, {"nibble_product", write_block_product}, {"nibble_product_of_bytes", write_block_product}};
}

}  // namespace tessera
