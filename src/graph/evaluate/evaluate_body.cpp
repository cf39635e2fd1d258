#include <numeric>

#include "graph/evaluate/evaluate.h"
#include "graph/evaluate/strip/stages.h"
#include "graph/op_def.h"

namespace tessera {
namespace {

std::string index_name(size_t dim) { return fmt::format("i{}", dim); }

Result<Tensor> run_body(const OpView& op, Expr body, const std::vector<const Tensor*>& inputs, Tensor out,
                        EvalContext* context) {
    if (out.elements() == 0) return out;
    std::vector<std::string> names;
    for (size_t d = 0; d < out.sizes().size(); ++d) names.push_back(index_name(d));
    Sizes sizes = out.sizes();
    strip::split_indices(body, names, sizes);
    strip::Plan plan = TRY(strip::lower(body, names, sizes, inputs));
    if (context) TRY(context->spend(strip::work_of(plan)));
    strip::fuse_loops(plan);
    strip::Fault fault;
    if (TRY(strip::run_in_stages(plan, {out.dtype(), out.mutable_data()}, fault))) return out;
    return op.error(Code::E0406, "index {} is outside [0, {}) in dimension {} of input {}", fault.index, fault.extent,
                    fault.dim, fault.slot);
}

// Elements that cannot be computed with are moved by number: every such input is replaced by the numbers of its
// elements, counted from 1 through all of them; 0 is the element that a fresh tensor has.
Result<Tensor> move_elements(const OpView& op, const Expr& body, std::vector<const Tensor*> inputs, Tensor out,
                             EvalContext* context) {
    std::vector<Tensor> numbers(inputs.size());
    std::vector<int64_t> starts(inputs.size() + 1, 1);
    const std::vector<const Tensor*> originals = inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
        starts[i + 1] = starts[i];
        if (!inputs[i] || inputs[i]->dtype() != out.dtype()) continue;
        numbers[i] = TRY(Tensor::zeros(DType::i64, inputs[i]->sizes()));
        auto list = numbers[i].mutable_as<int64_t>();
        std::iota(list.begin(), list.end(), starts[i]);
        starts[i + 1] += numbers[i].elements();
        inputs[i] = &numbers[i];
    }
    Tensor chosen = TRY(run_body(op, body, inputs, TRY(Tensor::zeros(DType::i64, out.sizes())), context));
    const size_t bytes = dtype_bytes(out.dtype());
    int64_t to = 0;
    for (int64_t n : chosen.as<int64_t>()) {
        if (n == 0) {
            ++to;
            continue;
        }
        size_t i = std::upper_bound(starts.begin(), starts.end(), n) - starts.begin() - 1;
        const Tensor& from = *originals[i];
        if (out.dtype() == DType::string)
            out.mutable_strings()[to] = from.as_strings()[n - starts[i]];
        else
            std::memcpy(static_cast<char*>(out.mutable_data()) + to * bytes,
                        static_cast<const char*>(from.data()) + (n - starts[i]) * bytes, bytes);
        ++to;
    }
    return out;
}

}  // namespace

Indices output_indices(const Shape& shape) {
    std::vector<Expr> out;
    for (int64_t d = 0; d < shape.rank(); ++d) out.push_back(index_var(index_name(d), shape[d].as_int()));
    return out;
}

Result<Tensor> evaluate_body(const OpView& op, const Expr& body, const std::vector<const Tensor*>& inputs,
                             EvalContext* context) {
    const TensorType& type = op.out(op.output());
    Tensor out = TRY(Tensor::zeros(type.dtype, TRY(op.out_sizes(op.output()))));
    if (kBodyTypes.has(type.dtype)) return run_body(op, body, inputs, std::move(out), context);
    return move_elements(op, body, inputs, std::move(out), context);
}

}  // namespace tessera
