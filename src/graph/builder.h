// Builds graphs without a Result at every step: after the first error, calls do nothing, and finish() returns that
// error. Used by expansions, the importer's version conversions, models written in C++ and tests.
#pragma once

#include "graph/graph.h"

namespace tessera {

class Builder {
   public:
    explicit Builder(Graph& graph, std::string where = {}) : graph_(&graph), where_(std::move(where)) {}

    // Adds a node and returns its first output (null after an error). Null inputs are absent.
    Value* op(std::string_view name, std::vector<Value*> inputs, AttrMap attrs = {});
    std::vector<Value*> ops(std::string_view name, std::vector<Value*> inputs, AttrMap attrs, size_t outputs);

    Value* constant(Tensor t) { return failed() ? nullptr : graph_->constant(std::move(t)); }
    Value* ints(const std::vector<int64_t>& v) { return constant(Tensor::ints(v)); }
    Value* scalar(double v, DType dtype);  // rank 0
    Value* scalar_like(double v, Value* x);  // of x's element type

    // Shorthands for common ops.
    Value* add(Value* a, Value* b) { return op("add", {a, b}); }
    Value* sub(Value* a, Value* b) { return op("sub", {a, b}); }
    Value* mul(Value* a, Value* b) { return op("mul", {a, b}); }
    Value* div(Value* a, Value* b) { return op("div", {a, b}); }
    Value* matmul(Value* a, Value* b) { return op("matmul", {a, b}); }
    Value* transpose(Value* x, std::vector<int64_t> perm) { return op("transpose", {x}, {{"perm", Attr(perm)}}); }
    Value* cast(Value* x, DType to);  // x itself if it already has that type
    Value* reshape(Value* x, const std::vector<int64_t>& shape) { return op("reshape", {x, ints(shape)}); }
    Value* unsqueeze(Value* x, const std::vector<int64_t>& axes) { return op("unsqueeze", {x, ints(axes)}); }
    Value* squeeze(Value* x, const std::vector<int64_t>& axes) { return op("squeeze", {x, ints(axes)}); }
    Value* slice(Value* x, std::vector<int64_t> starts, std::vector<int64_t> ends, std::vector<int64_t> axes);
    Value* concat(std::vector<Value*> xs, int64_t axis) { return op("concat", std::move(xs), {{"axis", Attr(axis)}}); }
    Value* reduce(std::string_view name, Value* x, const std::vector<int64_t>& axes, bool keepdims = true);

    Graph& graph() { return *graph_; }
    bool failed() const { return error_.has_value(); }
    void fail(Error error);
    Result<std::vector<Value*>> finish(std::vector<Value*> values);  // the values, or the error
    Status status() const;

   private:
    bool is_tensor(const Value* x);
    Graph* graph_;
    std::string where_;
    std::optional<Error> error_;
};

}  // namespace tessera
