#include "check_optimized.h"

#include "values.h"

namespace tessera::cli {
namespace {

double tolerance_of(DType dtype, const std::string& precision) {
    if (precision == "strict" || !is_float(dtype)) return 0;
    double base = dtype == DType::f64 || dtype == DType::f32 ? 1e-4 : dtype == DType::f16 ? 1e-2 : 5e-2;
    return precision == "fast" ? 10 * base : base;
}

bool draws(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
        if (node->is(Trait::Random) && node->op().name != "dropout") return true;
        for (const auto& [_, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr); nested && draws(**nested)) return true;
    }
    return false;
}

}  // namespace

Result<CheckedRun> check_optimized(const Model& before, const Model& after, const std::string& precision,
                                   const SymbolValues& sizes, uint64_t seed, const std::vector<std::string>& rules) {
    if (draws(before.graph()))
        return Error(Code::E0501, "the model generates random numbers, so no two runs are equal")
            .hint("leave --check out");
    CheckedRun checked;
    // Sizes that differ tell more than ones; where the model does not take them, all are 1.
    Result<std::vector<Datum>> expected = Error(Code::E0405, "no sizes were tried");
    NamedData inputs;
    for (bool ones : {false, true}) {
        checked.sizes = sizes;
        int64_t next = 2;
        for (const std::string& s : before.summary().symbols)
            if (checked.sizes.emplace(s, ones ? 1 : next).second && !ones) ++next;
        inputs = TRY(before.random_inputs(seed, checked.sizes));
        Stopwatch watch;
        expected = before.run(inputs, {.seed = seed, .cancel = &interrupted()});
        checked.seconds_before = watch.seconds();
        if (expected.ok() || expected.error().code() == Code::E0410) break;
    }
    if (!expected.ok()) return std::move(expected).error().hint("--dim NAME=SIZE gives a size the model takes");
    Stopwatch watch;
    std::vector<Datum> actual = TRY(after.run(inputs, {.seed = seed, .cancel = &interrupted()}));
    checked.seconds_after = watch.seconds();
    std::vector<Port> ports = before.outputs();
    std::vector<std::string> wrong;
    for (size_t i = 0; i < ports.size(); ++i) {
        CheckedOutput output{ports[i].name, difference((*expected)[i], actual[i]),
                             ports[i].dtype ? tolerance_of(*ports[i].dtype, precision) : 0};
        if (output.error > output.tolerance)
            wrong.push_back(
                fmt::format("\"{}\" by {:.3g}, allowed is {:.3g}", output.name, output.error, output.tolerance));
        checked.outputs.push_back(std::move(output));
    }
    if (wrong.empty()) return checked;
    const std::string at = at_dims(before.summary().symbols, checked.sizes);
    Error error = Error(Code::E0407, "the outputs of the optimized model differ: {}", fmt::join(wrong, "; "))
                      .note("nothing was written{}{}", at.empty() ? "" : "; the difference is", at);
    if (rules.empty())
        return std::move(error).hint("a rule or a pass is wrong: find it with --stop-after, and please report it");
    return std::move(error).hint(
        "if the outputs agree without --rules, a rule of yours is wrong: tessera rules check {} searches for a "
        "counterexample",
        fmt::join(rules, " "));
}

Json checked_json(const CheckedRun& run) {
    Json j{{"dims", run.sizes}, {"seconds_before", run.seconds_before}, {"seconds_after", run.seconds_after}};
    j["outputs"] = Json::array();
    for (const CheckedOutput& o : run.outputs)
        j["outputs"].push_back({{"name", o.name}, {"error", o.error}, {"tolerance", o.tolerance}});
    return j;
}

std::string checked_text(const CheckedRun& run) {
    double most = 0;
    for (const CheckedOutput& o : run.outputs) most = std::max(most, o.error);
    std::string text = fmt::format("  checked: {} output{}, largest relative error {:.2g}", run.outputs.size(),
                                   run.outputs.size() == 1 ? "" : "s", most);
    for (const auto& [name, size] : run.sizes) text += fmt::format(", {}={}", escaped(name), size);
    return text + "\n";
}

}  // namespace tessera::cli
