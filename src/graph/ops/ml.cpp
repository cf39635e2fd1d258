// The domain ai.onnx.ml: features, labels and trees.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/numeric.h"
#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/forest.h"

namespace tessera {
namespace {

constexpr const char* kDomain = "ai.onnx.ml";

OnnxForm ml_form(const char* name, std::vector<OnnxChange> changes = {}) {
    OnnxForm form(name, std::move(changes));
    form.domain = kDomain;
    return form;
}

const OpDef kArrayFeatureExtractor{
    .name = "array_feature_extractor",
    .inputs = {"x: T", "y: i64"},
    .outputs = {"z: T"},
    .types = {{"T", kAllTypes}},
    .onnx = ml_form("ArrayFeatureExtractor"),
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        if (x.rank() < 1) return op.shape_error("needs at least one dimension, has {}", x);
        Shape z = x.rank() == 1 ? Shape{1} : x.slice(0, x.rank() - 1);
        z.push_back(op.shape(1).elements());
        return op.like(0, z);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto x = op.in(0), y = op.in(1);
            std::vector<Expr> at(size_t(y.rank()));
            Expr flat = o[-1];
            for (int64_t i = y.rank() - 1; i >= 0; --i) {
                at[size_t(i)] = i == 0 ? flat : mod(flat, y.dim(i));
                flat = floor_div(flat, y.dim(i));
            }
            Indices lead = x.rank() == 1 ? Indices{} : o.slice(0, o.rank() - 1);
            return x.at(lead + Indices{y.at(at)});
        },
};

const OpDef kBinarizer{
    .name = "binarizer",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {float_attr("threshold", 0)},
    .types = {{"T", kNumbers}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = ml_form("Binarizer"),
    .body =
        [](const OpView& op, const Indices& o) {
            return select(gt(f64(op.in(0).at(o)), real_const(op.real("threshold"))), like(op, 1), like(op, 0));
        },
};

// A list given by one of four attributes: name_floats, name_int64s, name_strings or name_tensor.
Result<Tensor> label_list(const OpView& op, const std::string& name) {
    if (op.has_attr(name + "_tensor")) return op.tensor_attr(name + "_tensor");
    if (op.has_attr(name + "_strings")) {
        const auto& list = op.strings(name + "_strings");
        return Tensor::strings({int64_t(list.size())}, list);
    }
    if (op.has_attr(name + "_int64s")) return Tensor::ints(op.ints(name + "_int64s"));
    if (!op.has_attr(name + "_floats")) return op.error(Code::E0206, "has no {}", name);
    const auto& list = op.floats(name + "_floats");
    return Tensor::of<float>({int64_t(list.size())}, list);
}

Result<Tensor> label_default(const OpView& op, DType type) {
    if (op.has_attr("default_tensor")) {
        const Tensor& t = op.tensor_attr("default_tensor");
        if (t.dtype() != type || t.elements() != 1)
            return op.error(Code::E0212, "default_tensor has another type than the values");
        return t;
    }
    if (type == DType::string) return Tensor::strings({1}, {op.string("default_string")});
    return Tensor::filled(type, {1}, is_float(type) ? op.real("default_float") : double(op.integer("default_int64")));
}

// A label as something to look up; every NaN is the same.
std::string lookup_key(const Tensor& t, int64_t i) {
    if (t.dtype() == DType::string) return t.as_strings()[size_t(i)];
    if (!is_float(t.dtype())) return std::to_string(t.int_at(i));
    double v = t.real_at(i);
    return std::isnan(v) ? "nan" : fmt::format("{}", v == 0 ? 0.0 : v);
}

// Version 1 mapped between strings and their positions in one list, whichever way the input asked for.
Status classes_to_keys(OnnxCall& call) {
    auto it = call.attrs.find("classes_strings");
    if (it == call.attrs.end() || !call.has(0)) return {};
    auto* classes = std::get_if<std::vector<std::string>>(&it->second);
    if (!classes) return Error(Code::E0206, "{}: classes_strings must be strings", call.op_type);
    std::vector<int64_t> numbers(classes->size());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = int64_t(i);
    const Type& type = call.inputs[0]->type();
    bool from_strings = type.is_tensor() && type.tensor().dtype == DType::string;
    Attr strings = *classes;
    call.attrs.erase(it);
    call.attrs[from_strings ? "keys_strings" : "values_strings"] = strings;
    call.attrs[from_strings ? "values_int64s" : "keys_int64s"] = numbers;
    return {};
}

const OpDef kLabelEncoder{
    .name = "label_encoder",
    .inputs = {"x: T"},
    .outputs = {"y: *"},
    .attrs = {float_attr("default_float", -0.f), int_attr("default_int64", -1),
              string_attr("default_string", "_Unused"), tensor_attr("default_tensor"), floats_attr("keys_floats"),
              ints_attr("keys_int64s"), strings_attr("keys_strings"), tensor_attr("keys_tensor"),
              floats_attr("values_floats"), ints_attr("values_int64s"), strings_attr("values_strings"),
              tensor_attr("values_tensor")},
    .types = {{"T", kAllTypes.without(kComplex)}},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = ml_form("LabelEncoder", {{2, classes_to_keys, {}}}),
    .infer = [](const OpView& op) -> Result<Types> {
        Tensor keys = TRY(label_list(op, "keys")), values = TRY(label_list(op, "values"));
        if (keys.elements() != values.elements())
            return op.error(Code::E0212, "has {} keys and {} values", keys.elements(), values.elements());
        if (keys.dtype() != op.dtype(0))
            return op.error(Code::E0208, "keys are {}, but the input is {}", dtype_name(keys.dtype()),
                            dtype_name(op.dtype(0)));
        TRY(label_default(op, values.dtype()));
        return Type(values.dtype(), op.shape(0));
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        Tensor keys = TRY(label_list(op, "keys")), values = TRY(label_list(op, "values"));
        Tensor otherwise = TRY(label_default(op, values.dtype()));
        std::map<std::string, int64_t> where;  // of two equal keys the later one
        for (int64_t i = 0; i < keys.elements(); ++i) where[lookup_key(keys, i)] = i;
        const Tensor& x = ctx.tensor(0);
        TRY(ctx.spend(x.elements()));
        Tensor y = TRY(Tensor::zeros(values.dtype(), x.sizes()));
        for (int64_t i = 0; i < x.elements(); ++i) {
            auto it = where.find(lookup_key(x, i));
            const Tensor& from = it == where.end() ? otherwise : values;
            int64_t at = it == where.end() ? 0 : it->second;
            if (y.dtype() == DType::string)
                y.mutable_strings()[size_t(i)] = from.as_strings()[size_t(at)];
            else if (is_float(y.dtype()))
                y.set_real(i, from.real_at(at));
            else
                y.set_int(i, from.int_at(at));
        }
        return std::vector<Datum>{y};
    },
    .no_kernel = "looks up keys, which may be strings",
};

enum PostTransform { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };

// The inverse of the normal distribution's cumulative function, by bisection of its definition.
double probit(double p) {
    if (!(p > 0 && p < 1)) return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
    double low = -40, high = 40;
    for (int i = 0; i < 200; ++i) {
        double middle = (low + high) / 2;
        (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
    }
    return (low + high) / 2;
}

void post_transform(int64_t kind, std::vector<double>& row) {
    if (kind == kLogistic)
        for (double& v : row) v = 1 / (1 + std::exp(-v));
    if (kind == kProbit)
        for (double& v : row) v = probit(v);
    if ((kind != kSoftmax && kind != kSoftmaxZero) || row.empty()) return;
    double most = *std::max_element(row.begin(), row.end()), total = 0;
    for (double& v : row) {
        bool zero = kind == kSoftmaxZero && std::abs(v) <= 1e-7;  // stays as it is
        v = zero ? v * std::exp(-most) : std::exp(v - most);
        total += v;
    }
    for (double& v : row) v = total == 0 ? 0.5 : v / total;
}

const OpDef kTreeEnsemble{
    .name = "tree_ensemble",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("aggregate_function", 1), ints_attr("leaf_targetids").required(),
              tensor_attr("leaf_weights").required(), tensor_attr("membership_values"), int_attr("n_targets", 1),
              ints_attr("nodes_falseleafs").required(), ints_attr("nodes_falsenodeids").required(),
              ints_attr("nodes_featureids").required(), tensor_attr("nodes_hitrates"),
              ints_attr("nodes_missing_value_tracks_true"), tensor_attr("nodes_modes").required(),
              tensor_attr("nodes_splits").required(), ints_attr("nodes_trueleafs").required(),
              ints_attr("nodes_truenodeids").required(), int_attr("post_transform", 0),
              ints_attr("tree_roots").required()},
    .types = {{"T", kWideFloats}},
    .onnx = ml_form("TreeEnsemble"),
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        if (x.rank() != 2) return op.shape_error("needs [N, features], has {}", x);
        TRY(Forest(op).check(op));
        if (auto n = x[1].as_int())
            for (int64_t f : op.ints("nodes_featureids"))
                if (f >= *n) return op.error(Code::E0212, "feature {} of {}", f, x);
        if (int64_t f = op.integer("aggregate_function"); f < 0 || f > 3)
            return op.error(Code::E0212, "aggregate_function is {}", f);
        if (int64_t t = op.integer("post_transform"); t < 0 || t > 4)
            return op.error(Code::E0212, "post_transform is {}", t);
        return op.like(0, {x[0], op.integer("n_targets")});
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        Forest forest(op);
        TRY(forest.check(op));
        Tensor y = TRY(Tensor::zeros(x.dtype(), TRY(op.out_sizes())));
        enum Aggregate { kAverage, kSum, kMin, kMax };
        int64_t how = op.integer("aggregate_function"), targets = op.integer("n_targets");
        double start = how == kMin ? float_max(x.dtype()) : how == kMax ? -float_max(x.dtype()) : 0;
        for (int64_t row = 0; row < x.size(0); ++row) {
            TRY(ctx.spend(int64_t(forest.roots.size()) * 16 + targets));
            std::vector<double> scores(size_t(targets), start);
            for (int64_t root : forest.roots) {
                auto leaf = forest.leaf_of(root, x, row);
                if (!leaf) return op.error(Code::E0212, "the nodes of a tree form a cycle");
                double weight = forest.leaf_weights.real_at(int64_t(*leaf));
                double& score = scores[size_t(forest.leaf_targets[*leaf])];
                if (how == kMin)
                    score = std::min(score, weight);
                else if (how == kMax)
                    score = std::max(score, weight);
                else
                    score += how == kAverage ? weight / double(forest.roots.size()) : weight;
            }
            post_transform(op.integer("post_transform"), scores);
            for (int64_t t = 0; t < targets; ++t) y.set_real(row * targets + t, scores[size_t(t)]);
        }
        return std::vector<Datum>{y};
    },
    .no_kernel = "walks decision trees",
};

}  // namespace

std::vector<OpDef> ml_ops() {
    std::vector<OpDef> ops{kArrayFeatureExtractor, kBinarizer, kLabelEncoder, kTreeEnsemble};
    for (OpDef& op : forest_ops()) ops.push_back(std::move(op));
    for (OpDef& op : ops)
        if (!op.body) op = without_gradient(std::move(op), "it is constant between the values that it compares with");
    return ops;
}

}  // namespace tessera
