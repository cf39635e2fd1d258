#include "tessera/shard.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/clock.h"
#include "base/protect.h"
#include "base/usable_cores.h"
#include "graph/evaluate/bind_inputs.h"
#include "runtime/code_cache.h"
#include "runtime/collectives/run_threads.h"
#include "runtime/model_key.h"
#include "shard/prepare.h"
#include "shard/report.h"
#include "shard/search.h"

namespace tessera {

struct ShardedModel::State {
    std::shared_ptr<const Graph> graph;
    std::unique_ptr<shard::Plan> plan;
    ShardReport report;
    std::string annotations;
};

namespace {

using namespace shard;

constexpr double kCompilePatience = 600;  // seconds that ranks wait for the slowest to compile

// The values that a name is of: one, or those that fit a pattern with stars.
std::vector<const Value*> values_named(const Graph& graph, const std::string& name) {
    if (const Value* v = graph.find_value(name)) return {v};
    std::vector<const Value*> found;
    auto look = [&](const Value* v) {
        if (divisible_sizes(*v) && fnmatch(name.c_str(), v->name().c_str(), 0) == 0) found.push_back(v);
    };
    for (const auto& v : graph.inputs()) look(v.get());
    for (const auto& v : graph.constants()) look(v.get());
    for (const auto& n : graph.nodes())
        for (size_t i = 0; i < n->output_count(); ++i) look(n->output(i));
    return found;
}

Result<Shardings> read_annotations(const Graph& graph, const Mesh& mesh, const ShardOptions& options) {
    Shardings given;
    for (const auto& [name, text] : options.annotations) {
        const auto values = values_named(graph, name);
        if (values.empty())
            return Error(Code::E0401, "the model to be partitioned has no value \"{}\"", name)
                .hint("tessera shard MODEL --mesh MESH --explain lists its values");
        for (const Value* v : values) {
            const auto sizes = divisible_sizes(*v);
            if (!sizes)
                return Error(Code::E0501, "{} is {}, which cannot be divided", name, tessera::to_string(v->type()));
            auto read = parse_sharding(text, mesh, sizes->size());
            if (!read.ok()) return Error(read.error()).at(fmt::format("the annotation of {}", v->name()));
            if (!read->partial.empty())
                return Error(Code::E0501, "the annotation of {} is partial, which only results of sums are", name);
            if (!given.emplace(v, std::move(*read)).second)
                return Error(Code::E0501, "two annotations are of {}", v->name());
        }
    }
    return given;
}

ShardReport report_on(const Plan& plan, const Shardings& given) {
    ShardReport report{.mesh = to_string(plan.mesh), .ranks = plan.mesh.ranks(), .conflicts = plan.conflicts};
    for (const ValuePart& p : value_parts(plan))
        report.values.push_back({p.value->name(), tessera::to_string(p.value->type()),
                                 to_string(plan.shardings.at(p.value), plan.mesh), given.contains(p.value),
                                 p.value->is_constant(), p.bytes, p.rank_bytes});
    for (const PlanStep& step : plan.steps)
        if (is_collective(plan, step))
            report.collectives.push_back({std::string(kind_of(plan, step)), collected_value(plan, step)->name(),
                                          axis_names(plan.mesh, collective_axes(plan, step)),
                                          received_bytes(plan, step)});
    for (const Unit& u : plan.units)
        if (!u.body)
            report.whole.emplace_back(u.node->name().empty() ? u.value()->name() : u.node->name(), u.why_whole);
    for (const auto& c : plan.graph->constants()) report.weight_bytes += c->tensor()->bytes();
    for (int64_t r = 0; r < plan.mesh.ranks(); ++r)
        report.rank_weight_bytes = std::max(report.rank_weight_bytes, weight_bytes(plan, r));
    return report;
}

Result<RunSegment> compiled(const LocalProgram& program, const ShardRunOptions& options) {
    if (options.evaluate) return by_evaluator(program);
    std::map<size_t, Executable> executables;
    for (size_t i = 0; i < program.stages.size(); ++i)
        if (auto* segment = std::get_if<Segment>(&program.stages[i]))
            executables.emplace(i, TRY(compile(Model(std::shared_ptr<Graph>(segment->graph)), options.compile)));
    return RunSegment([executables = std::move(executables)](size_t stage, const std::vector<Datum>& inputs) {
        return executables.at(stage).run_in_order(inputs);
    });
}

// Threads are shared by the ranks of a machine, as far as the user does not say how many each has.
ShardRunOptions with_threads(ShardRunOptions options, int64_t ranks) {
    if (options.compile.threads == 0) options.compile.threads = std::max(1, int(usable_cores() / ranks));
    return options;
}

std::string key_of(const std::vector<Datum>& inputs) {
    std::string key;
    for (const Datum& d : inputs)
        if (d.is_tensor()) key += fmt::format("{} ", d.tensor().content_hash());
    return key;
}

}  // namespace

Result<ShardedModel> ShardedModel::make(const Model& model, const ShardOptions& options) {
    return protect("shard", {.text = [&] { return model.to_text(); }}, [&]() -> Result<ShardedModel> {
        const Mesh mesh = TRY(Mesh::parse(options.mesh));
        auto state = std::make_shared<State>();
        state->graph = TRY(graph_to_shard(model.graph(), options.sizes));
        Shardings given = TRY(read_annotations(*state->graph, mesh, options));
        const Shardings by_user = given;
        int plans = 0;
        if (options.search) {
            Found found = TRY(search_shardings(state->graph, mesh, given, {.memory = options.memory}));
            given = std::move(found.given);
            plans = found.plans;
        }
        for (const auto& [name, text] : options.annotations) state->annotations += fmt::format("{}={};", name, text);
        state->plan = TRY(make_plan(state->graph, mesh, given));
        state->report = report_on(*state->plan, given);
        state->report.plans = plans;
        for (const ShardedValue& v : state->report.values)
            if (v.annotated && !by_user.contains(state->graph->find_value(v.name)))
                state->report.found.emplace_back(v.name, v.sharding);
        return ShardedModel(std::move(state));
    });
}

const ShardReport& ShardedModel::report() const { return state_->report; }

Result<std::vector<Datum>> ShardedModel::run(const NamedData& inputs, const ShardRunOptions& options,
                                             ShardTimes* times) const {
    return protect("shard", {}, [&]() -> Result<std::vector<Datum>> {
        const Plan& plan = *state_->plan;
        const std::vector<Datum> bound = TRY(bind_inputs(*state_->graph, inputs));
        const int64_t ranks = plan.mesh.ranks();
        const ShardRunOptions own = with_threads(options, ranks);
        const auto transports = thread_transports(ranks);
        std::vector<ThreadRank> threads(transports.size());
        const double began = wall_seconds();
        for (size_t r = 0; r < threads.size(); ++r) {
            threads[r] = {transports[r].get(), TRY(local_program(plan, int64_t(r)))};
            threads[r].segments = TRY(compiled(threads[r].program, own));
        }
        const double started = wall_seconds();
        auto outputs = TRY(run_on_threads(plan, bound, threads));
        if (times) *times = {started - began, wall_seconds() - started};
        return std::move(outputs[0]);
    });
}

Result<std::vector<Datum>> ShardedModel::run_with_mpi(const NamedData& inputs, const ShardRunOptions& options,
                                                      ShardTimes* times) const {
    return protect("shard", {}, [&]() -> Result<std::vector<Datum>> {
        const Plan& plan = *state_->plan;
        const int64_t ranks = plan.mesh.ranks();
        const auto transport = TRY(mpi_transport());
        if (transport->ranks() != ranks)
            return Error(Code::E0501, "the mesh {} has {} ranks, and {} processes were started", to_string(plan.mesh),
                         ranks, transport->ranks())
                .hint("start it with mpirun -n {}", ranks);
        transport->set_patience(options.patience);
        auto run = [&]() -> Result<std::vector<Datum>> {
            const std::vector<Datum> bound = TRY(bind_inputs(*state_->graph, inputs));
            TRY(agree(*transport, {{"build of Tessera", code_key({})},
                                   {"mesh", to_string(plan.mesh)},
                                   {"model", model_key(*state_->graph)},
                                   {"annotations", state_->annotations},
                                   {"input", key_of(bound)}}));
            const double began = wall_seconds();
            const LocalProgram program = TRY(local_program(plan, transport->rank()));
            const RunSegment segments = TRY(compiled(program, with_threads(options, ranks)));
            if (times) times->compile = wall_seconds() - began;
            transport->set_patience(kCompilePatience);
            TRY(agree(*transport, {}));
            transport->set_patience(options.patience);
            const double started = wall_seconds();
            auto outputs = run_local(plan, program, bound, *transport, segments);
            if (times) times->run = wall_seconds() - started;
            return outputs;
        };
        auto outputs = run();
        if (!outputs.ok()) transport->stop(outputs.error());
        return outputs;
    });
}

}  // namespace tessera
