#include "api/mesh/compiled_segments.h"

#include <utility>

#include "base/usable_cores.h"
#include "runtime/model_key.h"

namespace tessera::shard {

Result<RunSegment> segments_of(LocalProgram& program, const CompileOptions& options, bool evaluate,
                               SegmentCache* cache) {
    if (evaluate) return by_evaluator(program);
    std::map<size_t, Executable> executables;
    for (size_t i = 0; i < program.stages.size(); ++i) {
        auto* segment = std::get_if<Segment>(&program.stages[i]);
        if (!segment) continue;
        const std::string key = cache ? model_key(*segment->graph) : std::string();
        auto known = cache ? cache->find(key) : SegmentCache::iterator();
        if (!cache || known == cache->end()) {
            Executable made = TRY(compile(Model(std::exchange(segment->graph, nullptr)), options));
            if (cache) cache->emplace(key, made);
            executables.emplace(i, std::move(made));
        } else {
            executables.emplace(i, known->second);
            segment->graph = nullptr;
        }
    }
    return RunSegment([executables = std::move(executables)](size_t stage, const std::vector<Datum>& inputs) {
        return executables.at(stage).run_in_order(inputs);
    });
}

CompileOptions with_threads_of_rank(CompileOptions options, int64_t ranks) {
    if (options.threads == 0) options.threads = std::max(1, int(usable_cores() / ranks));
    return options;
}

}  // namespace tessera::shard
