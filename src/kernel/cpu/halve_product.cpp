// Strassen's products, tile by tile. His own form has one sum more than Winograd's on either side, and a smaller error,
// since no sum is made of sums.
#include <algorithm>

#include "base/check.h"
#include "kernel/cpu/halved_product.h"

namespace tessera {
namespace {

using Grid = std::vector<std::vector<Expr>>;  // of blocks, by row and column

Grid quarter(const Grid& g, size_t row, size_t column) {
    const size_t half = g.size() / 2;
    Grid part(half);
    for (size_t i = 0; i < half; ++i)
        for (size_t j = 0; j < half; ++j) part[i].push_back(g[row * half + i][column * half + j]);
    return part;
}

template <typename F>
Grid combined(const Grid& a, const Grid& b, F f) {
    Grid made(a.size());
    for (size_t i = 0; i < a.size(); ++i)
        for (size_t j = 0; j < a.size(); ++j) made[i].push_back(f(a[i][j], b[i][j]));
    return made;
}
Grid operator+(const Grid& a, const Grid& b) {
    return combined(a, b, [](const Expr& x, const Expr& y) { return x + y; });
}
Grid operator-(const Grid& a, const Grid& b) {
    return combined(a, b, [](const Expr& x, const Expr& y) { return x - y; });
}

std::vector<Expr> first_factors(const Grid& a) {
    if (a.size() == 1) return {a[0][0]};
    const Grid a1 = quarter(a, 0, 0), a2 = quarter(a, 0, 1), a3 = quarter(a, 1, 0), a4 = quarter(a, 1, 1);
    std::vector<Expr> all;
    for (const Grid& part : {a1 + a4, a3 + a4, a1, a4, a1 + a2, a3 - a1, a2 - a4})
        for (const Expr& e : first_factors(part)) all.push_back(e);
    return all;
}

std::vector<Expr> second_factors(const Grid& b) {
    if (b.size() == 1) return {b[0][0]};
    const Grid b1 = quarter(b, 0, 0), b2 = quarter(b, 0, 1), b3 = quarter(b, 1, 0), b4 = quarter(b, 1, 1);
    std::vector<Expr> all;
    for (const Grid& part : {b1 + b4, b1, b2 - b4, b3 - b1, b4, b1 + b2, b3 + b4})
        for (const Expr& e : second_factors(part)) all.push_back(e);
    return all;
}

// The blocks of the result.
Grid results(const std::vector<Expr>& products) {
    if (products.size() == 1) return {{products[0]}};
    const std::ptrdiff_t each = std::ptrdiff_t(products.size() / 7);
    std::vector<Grid> p;
    for (std::ptrdiff_t i = 0; i < 7; ++i)
        p.push_back(results({products.begin() + i * each, products.begin() + (i + 1) * each}));
    const Grid c1 = p[0] + p[3] - p[4] + p[6], c2 = p[2] + p[4];
    const Grid c3 = p[1] + p[3], c4 = p[0] - p[1] + p[2] + p[5];
    Grid all;
    for (const auto& [left, right] : {std::pair(c1, c2), std::pair(c3, c4)})
        for (size_t i = 0; i < left.size(); ++i) {
            all.push_back(left[i]);
            all.back().insert(all.back().end(), right[i].begin(), right[i].end());
        }
    return all;
}

Expr chosen(const Expr& index, const std::vector<Expr>& values) {
    Expr e = values.back();
    for (size_t i = values.size() - 1; i-- > 0;) e = select(eq(index, int64_t(i)), values[i], e);
    return e;
}

Expr flat_index(const Stage& stage, const std::vector<int>& axes) {
    Expr index = 0;
    for (int i : axes) index = index * stage.axes[size_t(i)].extent + stage.axes[size_t(i)].var;
    return index;
}

// The values of axes at an index into all of them.
void bind_flat(const std::vector<ReduceAxis>& all, const std::vector<int>& axes, const Expr& index, Bindings& at) {
    Expr inner = 1;
    for (size_t i = axes.size(); i-- > 0;) {
        const ReduceAxis& axis = all[size_t(axes[i])];
        Expr value = floor_div(index, inner);
        auto larger = [&](int j) { return !all[size_t(j)].extent.is_int(1); };
        if (std::any_of(axes.begin(), axes.begin() + std::ptrdiff_t(i), larger)) value = mod(value, axis.extent);
        at.insert_or_assign(axis.var.node().name, axis.extent.is_int(1) ? Expr(0) : value);
        inner = inner * axis.extent;
    }
}

int64_t elements(const std::vector<ReduceAxis>& all, const std::vector<int>& axes) {
    int64_t n = 1;
    for (int i : axes) n *= *all[size_t(i)].extent.as_int();
    return n;
}

class Halving {
  public:
    Halving(const Compute& compute, const std::string& stage, const Contraction& c, const HalvedTiles& tiles)
        : tiles_(tiles), c_(c), parts_(tiles.parts()) {
        made_.compute = compute;
        stage_ = compute.stages[find(stage)];
        dtype_ = stage_.value.dtype();
        rows_ = elements(stage_.axes, c.rows);
        columns_ = elements(stage_.axes, c.columns);
        depth_ = elements(stage_.reduce, c.depth) / parts_;
        p_ = axis("p", tiles.products());
        t_ = axis("t", blocks(rows_, tiles.mr));
        j_ = axis("j", blocks(columns_, tiles.nr));
        k_ = axis("k", depth_);
        i_ = axis("i", tiles.mr);
        n_ = axis("n", tiles.nr);
    }

    HalvedStages run() {
        const Stage a = first(), b = second();
        const Expr left = load(a.buffer, dtype_, {p_.var, t_.var, k_.var, i_.var});
        const Expr right = load(b.buffer, dtype_, {p_.var, j_.var, k_.var, n_.var});
        const Stage products = add("products", {p_, t_, j_, i_, n_}, {k_}, left * right);
        const Expr row = flat_index(stage_, c_.rows), column = flat_index(stage_, c_.columns);
        const int64_t mr = tiles_.mr, nr = tiles_.nr;
        std::vector<Expr> all, by_row;
        for (int64_t p = 0; p < tiles_.products(); ++p)
            all.push_back(
                load(products.buffer, dtype_,
                     {p, floor_div(row, parts_ * mr), floor_div(column, parts_ * nr), mod(row, mr), mod(column, nr)}));
        for (const std::vector<Expr>& line : results(all))
            by_row.push_back(chosen(mod(floor_div(column, nr), parts_), line));
        Stage& out = made_.compute.stages[find(stage_.name)];
        out.reduce.clear();
        out.value = chosen(mod(floor_div(row, mr), parts_), by_row);
        made_.a = a.name;
        made_.b = b.name;
        made_.products = products.name;
        return std::move(made_);
    }

  private:
    static ReduceAxis axis(const char* name, int64_t extent) { return {index_var(name, extent), extent}; }
    int64_t blocks(int64_t extent, int64_t tile) const { return (extent + parts_ * tile - 1) / (parts_ * tile); }

    size_t find(const std::string& name) const {
        const auto& all = made_.compute.stages;
        auto found = std::find_if(all.begin(), all.end(), [&](const Stage& s) { return s.name == name; });
        CHECK(found != all.end());
        return size_t(found - all.begin());
    }

    Stage add(const std::string& name, std::vector<ReduceAxis> axes, std::vector<ReduceAxis> reduce, Expr value) {
        Stage s;
        s.name = stage_.name + "_" + name;
        s.buffer = int(made_.compute.buffers.size());
        Buffer buffer;
        buffer.name = s.name;
        buffer.dtype = dtype_;
        for (const ReduceAxis& a : axes) {
            s.store.push_back(a.var);
            buffer.shape.push_back(a.extent);
        }
        made_.compute.buffers.push_back(std::move(buffer));
        s.axes = std::move(axes);
        s.reduce = std::move(reduce);
        s.value = std::move(value);
        made_.compute.stages.insert(made_.compute.stages.begin() + std::ptrdiff_t(find(stage_.name)), s);
        return s;
    }

    // Zero beyond the last row or column.
    Expr within(const Expr& index, const ReduceAxis& blocks, int64_t tile, int64_t extent, const Expr& value) const {
        if (*blocks.extent.as_int() * parts_ * tile == extent) return value;
        return select(lt(index, extent), value, constant(0, dtype_));
    }

    Stage first() {
        const ReduceAxis h = axis("h", parts_), g = axis("g", parts_);
        const Expr row = (t_.var * parts_ + h.var) * tiles_.mr + i_.var;
        Bindings at;
        bind_flat(stage_.axes, c_.rows, row, at);
        bind_flat(stage_.reduce, c_.depth, g.var * depth_ + k_.var, at);
        const Expr value = within(row, t_, tiles_.mr, rows_, substitute(stage_.value.arg(size_t(c_.a)), at));
        const Stage blocks = add("blocks", {h, g, t_, k_, i_}, {}, value);
        made_.blocks = blocks.name;
        Grid grid;
        grid.resize(size_t(parts_));
        for (int64_t y = 0; y < parts_; ++y)
            for (int64_t x = 0; x < parts_; ++x)
                grid[size_t(y)].push_back(load(blocks.buffer, dtype_, {y, x, t_.var, k_.var, i_.var}));
        return add("a", {p_, t_, k_, i_}, {}, chosen(p_.var, first_factors(grid)));
    }

    Stage second() {
        Grid grid;
        grid.resize(size_t(parts_));
        for (int64_t y = 0; y < parts_; ++y)
            for (int64_t x = 0; x < parts_; ++x) {
                const Expr column = (j_.var * parts_ + x) * tiles_.nr + n_.var;
                Bindings at;
                bind_flat(stage_.axes, c_.columns, column, at);
                bind_flat(stage_.reduce, c_.depth, k_.var + y * depth_, at);
                const Expr value = substitute(stage_.value.arg(size_t(c_.b)), at);
                grid[size_t(y)].push_back(within(column, j_, tiles_.nr, columns_, value));
            }
        return add("b", {p_, j_, k_, n_}, {}, chosen(p_.var, second_factors(grid)));
    }

    const HalvedTiles& tiles_;
    const Contraction& c_;
    const int64_t parts_;
    HalvedStages made_;
    Stage stage_;
    DType dtype_ = DType::f32;
    int64_t rows_ = 1, columns_ = 1, depth_ = 1;  // of a part
    ReduceAxis p_, t_, j_, k_, i_, n_;
};

}  // namespace

HalvedStages halve_product(const Compute& compute, const std::string& stage, const Contraction& c,
                           const HalvedTiles& tiles) {
    return Halving(compute, stage, c, tiles).run();
}

}  // namespace tessera
