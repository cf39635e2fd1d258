#include "api/observed_run.h"

namespace tessera {

Result<ObservedRun> ObservedRun::create(const Graph& graph, const std::vector<std::string>& names,
                                        const CompileOptions& options) {
    std::shared_ptr<Graph> copy = graph.clone();
    const size_t outputs = copy->outputs().size();
    for (size_t i = 0; i < names.size(); ++i) {
        Value* v = copy->find_value(names[i]);
        if (!v) return Error(Code::E0401, "the model has no value \"{}\"", names[i]);
        copy->add_output(v, fmt::format("observed.{}", i));
    }
    CompileOptions chosen = options;
    if (!chosen.cache) chosen.cache = "";
    chosen.tier = "fast";  // so many results take long to optimize, and few runs need them
    return ObservedRun(TRY(compile(Model(std::move(copy)), chosen)), outputs);
}

Result<ObservedRun::Values> ObservedRun::run(const NamedData& inputs, const std::atomic<bool>* cancel) const {
    std::vector<Datum> all = TRY(executable_.run(inputs, {.cancel = cancel}));
    Values values;
    values.observed.assign(std::make_move_iterator(all.begin() + std::ptrdiff_t(outputs_)),
                           std::make_move_iterator(all.end()));
    all.resize(outputs_);
    values.outputs = std::move(all);
    return values;
}

}  // namespace tessera
