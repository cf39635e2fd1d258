#include "kernel/sample_computes.h"

#include <cmath>

namespace tessera::sample {
namespace {

const DType f32 = DType::f32;

Expr var(const char* name, const Expr& extent) { return index_var(name, extent.as_int()); }

// Adds buffers and stages in order; intermediates are moved behind the parameters at the end.
struct Maker {
    Compute c;
    std::vector<bool> parameter;

    explicit Maker(std::string name) { c.name = std::move(name); }
    int buffer(std::string name, std::vector<Expr> shape, bool param, bool known = false, DType dtype = f32) {
        for (const Expr& d : shape)
            for (const std::string& s : free_symbols(d))
                if (std::find(c.symbols.begin(), c.symbols.end(), s) == c.symbols.end()) c.symbols.push_back(s);
        c.buffers.push_back({std::move(name), dtype, std::move(shape)});
        parameter.push_back(param);
        c.known.push_back(known);
        return int(c.buffers.size()) - 1;
    }
    int input(std::string name, std::vector<Expr> shape, bool known = false, DType dtype = f32) {
        return buffer(std::move(name), std::move(shape), true, known, dtype);
    }
    int stage(std::string name, bool output, std::vector<ReduceAxis> axes, Expr value,
              std::vector<ReduceAxis> reduce = {}, ReduceOp op = ReduceOp::Sum) {
        std::vector<Expr> shape, store;
        for (const ReduceAxis& a : axes) {
            shape.push_back(a.extent);
            store.push_back(a.var);
        }
        int b = buffer(name, shape, output);
        c.stages.push_back({name, b, std::move(axes), std::move(reduce), op, store, std::move(value)});
        return b;
    }
    Compute done() {
        std::vector<int> order;
        for (bool param : {true, false})
            for (size_t i = 0; i < parameter.size(); ++i)
                if (parameter[i] == param) order.push_back(int(i));
        std::vector<int> now(order.size());
        std::vector<Buffer> buffers;
        std::vector<bool> known;
        for (size_t i = 0; i < order.size(); ++i) {
            now[size_t(order[i])] = int(i);
            buffers.push_back(c.buffers[size_t(order[i])]);
            c.params += parameter[size_t(order[i])];
            if (parameter[size_t(order[i])]) known.push_back(c.known[size_t(order[i])]);
        }
        c.buffers = buffers;
        c.known = known;
        for (Stage& s : c.stages) {
            s.buffer = now[size_t(s.buffer)];
            s.value = rewrite(s.value, [&](const Expr& x) {
                return x.is(ExprKind::Load) ? load(now[size_t(x.node().slot)], x.dtype(), x.args()) : x;
            });
        }
        return c;
    }
};

Expr at(int slot, std::vector<Expr> indices) { return load(slot, f32, std::move(indices)); }
Expr rectified(const Expr& x) { return max(x, constant(0, f32)); }

// x[0, y, x, c] or `outside` beyond its edges.
Expr padded(int slot, int64_t h, int64_t w, const Expr& n, const Expr& y, const Expr& x, const Expr& c,
            const Expr& outside, bool planes = false) {
    Expr inside = logical_and(logical_and(ge(y, 0), lt(y, h)), logical_and(ge(x, 0), lt(x, w)));
    return select(inside, planes ? at(slot, {n, c, y, x}) : at(slot, {n, y, x, c}), outside);
}

}  // namespace

Compute matmul(Expr m, Expr n, Expr k, bool known) {
    Maker make("matmul");
    int a = make.input("a", {m, k}), b = make.input("b", {k, n}, known);
    Expr i = var("i", m), j = var("j", n), l = var("k", k);
    make.stage("c", true, {{i, m}, {j, n}}, at(a, {i, l}) * at(b, {l, j}), {{l, k}});
    return make.done();
}

Compute linear(Expr m, Expr n, Expr k) {
    Maker make("linear");
    int x = make.input("x", {m, k}), w = make.input("w", {n, k}, true), bias = make.input("bias", {n}, true);
    Expr i = var("i", m), j = var("j", n), l = var("k", k), i2 = var("i2", m), j2 = var("j2", n);
    int mm = make.stage("mm", false, {{i, m}, {j, n}}, at(x, {i, l}) * at(w, {j, l}), {{l, k}});
    make.stage("y", true, {{i2, m}, {j2, n}}, rectified(at(mm, {i2, j2}) + at(bias, {j2})));
    return make.done();
}

Compute batched_matmul(Expr b, Expr m, Expr n, Expr k, bool transposed) {
    Maker make("batched_matmul");
    int x = make.input("x", {b, m, k});
    int y = transposed ? make.input("y", {b, n, k}) : make.input("y", {b, k, n});
    Expr h = var("h", b), i = var("i", m), j = var("j", n), l = var("k", k);
    Expr right = transposed ? at(y, {h, j, l}) : at(y, {h, l, j});
    make.stage("z", true, {{h, b}, {i, m}, {j, n}}, at(x, {h, i, l}) * right, {{l, k}});
    return make.done();
}

Compute project_to_heads(Expr batch, Expr length, Expr heads, Expr size, Expr k) {
    Maker make("project_to_heads");
    Expr n = heads * size;
    int x = make.input("x", {batch, length, k}), w = make.input("w", {k, n}, true),
        bias = make.input("bias", {n}, true);
    Expr b = var("b", batch), s = var("s", length), j = var("j", n), l = var("k", k);
    Expr b2 = var("b2", batch), h2 = var("h2", heads), s2 = var("s2", length), d2 = var("d2", size);
    int mm = make.stage("mm", false, {{b, batch}, {s, length}, {j, n}}, at(x, {b, s, l}) * at(w, {l, j}), {{l, k}});
    Expr column = h2 * size + d2;
    make.stage("y", true, {{b2, batch}, {h2, heads}, {s2, length}, {d2, size}},
               at(mm, {b2, s2, column}) + at(bias, {column}));
    return make.done();
}

Compute conv(const ConvSizes& s) {
    Maker make("conv");
    int64_t reach = (s.kernel - 1) * s.dilation + 1;
    int64_t oh = (s.h + 2 * s.pad - reach) / s.stride + 1, ow = (s.w + 2 * s.pad - reach) / s.stride + 1;
    using Shape = std::vector<Expr>;
    int x = make.input("x", s.planes ? Shape{s.n, s.c, s.h, s.w} : Shape{s.n, s.h, s.w, s.c});
    int w = make.input("w", {s.filters, s.c, s.kernel, s.kernel}, true), bias = make.input("bias", {s.filters}, true);
    int extra = s.residual ? make.input("x2", {s.n, oh, ow, s.filters}) : -1;
    Expr n = var("n", s.n), y = var("y", oh), z = var("x", ow), f = var("f", s.filters);
    Expr c = var("c", s.c), p = var("p", s.kernel), q = var("q", s.kernel);
    Expr read = padded(x, s.h, s.w, n, y * s.stride + p * s.dilation - s.pad, z * s.stride + q * s.dilation - s.pad, c,
                       constant(0, f32), s.planes);
    int sum = make.stage("conv", false, {{n, s.n}, {y, oh}, {z, ow}, {f, s.filters}}, read * at(w, {f, c, p, q}),
                         {{c, s.c}, {p, s.kernel}, {q, s.kernel}});
    Expr n2 = var("n2", s.n), y2 = var("y2", oh), z2 = var("x2", ow), f2 = var("f2", s.filters);
    Expr value = at(sum, {n2, y2, z2, f2}) + at(bias, {f2});
    if (s.residual) value = value + at(extra, {n2, y2, z2, f2});
    make.stage("out", true, {{n2, s.n}, {y2, oh}, {z2, ow}, {f2, s.filters}},
               s.swish ? value / (constant(1, f32) + call(Fn::Exp, {-value})) : rectified(value));
    return make.done();
}

Compute grouped_conv(const ConvSizes& s, int64_t groups) {
    Maker make("grouped_conv");
    int64_t reach = (s.kernel - 1) * s.dilation + 1;
    int64_t oh = (s.h + 2 * s.pad - reach) / s.stride + 1, ow = (s.w + 2 * s.pad - reach) / s.stride + 1;
    int x = make.input("x", {s.n, s.h, s.w, groups * s.c});
    int w = make.input("w", {groups * s.filters, s.c, s.kernel, s.kernel}, true);
    int bias = make.input("bias", {groups, s.filters}, true);
    Expr n = var("n", s.n), y = var("y", oh), z = var("x", ow), g = var("g", groups), f = var("f", s.filters);
    Expr c = var("c", s.c), p = var("p", s.kernel), q = var("q", s.kernel);
    Expr read = padded(x, s.h, s.w, n, y * s.stride + p * s.dilation - s.pad, z * s.stride + q * s.dilation - s.pad,
                       g * s.c + c, constant(0, f32));
    int sum = make.stage("conv", false, {{n, s.n}, {y, oh}, {z, ow}, {g, groups}, {f, s.filters}},
                         read * at(w, {g * s.filters + f, c, p, q}), {{c, s.c}, {p, s.kernel}, {q, s.kernel}});
    Expr n2 = var("n2", s.n), y2 = var("y2", oh), z2 = var("x2", ow), g2 = var("g2", groups), f2 = var("f2", s.filters);
    Expr value = at(sum, {n2, y2, z2, g2, f2}) + at(bias, {g2, f2});
    make.stage("out", true, {{n2, s.n}, {y2, oh}, {z2, ow}, {g2, groups}, {f2, s.filters}},
               s.swish ? value / (constant(1, f32) + call(Fn::Exp, {-value})) : rectified(value));
    return make.done();
}

Compute depthwise(int64_t h, int64_t w, int64_t c, int64_t kernel, int64_t stride, int64_t pad, bool swish) {
    Maker make("depthwise");
    int64_t oh = (h + 2 * pad - kernel) / stride + 1, ow = (w + 2 * pad - kernel) / stride + 1;
    int x = make.input("x", {1, h, w, c}), weight = make.input("w", {c, kernel, kernel}, true);
    int bias = make.input("bias", {c}, true);
    Expr n = var("n", 1), y = var("y", oh), z = var("x", ow), d = var("c", c), p = var("p", kernel),
         q = var("q", kernel);
    Expr read = padded(x, h, w, n, y * stride + p - pad, z * stride + q - pad, d, constant(0, f32));
    int sum = make.stage("sum", false, {{n, 1}, {y, oh}, {z, ow}, {d, c}}, read * at(weight, {d, p, q}),
                         {{p, kernel}, {q, kernel}});
    Expr n2 = var("n2", 1), y2 = var("y2", oh), z2 = var("x2", ow), d2 = var("c2", c);
    Expr value = at(sum, {n2, y2, z2, d2}) + at(bias, {d2});
    make.stage("out", true, {{n2, 1}, {y2, oh}, {z2, ow}, {d2, c}},
               swish ? value / (constant(1, f32) + call(Fn::Exp, {-value})) : rectified(value));
    return make.done();
}

Compute max_pool(int64_t h, int64_t w, int64_t c, int64_t kernel, int64_t stride, int64_t pad) {
    Maker make("max_pool");
    int64_t oh = (h + 2 * pad - kernel) / stride + 1, ow = (w + 2 * pad - kernel) / stride + 1;
    int x = make.input("x", {1, h, w, c});
    Expr n = var("n", 1), y = var("y", oh), z = var("x", ow), d = var("c", c), p = var("p", kernel),
         q = var("q", kernel);
    Expr read = padded(x, h, w, n, y * stride + p - pad, z * stride + q - pad, d, infinity(f32, true));
    make.stage("out", true, {{n, 1}, {y, oh}, {z, ow}, {d, c}}, read, {{p, kernel}, {q, kernel}}, ReduceOp::Max);
    return make.done();
}

Compute reduce_last(Expr rows, Expr n, ReduceOp op) {
    Maker make("reduce_last");
    int x = make.input("x", {rows, n});
    Expr i = var("i", rows), j = var("j", n);
    make.stage("y", true, {{i, rows}}, at(x, {i, j}), {{j, n}}, op);
    return make.done();
}

Compute reduce_middle(Expr outer, Expr n, Expr inner) {
    Maker make("reduce_middle");
    int x = make.input("x", {outer, n, inner});
    Expr i = var("i", outer), j = var("j", n), l = var("l", inner), i2 = var("i2", outer), l2 = var("l2", inner);
    int sum = make.stage("sum", false, {{i, outer}, {l, inner}}, at(x, {i, j, l}), {{j, n}});
    make.stage("y", true, {{i2, outer}, {l2, inner}}, at(sum, {i2, l2}) / cast(max(n, 1), f32));
    return make.done();
}

Compute softmax(Expr rows, Expr n) {
    Maker make("softmax");
    int x = make.input("x", {rows, n});
    Expr i = var("i", rows), j = var("j", n), i1 = var("i1", rows), j1 = var("j1", n), i2 = var("i2", rows),
         j2 = var("j2", n), i3 = var("i3", rows), j3 = var("j3", n);
    int largest = make.stage("largest", false, {{i, rows}}, at(x, {i, j}), {{j, n}}, ReduceOp::Max);
    int e = make.stage("e", false, {{i1, rows}, {j1, n}}, call(Fn::Exp, {at(x, {i1, j1}) - at(largest, {i1})}));
    int sum = make.stage("sum", false, {{i2, rows}}, at(e, {i2, j2}), {{j2, n}});
    make.stage("y", true, {{i3, rows}, {j3, n}}, at(e, {i3, j3}) / at(sum, {i3}));
    return make.done();
}

Compute layer_norm(Expr a, Expr b, Expr n) {
    Maker make("layer_norm");
    int x = make.input("x", {a, b, n}), scale = make.input("scale", {n}, true);
    Expr i = var("i", a), j = var("j", b), l = var("l", n), i1 = var("i1", a), j1 = var("j1", b), l1 = var("l1", n),
         i2 = var("i2", a), j2 = var("j2", b), l2 = var("l2", n), i3 = var("i3", a), j3 = var("j3", b),
         l3 = var("l3", n);
    Expr count = cast(n, f32);
    int mean = make.stage("sum", false, {{i, a}, {j, b}}, at(x, {i, j, l}), {{l, n}});
    int d = make.stage("d", false, {{i1, a}, {j1, b}, {l1, n}}, at(x, {i1, j1, l1}) - at(mean, {i1, j1}) / count);
    int square = make.stage("square", false, {{i2, a}, {j2, b}}, at(d, {i2, j2, l2}) * at(d, {i2, j2, l2}), {{l2, n}});
    Expr deviation = call(Fn::Sqrt, {at(square, {i3, j3}) / count + constant(1e-5, f32)});
    make.stage("y", true, {{i3, a}, {j3, b}, {l3, n}}, at(d, {i3, j3, l3}) / deviation * at(scale, {l3}));
    return make.done();
}

Compute add_bias(std::vector<Expr> shape, size_t axis) {
    Maker make("add_bias");
    int x = make.input("x", shape), bias = make.input("bias", {shape[axis]});
    std::vector<ReduceAxis> axes;
    std::vector<Expr> indices;
    for (size_t i = 0; i < shape.size(); ++i) {
        axes.push_back({var(("i" + std::to_string(i)).c_str(), shape[i]), shape[i]});
        indices.push_back(axes.back().var);
    }
    make.stage("y", true, axes, call(Fn::Tanh, {at(x, indices) + at(bias, {indices[axis]})}));
    return make.done();
}

Compute transpose(std::vector<Expr> shape, std::vector<size_t> order) {
    Maker make("transpose");
    int x = make.input("x", shape);
    std::vector<ReduceAxis> axes;
    std::vector<Expr> from(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) {
        axes.push_back({var(("i" + std::to_string(i)).c_str(), shape[order[i]]), shape[order[i]]});
        from[order[i]] = axes.back().var;
    }
    make.stage("y", true, axes, at(x, from));
    return make.done();
}

Compute gather_rows(Expr rows, Expr width, Expr picked) {
    Maker make("gather_rows");
    int x = make.input("x", {rows, width}), which = make.input("which", {picked}, false, DType::i64);
    Expr i = var("i", picked), j = var("j", width);
    make.stage("y", true, {{i, picked}, {j, width}}, at(x, {load(which, DType::i64, {i}), j}));
    return make.done();
}

}  // namespace tessera::sample
