// Every op on inputs and attributes drawn at random, most of them senseless: an error or a result, never a crash.
#include <map>
#include <random>

#include "base/memory.h"
#include "graph/graph.h"
#include "graph/infer.h"
#include "ops/run_op.h"

namespace tessera::test::any_op_test {
namespace {

class Draw {
  public:
    explicit Draw(unsigned seed) : gen_(seed) {}
    int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(gen_); }
    bool chance(int64_t one_in) { return below(one_in) == 0; }

    int64_t number() {
        static constexpr int64_t kOdd[] = {INT64_MIN, INT64_MAX, -1, 0, 1 << 20, int64_t{1} << 32, int64_t{1} << 62};
        return chance(6) ? kOdd[below(std::size(kOdd))] : below(6) - 2;
    }
    double real() {
        static constexpr double kOdd[] = {NAN, INFINITY, -INFINITY, 0, 1e30, -1e-30, 1e9};
        return chance(6) ? kOdd[below(std::size(kOdd))] : double(below(9) - 4) / 2;
    }
    std::string word() {
        static constexpr const char* kWords[] = {
            "",
            "NOTSET",
            "SAME_UPPER",
            "SAME_LOWER",
            "VALID",
            "linear",
            "cubic",
            "nearest",
            "floor",
            "ceil",
            "reflect",
            "edge",
            "wrap",
            "constant",
            "zeros",
            "border",
            "avg",
            "max",
            "add",
            "mul",
            "bidirectional",
            "reverse",
            "Tanh",
            "Relu",
            "ij,jk",
            "...i",
            "ii->i",
            "not_larger",
            "half_pixel",
            "gated_delta",
            "delta",
            "LEFT",
            "mean",
            "none",
            "sum",
            "DCR",
            "align_corners",
            "tf_crop_and_resize",
            "RGB",
            "\xff\xfe",
        };
        return kWords[below(std::size(kWords))];
    }
    DType dtype() {
        static constexpr DType kUsual[] = {DType::f32,     DType::i64, DType::f16,   DType::u8,
                                           DType::boolean, DType::i32, DType::string};
        return chance(4) ? DType(below(kDTypeCount)) : chance(2) ? DType::f32 : kUsual[below(std::size(kUsual))];
    }
    Sizes sizes(int64_t rank) {
        Sizes s;
        for (int64_t i = 0; i < rank; ++i) s.push_back(chance(12) ? 0 : 1 + below(4));
        return s;
    }
    Tensor tensor(DType t, Sizes sizes) {
        Tensor x = *Tensor::zeros(t, std::move(sizes));
        for (int64_t i = 0; i < x.elements(); ++i) {
            if (t == DType::string)
                x.mutable_strings()[size_t(i)] = word();
            else if (is_float(t))
                x.set_real(i, real());
            else if (!is_complex(t))
                x.set_int(i, number());
        }
        return x;
    }
    template <typename T, typename F>
    std::vector<T> list(F f) {
        std::vector<T> v(size_t(below(5)));
        for (T& x : v) x = T(f());
        return v;
    }
    std::optional<Attr> attr(const AttrDef& def) {
        switch (def.kind) {
            case AttrKind::Int: return Attr(chance(2) ? below(3) : number());
            case AttrKind::Float: return Attr(float(real()));
            case AttrKind::String: return Attr(word());
            case AttrKind::Ints:
                return Attr(chance(2) ? list<int64_t>([&] { return 1 + below(2); })
                                      : list<int64_t>([&] { return number(); }));
            case AttrKind::Floats: return Attr(list<float>([&] { return real(); }));
            case AttrKind::Strings: return Attr(list<std::string>([&] { return word(); }));
            case AttrKind::Tensor: return Attr(tensor(dtype(), sizes(below(3))));
            case AttrKind::Type: return Attr(Type(dtype(), Shape(sizes(below(3)))));
            case AttrKind::Graph: return Attr(std::make_shared<Graph>("empty"));
        }
        return std::nullopt;
    }
    // A tensor that the parameter may accept, of a rank that the inputs before it had as often as not.
    Tensor input(const OpDef& op, const ParamDef& p, std::map<std::string, DType>& bound, int64_t& rank) {
        DType t = dtype();
        if (auto fixed = dtype_from_name(p.type)) t = *fixed;
        for (const TypeVar& var : op.types) {
            if (var.name != p.type) continue;
            for (int i = 0; i < 50 && !var.allowed.has(t); ++i) t = dtype();
            t = bound.emplace(p.type, t).first->second;
        }
        if (chance(20)) t = dtype();
        if (chance(2)) rank = below(6);
        return tensor(t, sizes(rank));
    }

  private:
    std::mt19937 gen_;
};

TEST(AnyOp, SurvivesNonsense) {
    int64_t before = memory_limit();
    set_memory_limit(int64_t{1} << 28);
    EvaluateOptions options;
    options.max_work = 1 << 20;
    int succeeded = 0;
    for (const OpDef* op : all_ops())
        for (unsigned round = 0; round < 60; ++round) {
            Draw draw(round * 7919 + unsigned(op->name.size() * 131 + op->name[0]));
            Given inputs;
            std::map<std::string, DType> bound;
            int64_t rank = draw.below(6);
            for (const ParamDef& p : op->inputs) {
                int64_t count = p.variadic ? draw.below(4) : 1;
                for (int64_t i = 0; i < count; ++i) {
                    if (p.optional && draw.chance(2))
                        inputs.push_back(std::nullopt);
                    else
                        inputs.push_back(draw.input(*op, p, bound, rank));
                }
            }
            AttrMap attrs;
            for (const AttrDef& def : op->attrs)
                if (def.is_required || draw.chance(3))
                    if (auto a = draw.attr(def)) attrs[def.name] = *a;
            size_t outputs = 1 + size_t(draw.below(int64_t(op->outputs.size()) + 1));
            SCOPED_TRACE(fmt::format("{} round {}", op->name, round));
            // As a node whose sizes are not known, too.
            std::vector<Type> types;
            for (const auto& in : inputs) {
                if (!in)
                    types.emplace_back();
                else if (draw.chance(4))
                    types.emplace_back(in->tensor().dtype(), Shape::unknown());
                else {
                    Shape s(in->tensor().sizes());
                    for (int64_t d = 0; d < s.rank(); ++d)
                        if (draw.chance(3)) s[d] = symbol(fmt::format("N{}", draw.below(3)));
                    types.emplace_back(in->tensor().dtype(), s);
                }
            }
            OpView view(*op, attrs, types, outputs);
            (void)infer_types(view);
            succeeded += evaluate_op(*op, inputs, attrs, outputs, options).ok();
        }
    set_memory_limit(before);
    EXPECT_GT(succeeded, 500);
}

}  // namespace
}  // namespace tessera::test::any_op_test
