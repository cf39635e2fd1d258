#include "rewrite/refute/field.h"

#include <cmath>

#include "graph/builder.h"
#include "graph/evaluate/evaluate.h"
#include "graph/infer.h"
#include "rewrite/refute/field_body.h"

namespace tessera {

uint64_t field_power(uint64_t base, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result = field_mul(result, base);
        base = field_mul(base, base);
    }
    return result;
}

uint64_t field_inverse(uint64_t a) { return field_power(a, kFieldPrime - 2); }

uint64_t field_from_int(int64_t value) {
    if (value >= 0) return static_cast<uint64_t>(value) % kFieldPrime;
    uint64_t magnitude = (0 - static_cast<uint64_t>(value)) % kFieldPrime;
    return magnitude ? kFieldPrime - magnitude : 0;
}

std::optional<uint64_t> field_from_real(double value) {
    if (std::isnan(value)) return std::nullopt;
    if (std::isinf(value)) return value > 0 ? kFieldInfinity : kFieldMinusInfinity;
    int exponent = 0;
    double fraction = std::frexp(value, &exponent);
    auto mantissa = static_cast<int64_t>(std::ldexp(fraction, 53));
    int turn = ((exponent - 53) % 61 + 61) % 61;  // 2^61 is 1
    return field_mul(field_from_int(mantissa), uint64_t{1} << turn);
}

std::optional<FieldTensor> FieldTensor::from(const Tensor& tensor) {
    const DType dtype = tensor.dtype();
    if (dtype == DType::string || is_complex(dtype)) return std::nullopt;
    FieldTensor out{dtype, tensor.sizes(), {}, tensor};
    for (int64_t i = 0; i < tensor.elements(); ++i) {
        if (!is_float(dtype)) {
            out.elements.push_back(static_cast<uint64_t>(tensor.int_at(i)));
        } else if (auto number = field_from_real(tensor.real_at(i))) {
            out.elements.push_back(*number);
        } else {
            return std::nullopt;
        }
    }
    return out;
}

namespace {

constexpr int64_t kBudget = 4'000'000;  // steps of bodies in one run
constexpr int kMaxDepth = 20;           // of expansions in one another

Type type_of(const FieldTensor& t) { return Type(t.dtype, Shape(t.sizes)); }

class FieldWalk {
  public:
    FieldWalk(uint64_t key, bool& rational) : key_(key), rational_(rational) {}

    using Values = std::unordered_map<const Value*, FieldTensor>;
    std::vector<FieldTensor> walk(const Graph& graph, Values values) {
        if (++depth_ > kMaxDepth) unsupported("graphs that nest too deeply");
        for (const auto& node : graph.nodes()) {
            std::vector<const FieldTensor*> inputs;
            for (const Value* v : node->inputs()) inputs.push_back(v ? &find(v, values) : nullptr);
            std::vector<FieldTensor> outputs = call(*node, inputs);
            for (size_t i = 0; i < node->output_count(); ++i)
                if (i < outputs.size()) values[node->output(i)] = std::move(outputs[i]);
        }
        std::vector<FieldTensor> outputs;
        for (const Value* v : graph.outputs()) outputs.push_back(find(v, values));
        --depth_;
        return outputs;
    }

  private:
    [[noreturn]] static void unsupported(std::string reason) {
        throw FieldStop{FieldRun::Outcome::Unsupported, std::move(reason)};
    }
    // What fails at run time (an index in a tensor's contents) may do with other inputs.
    template <typename T>
    static T take(Result<T> result) {
        if (!result.ok()) throw FieldStop{FieldRun::Outcome::Void, result.error().message()};
        return std::move(result).value();
    }

    static const FieldTensor& find(const Value* v, Values& values) {
        if (auto it = values.find(v); it != values.end()) return it->second;
        if (!v->tensor()) unsupported(fmt::format("value \"{}\" of a graph around", v->name()));
        auto known = FieldTensor::from(*v->tensor());
        if (!known) unsupported(fmt::format("the contents of constant \"{}\"", v->name()));
        return values[v] = std::move(*known);
    }

    std::vector<FieldTensor> call(const Node& node, const std::vector<const FieldTensor*>& inputs) {
        const OpDef& op = node.op();
        if (op.has(Trait::Random)) unsupported(fmt::format("{} is random", op.name));
        std::vector<Type> types;
        std::vector<const Tensor*> tensors;
        bool all_known = true;
        for (const FieldTensor* t : inputs) {
            types.push_back(t ? type_of(*t) : Type());
            tensors.push_back(t && t->tensor ? &*t->tensor : nullptr);
            all_known &= !t || t->tensor;
        }
        OpView view(op, node.attrs(), std::move(types), node.output_count());
        std::vector<bool> wanted;
        for (size_t i = 0; i < node.output_count(); ++i)
            wanted.push_back(node.output_given(i) && !node.output(i)->uses().empty());
        view.with_values(tensors).with_wanted(wanted).made_concrete();
        std::vector<FieldTensor> results;
        auto missing = view.asks_unknown([&] {
            view.with_outputs(take(infer_types(view)));
            if (op.check) {
                Status checked = op.check(view);
                if (!checked.ok()) throw FieldStop{FieldRun::Outcome::Void, checked.error().message()};
            }
            if (op.body && (!op.body_applies || op.body_applies(view)))
                results = by_body(view, inputs, wanted);
            else if (op.evaluate && all_known)
                results = by_evaluation(node, tensors);
            else if (op.expand)
                results = by_expansion(view, inputs, wanted);
            else
                unsupported(fmt::format("{} has neither body nor expansion", op.name));
        });
        if (missing) unsupported(fmt::format("{} needs to know its inputs", op.name));
        return results;
    }

    FieldTensor with_tensor(FieldTensor t) {
        if (is_float(t.dtype) || t.tensor) return t;
        Tensor exact = take(Tensor::zeros(t.dtype, t.sizes));
        for (int64_t i = 0; i < t.count(); ++i) exact.set_int(i, static_cast<int64_t>(t.elements[i]));
        t.tensor = std::move(exact);
        return t;
    }

    std::vector<FieldTensor> by_body(OpView& view, const std::vector<const FieldTensor*>& inputs,
                                     const std::vector<bool>& wanted) {
        std::vector<FieldTensor> out(wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
            if (!wanted[i]) continue;
            view.for_output(i);
            Sizes sizes = take(view.out_sizes(i));
            take(element_count(sizes));
            const Expr body = view.def().body(view, output_indices(view.out(i).shape));
            out[i] = with_tensor(FieldBody(body, inputs, key_, budget_, rational_).fill(view.out(i).dtype, sizes));
        }
        return out;
    }

    std::vector<FieldTensor> by_evaluation(const Node& node, const std::vector<const Tensor*>& tensors) {
        std::vector<std::optional<Datum>> inputs;
        for (const Tensor* t : tensors) inputs.push_back(t ? std::optional<Datum>(*t) : std::nullopt);
        std::vector<FieldTensor> out;
        for (const Datum& d : take(evaluate_op(node.op(), inputs, node.attrs(), node.output_count()))) {
            auto known = d.is_tensor() ? FieldTensor::from(d.tensor()) : std::nullopt;
            if (!known) unsupported(fmt::format("what {} gives", node.op().name));
            out.push_back(std::move(*known));
        }
        return out;
    }

    std::vector<FieldTensor> by_expansion(const OpView& view, const std::vector<const FieldTensor*>& inputs,
                                          const std::vector<bool>& wanted) {
        Graph graph(view.def().name);
        Values values;
        std::vector<Value*> given;
        for (size_t i = 0; i < inputs.size(); ++i) {
            if (!inputs[i]) {
                given.push_back(nullptr);
            } else if (inputs[i]->tensor) {
                given.push_back(graph.constant(*inputs[i]->tensor));
            } else {
                given.push_back(graph.add_input(fmt::format("x{}", i), view.type(i)));
                values[given.back()] = *inputs[i];
            }
        }
        Builder build(graph);
        auto expanded = view.def().expand(view, given, build);
        std::vector<Value*> results = take(build.finish(take(std::move(expanded))));
        std::vector<size_t> places;
        for (size_t i = 0; i < results.size() && i < wanted.size(); ++i) {
            if (!results[i] || !wanted[i]) continue;
            places.push_back(i);
            graph.add_output(results[i]);
        }
        std::vector<FieldTensor> out(wanted.size()), computed = walk(graph, std::move(values));
        for (size_t i = 0; i < places.size(); ++i) out[places[i]] = std::move(computed[i]);
        return out;
    }

    uint64_t key_;
    bool& rational_;
    int64_t budget_ = kBudget;
    int depth_ = 0;
};

}  // namespace

FieldRun evaluate_in_field(const Graph& graph, const std::vector<FieldTensor>& inputs, uint64_t key) {
    CHECK(inputs.size() == graph.inputs().size(), "{} inputs for {}", inputs.size(), graph.inputs().size());
    FieldRun run;
    FieldWalk::Values values;
    for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].get()] = inputs[i];
    try {
        run.outputs = FieldWalk(key, run.rational).walk(graph, std::move(values));
    } catch (const FieldStop& stop) {
        run.outcome = stop.outcome;
        run.reason = stop.reason;
    }
    return run;
}

}  // namespace tessera
