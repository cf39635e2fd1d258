// Does with a model's bytes all that a user could: load, print, parse back, write, run on random inputs under limits.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/memory.h"
#include "graph/graph.h"
#include "graph/verify.h"
#include "tessera/tessera.h"

namespace tessera {

inline constexpr int64_t kFuzzMemory = int64_t{256} << 20;
inline constexpr int64_t kFuzzWork = 2'000'000;

[[noreturn]] inline void broken(const Model& model, const char* what, const std::string& why) {
    fprintf(stderr, "%s: %s\n%s\n", what, why.c_str(), model.to_text().c_str());
    abort();
}

// Whether the model ran to the end; anything but a crash, a hang or a failed CHECK is fine.
inline bool exercise(const Model& model) {
    (void)model.summary();
    if (auto list = violations(model.graph()); !list.empty()) broken(model, "the graph breaks an invariant", list[0]);
    std::string difference;
    auto again = Model::parse(model.to_text());
    if (!again.ok()) broken(model, "printed text does not parse", again.error().to_string());
    if (!identical(model.graph(), again->graph(), &difference))
        broken(model, "printed text is another graph", difference);
    // Not always an identical graph: ONNX wants a name for every graph, and an older form leaves defaults out.
    if (auto written = model.to_onnx(); written.ok())
        if (auto read = Model::from_onnx(*written); !read.ok())
            broken(model, "written ONNX does not load", read.error().to_string());
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
