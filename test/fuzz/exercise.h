// Does with a model's bytes all that a user could: load, print, parse back, write, run on random inputs under limits.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/memory.h"
#include "tessera/tessera.h"

namespace tessera {

inline constexpr int64_t kFuzzMemory = int64_t{256} << 20;
inline constexpr int64_t kFuzzWork = 2'000'000;

// Whether the model ran to the end; anything but a crash, a hang or a failed CHECK is fine.
inline bool exercise(const Model& model) {
    (void)model.summary();
    (void)model.to_onnx().ok();
    auto again = Model::parse(model.to_text());
    if (!again.ok()) {
        fprintf(stderr, "printed text does not parse:\n%s\n%s\n", again.error().to_string().c_str(), model.to_text().c_str());
        abort();
    }
    auto inputs = model.random_inputs(1);
    if (!inputs.ok()) return false;
    RunOptions options;
    options.max_work = kFuzzWork;
    return model.run(*inputs, options).ok();
}

inline bool exercise_onnx(std::string_view bytes) {
    set_memory_limit(kFuzzMemory);
    auto model = Model::from_onnx(bytes);
    return model.ok() && exercise(*model);
}

inline bool exercise_text(std::string_view text) {
    set_memory_limit(kFuzzMemory);
    auto model = Model::parse(text);
    return model.ok() && exercise(*model);
}

}  // namespace tessera
