// How far compiled results are from the evaluator's, which sums in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/compile.h"

namespace tessera {

// Of the first output, relative to its root mean square.
inline double compiled_error(const Model& model, const Executable& executable, const NamedData& inputs) {
    auto want = model.run(inputs), have = executable.run(inputs);
    EXPECT_TRUE(want.ok() && have.ok());
    const Tensor &a = want->front().tensor(), &b = have->front().tensor();
    EXPECT_EQ(a.sizes(), b.sizes());
    double square = 0, wrong = 0;
    for (int64_t i = 0; i < a.elements(); ++i) {
        square += a.real_at(i) * a.real_at(i);
        wrong += (a.real_at(i) - b.real_at(i)) * (a.real_at(i) - b.real_at(i));
    }
    return std::sqrt(wrong / square);
}

}  // namespace tessera
