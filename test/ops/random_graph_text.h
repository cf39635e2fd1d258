// Random graphs in text form, of matrices and of ops that have gradients: the same for the same seed.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/random.h"

namespace tessera::test {

class RandomGraphText {
  public:
    RandomGraphText(uint64_t seed, const char* dtype) : random_(seed, "graphs"), dtype_(dtype) {}

    // Of `count` ops; one output, which nothing makes large.
    std::string make(int count) {
        std::string inputs;
        for (int i = 0; i < 3; ++i) {
            const Matrix m{fmt::format("x{}", i), 1 + pick(4), 1 + pick(5)};
            inputs += fmt::format("{}{}: {}[{},{}]", i ? ", " : "", m.name, dtype_, m.rows, m.columns);
            all_.push_back(m);
        }
        for (int i = 0; i < count; ++i) add();
        std::string sum = "reduce_mean(tanh(%" + all_.back().name + "), keepdims=0)";
        for (size_t i = all_.size() - 1; i-- > all_.size() - 3;)
            sum = "add(" + sum + ", reduce_mean(tanh(%" + all_[i].name + "), keepdims=0))";
        return "graph g(" + inputs + ") {\n" + body_ + "  return " + sum + "\n}";
    }

  private:
    struct Matrix {
        std::string name;
        int rows, columns;
    };

    int pick(int n) { return int(random_.bits(next_++) % uint64_t(n)); }
    const Matrix& any() {
        const int n = int(all_.size());
        return all_[size_t(pick(2) ? n - 1 - pick(std::min(n, 4)) : pick(n))];
    }

    void define(int rows, int columns, const std::string& call) {
        const std::string name = fmt::format("v{}", all_.size());
        body_ += fmt::format("  %{} = {}\n", name, call);
        all_.push_back({name, rows, columns});
    }

    void add() {
        const Matrix a = any();
        const std::string x = "%" + a.name;
        static const std::vector<std::string> kUnary = {"tanh", "sigmoid", "sin",  "gelu", "relu", "softplus",
                                                        "erf",  "swish",   "mish", "elu",  "abs",  "neg"};
        switch (pick(14)) {
            case 0:
            case 1: return define(a.rows, a.columns, kUnary[size_t(pick(int(kUnary.size())))] + "(" + x + ")");
            case 2: return define(a.rows, a.columns, "softmax(" + x + fmt::format(", axis={})", pick(2)));
            case 3: return define(a.columns, a.rows, "transpose(" + x + ", perm=[1,0])");
            case 4: return define(a.rows, 1, fmt::format("reduce_{}({}, [1])", pick(2) ? "mean" : "max", x));
            case 5: return define(1, a.columns, fmt::format("reduce_{}({}, [0])", pick(2) ? "sum" : "l2", x));
            case 6: {
                const int from = pick(a.rows), to = from + 1 + pick(a.rows - from);
                return define(to - from, a.columns, fmt::format("slice({}, [{}], [{}], [0])", x, from, to));
            }
            case 7: {
                const int left = pick(2), right = pick(3);
                return define(a.rows, a.columns + left + right, fmt::format("pad({}, [0,{},0,{}])", x, left, right));
            }
            case 8: {
                const int i = pick(a.rows), k = pick(a.rows);
                return define(3, a.columns, fmt::format("gather({}, [{},{},{}])", x, i, k, i));
            }
            case 9:
                return define(a.rows, a.columns,
                              fmt::format("squeeze(conv(unsqueeze({}, [0,1]), [[[[0.5,-0.25,0.125],[0.25,1.0,0.5],"
                                          "[-0.5,0.25,0.75]]]], pads=[1,1,1,1]), [0,1])",
                                          x));
            case 10:
                return define((a.rows + 1) / 2, a.columns,
                              fmt::format("squeeze(average_pool(unsqueeze({}, [0,1]), kernel_shape=[2,1], "
                                          "strides=[2,1], pads=[0,0,{},0]), [0,1])",
                                          x, a.rows % 2));
            case 11: {
                const Matrix b = any();
                if (b.columns == a.columns)
                    return define(a.rows + b.rows, a.columns, fmt::format("concat({}, %{}, axis=0)", x, b.name));
                return define(a.rows * a.columns, 1, fmt::format("reshape({}, [-1,1])", x));
            }
            case 12: {
                const Matrix b = any();
                if (b.rows == a.columns) return define(a.rows, b.columns, fmt::format("matmul({}, %{})", x, b.name));
                return define(a.rows, a.rows, fmt::format("matmul({}, transpose({}, perm=[1,0]))", x, x));
            }
            default: {
                const Matrix b = any();
                auto fits = [](int p, int q) { return p == q || p == 1 || q == 1; };
                if (!fits(a.rows, b.rows) || !fits(a.columns, b.columns))
                    return define(a.rows, a.columns, fmt::format("mul({}, {})", x, x));
                const char* names[] = {"add", "sub", "mul", "max"};
                return define(std::max(a.rows, b.rows), std::max(a.columns, b.columns),
                              fmt::format("{}({}, %{})", names[pick(4)], x, b.name));
            }
        }
    }

    RandomStream random_;
    uint64_t next_ = 0;
    const char* dtype_;
    std::string body_;
    std::vector<Matrix> all_;
};

}  // namespace tessera::test
