// Operators of other domains that files carry, each written out in ops of ours where it is imported. Inside there is no
// trace of them: what they stand for is optimized and compiled like anything else, and is written as plain ONNX.
#pragma once

#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "graph/op_def.h"

namespace tessera {

// One node of such an operator. What it asks for and does not get is an error of the call.
class ForeignCall {
  public:
    explicit ForeignCall(OnnxCall& call) : b(call.build), call_(call) {}

    Builder& b;
    bool has(size_t i) const { return call_.has(i); }
    Value* in(size_t i) const { return call_.has(i) ? call_.inputs[i] : nullptr; }
    size_t input_count() const { return call_.inputs.size(); }
    bool wants(size_t output) const { return output < call_.outputs; }
    const Shape& shape(size_t i);  // of an input whose rank has to be known
    int64_t rank(size_t i) { return shape(i).rank(); }
    DType dtype(size_t i);

    int64_t integer(const char* name, int64_t fallback);
    int64_t integer(const char* name);  // required
    float real(const char* name, float fallback);
    std::string string(const char* name, std::string fallback);
    std::vector<int64_t> ints(const char* name);             // empty if absent
    std::vector<float> floats(const char* name);             // too
    std::optional<Attr> given(const char* name);             // whatever it is
    AttrMap pick(std::initializer_list<const char*> names);  // those that are given, for an op of ours

    void require(bool condition, std::string_view what);  // E0212
    Status finish(std::vector<Value*> results);           // E0206 for attributes that were not read

  private:
    OnnxCall& call_;
    std::set<std::string, std::less<>> asked_;
};

struct ForeignOp {
    const char *domain, *name;
    Status (*build)(ForeignCall&);
    const char* means;  // in a few words, for people
};

// By domain and name; null if there is none.
const ForeignOp* find_foreign_op(std::string_view domain, std::string_view name);
std::vector<ForeignOp> foreign_ops();

// The families.
std::vector<ForeignOp> fused_foreign_ops();
std::vector<ForeignOp> quantized_foreign_ops();
std::vector<ForeignOp> attention_foreign_ops();
std::vector<ForeignOp> ml_foreign_ops();

// Pieces that families share.
inline constexpr const char* kMicrosoft = "com.microsoft";
Value* with_activation(ForeignCall& call, Value* x, const std::string& name, const std::vector<float>& parameters);
Value* size_along(Builder& b, Value* x, int64_t axis);       // [1], i64
Value* positions_along(Builder& b, Value* x, int64_t axis);  // 0, 1, ... as many as x has there

}  // namespace tessera
