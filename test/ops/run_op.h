// Runs one op on literal tensors and looks at what comes out; shared by the tests of all families.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>

#include "base/error.h"
#include "graph/evaluate/evaluate.h"

namespace tessera::test {

using Given = std::vector<std::optional<Datum>>;

inline Result<std::vector<Datum>> try_op(std::string_view name, const Given& inputs, const AttrMap& attrs = {},
                                         size_t outputs = 1) {
    const OpDef* op = find_op(name);
    if (!op) return Error(Code::E0201, "there is no op \"{}\"", name);
    return evaluate_op(*op, inputs, attrs, outputs);
}

// All outputs as tensors; a failed test and nothing where there is an error.
inline std::vector<Tensor> run_op(std::string_view name, const Given& inputs, const AttrMap& attrs = {},
                                  size_t outputs = 1) {
    auto result = try_op(name, inputs, attrs, outputs);
    std::vector<Tensor> out;
    if (!result.ok()) {
        ADD_FAILURE() << result.error().to_string();
        out.resize(outputs);
        return out;
    }
    for (const Datum& d : *result) out.push_back(d.tensor());
    return out;
}

// The code of the error that the op gives, "ok" if it gives none.
inline std::string error_of(std::string_view name, const Given& inputs, const AttrMap& attrs = {}, size_t outputs = 1) {
    auto result = try_op(name, inputs, attrs, outputs);
    return result.ok() ? "ok" : std::string(code_name(result.error().code()));
}

inline Tensor floats(Sizes sizes, std::vector<float> values) { return Tensor::of<float>(std::move(sizes), values); }
inline Tensor longs(Sizes sizes, std::vector<int64_t> values) { return Tensor::of<int64_t>(std::move(sizes), values); }
inline Tensor bytes(Sizes sizes, std::vector<uint8_t> values) { return Tensor::of<uint8_t>(std::move(sizes), values); }
// Any numeric type, from real values.
inline Tensor typed(DType t, Sizes sizes, const std::vector<double>& values) {
    auto made = Tensor::zeros(t, std::move(sizes));
    EXPECT_TRUE(made.ok() && made->elements() == int64_t(values.size()));
    for (size_t i = 0; i < values.size(); ++i) made->set_real(int64_t(i), values[i]);
    return std::move(*made);
}

inline std::vector<double> reals(const Tensor& t) {
    std::vector<double> out(t.elements());
    for (int64_t i = 0; i < t.elements(); ++i) out[i] = t.real_at(i);
    return out;
}

// Sizes and elements, NaN equal to NaN.
inline void expect_tensor(const Tensor& t, const Sizes& sizes, const std::vector<double>& values,
                          double tolerance = 1e-6) {
    EXPECT_EQ(t.sizes(), sizes);
    std::vector<double> actual = reals(t);
    ASSERT_EQ(actual.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
        if (std::isnan(values[i]))
            EXPECT_TRUE(std::isnan(actual[i])) << "element " << i << " is " << actual[i];
        else if (std::isinf(values[i]))
            EXPECT_EQ(actual[i], values[i]) << "element " << i;
        else
            EXPECT_NEAR(actual[i], values[i], tolerance * std::max(1.0, std::fabs(values[i]))) << "element " << i;
    }
}

inline constexpr double kNan = NAN, kInf = INFINITY;

}  // namespace tessera::test
