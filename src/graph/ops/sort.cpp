// Ops that order or select by value: top_k, unique, non_zero. Their results depend on all elements at once.
#include <algorithm>
#include <complex>
#include <numeric>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/tensor_slices.h"

namespace tessera {
namespace {

template <typename T>
int sign_of_difference(const T& a, const T& b) {
    return a < b ? -1 : b < a ? 1 : 0;
}

// NaN is the largest value, and equal to itself.
int compare_reals(double a, double b) {
    if (a != a || b != b) return sign_of_difference(a != a, b != b);
    return sign_of_difference(a, b);
}

// Negative, zero or positive as element i of the tensor is less than, equal to or greater than element j.
int compare_elements(const Tensor& t, int64_t i, int64_t j) {
    DType dtype = t.dtype();
    if (dtype == DType::string) return sign_of_difference(t.as_strings()[i], t.as_strings()[j]);
    if (is_float(dtype)) return compare_reals(t.real_at(i), t.real_at(j));
    if (dtype == DType::u64) return sign_of_difference(uint64_t(t.int_at(i)), uint64_t(t.int_at(j)));
    if (!is_complex(dtype)) return sign_of_difference(t.int_at(i), t.int_at(j));
    auto part = [&](int64_t k) {
        return dtype == DType::c64 ? static_cast<const float*>(t.data())[k] : static_cast<const double*>(t.data())[k];
    };
    int real = compare_reals(part(2 * i), part(2 * j));
    return real ? real : compare_reals(part(2 * i + 1), part(2 * j + 1));
}

// ---- top_k

Status k_to_input(OnnxCall& call) {
    auto it = call.attrs.find("k");
    if (it == call.attrs.end() || !std::holds_alternative<int64_t>(it->second))
        return Error(Code::E0206, "{}: k must be an integer", call.op_type);
    call.set_input(1, call.build.ints({std::get<int64_t>(it->second)}));
    call.attrs.erase(it);
    return call.build.status();
}

Status k_to_attr(OnnxCall& call) {
    if (!call.has(1) || !call.inputs[1]->is_constant() || call.inputs[1]->tensor()->elements() != 1)
        return Error(Code::E0214, "{}: k is computed, but was an attribute before opset 10", call.op_type);
    call.attrs["k"] = call.inputs[1]->tensor()->int_at(0);
    call.inputs.resize(1);
    return {};
}

const OpDef kTopK{
    .name = "top_k",
    .inputs = {"x: T", "k: i64"},
    .outputs = {"values: T", "indices: i64"},
    .attrs = {int_attr("axis", -1), int_attr("largest", 1), int_attr("sorted", 1)},
    .types = {{"T", kNumbers}},
    .onnx = {"TopK",
             {{10, k_to_input, k_to_attr},
              attr_added(11, "largest", Attr(int64_t{1})),
              attr_added(11, "sorted", Attr(int64_t{1}))}},
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y = op.shape(0);
        int64_t axis = TRY(op.axis(op.integer("axis"), y.rank()));
        if (op.shape(1).elements().as_int().value_or(1) != 1)
            return op.shape_error("k must be one number, is {}", op.shape(1));
        auto k = op.contents(1);
        Dim kept = k && k->size() == 1 ? (*k)[0] : op.fresh(0, axis);
        if (auto n = kept.as_int(); n && *n < 0) return op.shape_error("k is {}, expected a number of at least 0", *n);
        if (auto n = kept.as_int(); n && y[axis].as_int() && *n > *y[axis].as_int())
            return op.shape_error("k is {}, but axis {} of {} has fewer elements", *n, axis, y);
        y[axis] = kept;
        return Types{Type(op.dtype(0), y), Type(DType::i64, y)};
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        int64_t axis = TRY(op.axis(op.integer("axis"), x.rank())), extent = x.size(axis), k = ctx.tensor(1).int_at(0);
        bool largest = op.integer("largest");
        Sizes sizes = x.sizes();
        sizes[axis] = k;
        Tensor values = TRY(Tensor::zeros(x.dtype(), sizes)), indices = TRY(Tensor::zeros(DType::i64, sizes));
        TRY(ctx.spend(x.elements() * 32));
        int64_t inner = 1;
        for (int64_t d = axis + 1; d < x.rank(); ++d) inner *= x.size(d);
        std::vector<int64_t> order(extent);
        auto where = indices.mutable_as<int64_t>();
        for (int64_t lane = 0; extent > 0 && lane < x.elements() / extent; ++lane) {
            int64_t outer = lane / inner, base = outer * extent * inner + lane % inner;
            std::iota(order.begin(), order.end(), 0);
            std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
                int c = compare_elements(x, base + a * inner, base + b * inner);
                return c ? (largest ? c > 0 : c < 0) : a < b;
            });
            for (int64_t i = 0; i < k; ++i) {
                int64_t to = (outer * k + i) * inner + lane % inner;
                copy_elements(x, base + order[i] * inner, values, to, 1);
                where[to] = order[i];
            }
        }
        return std::vector<Datum>{values, indices};
    },
    .canonical = axis_from_front,
    .gradient = [](const Backward& r) -> Gradients {
        Value* indices = r.outs.size() > 1 ? r.outs[1] : r.b.ops("top_k", r.in, r.node.attrs(), 2)[1];
        Value* zeros = r.b.op("expand", {r.number(0), r.shape_of(0)});
        return {r.b.op("scatter_elements", {zeros, indices, r.g},
                       {{"axis", Attr(r.node.view().integer("axis"))}, {"reduction", Attr(std::string("add"))}}),
                nullptr};
    },
};

// ---- unique

const OpDef kUnique{
    .name = "unique",
    .inputs = {"x: T"},
    .outputs = {"y: T", "indices: i64", "inverse: i64", "counts: i64"},
    .attrs = {int_attr("axis"), int_attr("sorted", 1)},
    .types = {{"T", kAllTypes}},
    .onnx = "Unique",
    .infer = [](const OpView& op) -> Result<Types> {
        Dim found = op.fresh(0, 0), all = op.shape(0).elements();
        Shape y{found};
        if (op.has_attr("axis")) {
            int64_t axis = TRY(op.axis(op.integer("axis"), op.rank(0)));
            all = op.shape(0)[axis];
            y = op.shape(0);
            y[axis] = found = op.fresh(0, axis);
        }
        return Types{Type(op.dtype(0), y), Type(DType::i64, {found}), Type(DType::i64, {all}),
                     Type(DType::i64, {found})};
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        Tensor x = ctx.tensor(0);
        int64_t axis = 0;
        if (op.has_attr("axis"))
            axis = TRY(op.axis(op.integer("axis"), x.rank()));
        else
            x = x.reshaped({x.elements()});
        int64_t extent = x.size(axis), inner = 1, outer = 1;
        for (int64_t d = 0; d < x.rank(); ++d) (d < axis ? outer : inner) *= d == axis ? 1 : x.size(d);
        TRY(ctx.spend((x.elements() + extent) * 32));
        auto compare = [&](int64_t a, int64_t b) {
            for (int64_t i = 0; i < outer; ++i)
                for (int64_t j = 0; j < inner; ++j)
                    if (int c = compare_elements(x, (i * extent + a) * inner + j, (i * extent + b) * inner + j))
                        return c;
            return 0;
        };
        std::vector<int64_t> order(extent);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
        // Groups of equal slices; the first of each is the one that occurs first.
        std::vector<int64_t> first, counts, group(extent);
        for (int64_t i = 0; i < extent; ++i) {
            if (i == 0 || compare(order[i - 1], order[i]) != 0) {
                first.push_back(order[i]);
                counts.push_back(0);
            }
            group[order[i]] = int64_t(first.size()) - 1;
            ++counts.back();
        }
        std::vector<int64_t> rank(first.size()), place(first.size());
        std::iota(rank.begin(), rank.end(), 0);
        if (!op.integer("sorted"))
            std::sort(rank.begin(), rank.end(), [&](int64_t a, int64_t b) { return first[a] < first[b]; });
        std::vector<int64_t> indices, tally;
        for (size_t i = 0; i < rank.size(); ++i) {
            place[rank[i]] = i;
            indices.push_back(first[rank[i]]);
            tally.push_back(counts[rank[i]]);
        }
        for (int64_t& g : group) g = place[g];
        int64_t found = indices.size();
        std::vector<Datum> out;
        out.push_back(TRY(pick(x, axis, indices)));
        out.push_back(TRY(tensor_of_ints({found}, indices)));
        out.push_back(TRY(tensor_of_ints({extent}, group)));
        out.push_back(TRY(tensor_of_ints({found}, tally)));
        return out;
    },
};

// ---- non_zero

bool is_zero(const Tensor& t, int64_t i) {
    if (t.dtype() == DType::string) return t.as_strings()[i].empty();
    if (is_float(t.dtype())) return t.real_at(i) == 0;
    if (t.dtype() == DType::c64) return t.as<std::complex<float>>()[i] == std::complex<float>(0);
    if (t.dtype() == DType::c128) return t.as<std::complex<double>>()[i] == std::complex<double>(0);
    return t.int_at(i) == 0;
}

const OpDef kNonZero{
    .name = "non_zero",
    .inputs = {"x: T"},
    .outputs = {"y: i64"},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "NonZero",
    .infer = [](const OpView& op) -> Result<Types> {
        return Type(DType::i64, {op.shape(0).ranked() ? Dim(op.rank(0)) : op.fresh(0, 0), op.fresh(0, 1)});
    },
    .evaluate = [](const OpView&, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        TRY(ctx.spend(x.elements() * (x.rank() + 1)));
        std::vector<int64_t> found;
        for (int64_t i = 0; i < x.elements(); ++i)
            if (!is_zero(x, i)) found.push_back(i);
        int64_t count = found.size();
        Tensor y = TRY(Tensor::zeros(DType::i64, {x.rank(), count}));
        auto out = y.mutable_as<int64_t>();
        for (int64_t k = 0; k < count; ++k) {
            int64_t rest = found[k];
            for (int64_t d = x.rank() - 1; d >= 0; --d) {
                out[d * count + k] = rest % x.size(d);
                rest /= x.size(d);
            }
        }
        return std::vector<Datum>{y};
    },
};

}  // namespace

std::vector<OpDef> sort_ops() {
    return {kTopK, without_gradient(kUnique, "how many elements are equal changes in steps"), kNonZero};
}

}  // namespace tessera
