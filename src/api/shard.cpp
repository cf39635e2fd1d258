#include "tessera/shard.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <thread>

#include "api/mesh/annotations.h"
#include "api/mesh/compiled_segments.h"
#include "api/mesh/run_on_gpu.h"
#include "base/clock.h"
#include "base/protect.h"
#include "graph/evaluate/bind_inputs.h"
#include "runtime/code_cache.h"
#include "runtime/collectives/run_threads.h"
#include "runtime/devices/gpu_memory.h"
#include "runtime/model_key.h"
#include "shard/local_program.h"
#include "shard/prepare.h"
#include "shard/report.h"
#include "shard/search/search.h"

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

Rates rates_of(const DeviceSpeed& speed, const Mesh& mesh) {
    auto link = [](const LinkSpeed& l) { return LinkRates{l.latency, l.bandwidth}; };
    Rates rates{.operations = speed.operations, .memory = speed.memory, .link = link(speed.link)};
    if (speed.axes.empty()) return rates;
    for (const MeshAxis& axis : mesh.axes()) {
        const auto own = speed.axes.find(axis.name);
        rates.axes.push_back(own == speed.axes.end() ? rates.link : link(own->second));
    }
    return rates;
}

Status check_speed(const DeviceSpeed& speed, const Mesh& mesh) {
    auto is_rate = [](double r) { return std::isfinite(r) && r > 0; };
    bool good = is_rate(speed.operations) && is_rate(speed.memory);
    auto check = [&](const LinkSpeed& l) {
        good &= is_rate(l.bandwidth) && std::isfinite(l.latency) && l.latency >= 0;
    };
    check(speed.link);
    for (const auto& [axis, link] : speed.axes) {
        check(link);
        if (!mesh.find(axis))
            return Error(Code::E0501, "the speed of an axis \"{}\", which {} does not have", axis, to_string(mesh));
    }
    if (!good)
        return Error(Code::E0501, "a speed of devices is not positive")
            .hint("rates are a second, latencies in seconds");
    return {};
}

ShardCost cost_in(const PlanCost& cost, const PeakMemory& peak) {
    ShardCost out{cost.compute, cost.communicate, {}, peak.weights, peak.activations};
    for (const CollectiveCost& c : cost.collectives)
        out.collectives.push_back({c.kind, c.axes, c.count, c.bytes, c.seconds});
    return out;
}

// l*_w1 of l12_w1; nothing without a number.
std::optional<std::string> pattern_of(const std::string& name) {
    const size_t digit = name.find_first_of("0123456789");
    if (digit == std::string::npos || name.find_first_of("*?[\\") != std::string::npos) return {};
    const size_t end = std::min(name.find_first_not_of("0123456789", digit), name.size());
    return name.substr(0, digit) + "*" + name.substr(end);
}

// Those of `given` that the user did not give, in the order of the graph: equal ones of values that a pattern names,
// and that are all that it names, as one.
ShardAnnotations added(const Plan& plan, const Shardings& given, const Shardings& by_user) {
    std::vector<std::pair<const Value*, std::string>> all;
    std::map<std::pair<std::string, std::string>, std::vector<const Value*>> by_pattern;
    for (const ValuePart& p : value_parts(plan)) {
        if (!given.contains(p.value) || by_user.contains(p.value)) continue;
        all.emplace_back(p.value, to_string(given.at(p.value), plan.mesh));
        if (const auto pattern = pattern_of(p.value->name()))
            by_pattern[{*pattern, all.back().second}].push_back(p.value);
    }
    ShardAnnotations list;
    std::set<std::string> done;
    for (const auto& [v, sharding] : all) {
        const auto pattern = pattern_of(v->name());
        const bool grouped = pattern && by_pattern.at({*pattern, sharding}).size() > 1 &&
                             values_named(*plan.graph, *pattern) == by_pattern.at({*pattern, sharding});
        if (!grouped)
            list.emplace_back(v->name(), sharding);
        else if (done.insert(*pattern).second)
            list.emplace_back(*pattern, sharding);
    }
    return list;
}

ShardReport report_on(const Plan& plan, const Shardings& given, const Rates& rates) {
    ShardReport report{.mesh = to_string(plan.mesh), .ranks = plan.mesh.ranks(), .conflicts = plan.conflicts};
    for (const ValuePart& p : value_parts(plan))
        report.values.push_back({p.value->name(), tessera::to_string(p.value->type()),
                                 to_string(plan.shardings.at(p.value), plan.mesh), given.contains(p.value),
                                 p.value->is_constant(), p.bytes, p.rank_bytes});
    for (const PlanStep& step : plan.steps)
        if (is_collective(plan, step))
            report.collectives.push_back({std::string(kind_of(plan, step)), collected_value(plan, step)->name(),
                                          axis_names(plan.mesh, collective_axes(plan, step)),
                                          received_bytes(plan, step), step_seconds(plan, step, rates)});
    report.cost = cost_in(cost_of(plan, rates), peak_memory(plan));
    for (const auto& node : plan.graph->nodes()) {
        ShardedNode& n = report.nodes.emplace_back(ShardedNode{.op = node->op().name});
        for (size_t i = 0; i < node->output_count(); ++i) n.results.push_back(node->output(i)->name());
        for (const Value* v : node->inputs())
            if (v) n.inputs.push_back(v->name());
    }
    for (const Unit& u : plan.units)
        if (!u.body)
            report.whole.emplace_back(u.node->name().empty() ? u.value()->name() : u.node->name(), u.why_whole);
    for (const auto& c : plan.graph->constants()) report.weight_bytes += c->tensor()->bytes();
    for (int64_t r = 0; r < plan.mesh.ranks(); ++r)
        report.rank_weight_bytes = std::max(report.rank_weight_bytes, weight_bytes(plan, r));
    return report;
}

Status check_collectives(const ShardRunOptions& options) {
    const std::string& c = options.collectives;
    if (c == "auto" || c == "host" || c == "nccl") return {};
    return Error(Code::E0501, "\"{}\" is no way to exchange data between ranks", c).hint("use auto, host or nccl");
}

// The GPU of a rank, if the collectives are to be NCCL's. E0701 if they must be and cannot.
Result<std::optional<int>> gpu_of(const ShardRunOptions& options, int64_t local, int64_t local_ranks) {
    if (options.collectives == "host" || options.evaluate) return std::optional<int>();
    const auto gpu = own_gpu(options.compile.target, local, local_ranks);
    if (!gpu && options.collectives == "nccl")
        return Error(Code::E0701, "NCCL needs a GPU for each of the {} ranks of this host", local_ranks)
            .hint("use --target cuda, with libnccl2 installed and as many GPUs, or --collectives host");
    return gpu;
}

// Each rank a thread with a GPU of its own.
Result<std::vector<Datum>> run_on_gpus(const Plan& plan, const std::vector<Datum>& inputs,
                                       const ShardRunOptions& options, ShardTimes& times) {
    const NcclId id = TRY(make_nccl_id());
    const int64_t ranks = plan.mesh.ranks();
    std::vector<std::optional<Result<std::vector<Datum>>>> outputs(static_cast<size_t>(ranks));
    std::vector<ShardTimes> spent(outputs.size());
    std::vector<std::thread> threads;
    for (int64_t r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            const auto gpu = own_gpu(options.compile.target, r, ranks);
            outputs[size_t(r)] = run_on_gpu(plan, r, gpu.value_or(0), id, inputs, options.compile, spent[size_t(r)]);
        });
    for (std::thread& t : threads) t.join();
    for (const ShardTimes& s : spent) times = {std::max(times.compile, s.compile), std::max(times.run, s.run), "nccl"};
    for (auto& result : outputs)
        if (!result->ok()) return result->error();
    return std::move(*outputs[0]);
}

// What rank 0 has, on all ranks.
Result<NcclId> shared_id(Transport& transport) {
    NcclId id{};
    std::vector<Message> sends, receives;
    if (transport.rank() == 0) {
        id = TRY(make_nccl_id());
        for (int64_t r = 1; r < transport.ranks(); ++r) sends.push_back({r, {id.begin(), id.end()}});
    } else {
        receives.push_back({0, std::vector<char>(id.size())});
    }
    TRY(transport.exchange("identifier", sends, receives));
    if (!receives.empty()) std::copy(receives[0].bytes.begin(), receives[0].bytes.end(), id.begin());
    return id;
}

// Whether all ranks say so.
Result<bool> all_say(Transport& transport, bool own) {
    std::vector<Message> sends, receives;
    for (int64_t r = 0; r < transport.ranks(); ++r) {
        if (r == transport.rank()) continue;
        sends.push_back({r, {char(own)}});
        receives.push_back({r, {0}});
    }
    TRY(transport.exchange("agreement on collectives", sends, receives));
    return own && std::all_of(receives.begin(), receives.end(), [](const Message& m) { return m.bytes[0] != 0; });
}

int64_t from_mpirun(const char* name, int64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoll(text, nullptr, 10) : otherwise;
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
        Shardings given = TRY(read_annotations(*state->graph, mesh, options.annotations));
        const Shardings by_user = given;
        TRY(check_speed(options.speed, mesh));
        const shard::PlanOptions plan_options{.rates = rates_of(options.speed, mesh)};
        std::optional<Found> found;
        if (options.search) {
            found =
                TRY(search_shardings(state->graph, mesh, given,
                                     {.plan = plan_options, .memory = options.memory, .progress = options.progress}));
            given = found->best.given;
        }
        for (const auto& [name, text] : options.annotations) state->annotations += fmt::format("{}={};", name, text);
        state->plan = TRY(make_plan(state->graph, mesh, given, plan_options));
        state->report = report_on(*state->plan, given, plan_options.rates);
        if (found) {
            state->report.plans = found->plans;
            state->report.bound_seconds = found->bound;
            state->report.found = added(*state->plan, given, by_user);
            if (const auto& second = found->second)
                state->report.second = ShardSecond{added(*state->plan, second->given, by_user),
                                                   cost_in(second->cost, second->peak), found->different};
        }
        return ShardedModel(std::move(state));
    });
}

const ShardReport& ShardedModel::report() const { return state_->report; }

Result<std::string> ShardedModel::nccl_text(int64_t rank) const {
    return protect("shard", {}, [&]() -> Result<std::string> {
        const int64_t ranks = state_->plan->mesh.ranks();
        if (rank < 0 || rank >= ranks)
            return Error(Code::E0501, "rank {} is not one of the mesh's {} ranks", rank, ranks)
                .hint("use a number from 0 to {}", ranks - 1);
        return wires_text(*state_->plan, TRY(local_program(*state_->plan, rank, Transfer::Buffers)));
    });
}

Result<std::vector<Datum>> ShardedModel::run(const NamedData& inputs, const ShardRunOptions& options,
                                             ShardTimes* times) const {
    return protect("shard", {}, [&]() -> Result<std::vector<Datum>> {
        const Plan& plan = *state_->plan;
        TRY(check_collectives(options));
        const std::vector<Datum> bound = TRY(bind_inputs(*state_->graph, inputs));
        const int64_t ranks = plan.mesh.ranks();
        ShardTimes spent{.collectives = "host"};
        if (!times) times = &spent;
        if (TRY(gpu_of(options, 0, ranks))) return run_on_gpus(plan, bound, options, *times);
        const CompileOptions own = with_threads_of_rank(options.compile, ranks);
        const auto transports = thread_transports(ranks);
        std::vector<ThreadRank> threads(transports.size());
        const double began = wall_seconds();
        SegmentCache segments;
        for (size_t r = 0; r < threads.size(); ++r) {
            threads[r] = {transports[r].get(), TRY(local_program(plan, int64_t(r)))};
            threads[r].segments = TRY(segments_of(threads[r].program, own, options.evaluate, &segments));
        }
        const double started = wall_seconds();
        auto outputs = TRY(run_on_threads(plan, bound, threads));
        *times = {started - began, wall_seconds() - started, "host"};
        return std::move(outputs[0]);
    });
}

Result<std::vector<Datum>> ShardedModel::run_with_mpi(const NamedData& inputs, const ShardRunOptions& options,
                                                      ShardTimes* times) const {
    return protect("shard", {}, [&]() -> Result<std::vector<Datum>> {
        const Plan& plan = *state_->plan;
        TRY(check_collectives(options));
        ShardTimes spent;
        if (!times) times = &spent;
        times->collectives = "host";
        const int64_t ranks = plan.mesh.ranks();
        const auto transport = TRY(mpi_transport(options.patience));
        if (transport->ranks() != ranks)
            return Error(Code::E0501, "the mesh {} has {} ranks, and {} processes were started", to_string(plan.mesh),
                         ranks, transport->ranks())
                .hint("start it with mpirun -n {}", ranks);
        auto run = [&]() -> Result<std::vector<Datum>> {
            const std::vector<Datum> bound = TRY(bind_inputs(*state_->graph, inputs));
            TRY(agree(*transport, {{"build of Tessera", code_key({})},
                                   {"mesh", to_string(plan.mesh)},
                                   {"model", sampled_key(*state_->graph)},
                                   {"annotations", state_->annotations},
                                   {"input", key_of(bound)},
                                   {"way to exchange data", options.collectives}}));
            const auto gpu = TRY(gpu_of(options, from_mpirun("OMPI_COMM_WORLD_LOCAL_RANK", 0),
                                        from_mpirun("OMPI_COMM_WORLD_LOCAL_SIZE", ranks)));
            if (TRY(all_say(*transport, gpu.has_value()))) {
                times->collectives = "nccl";
                const NcclId id = TRY(shared_id(*transport));
                return run_on_gpu(plan, transport->rank(), *gpu, id, bound, options.compile, *times);
            }
            const double began = wall_seconds();
            LocalProgram program = TRY(local_program(plan, transport->rank()));
            const RunSegment segments =
                TRY(segments_of(program, with_threads_of_rank(options.compile, ranks), options.evaluate));
            times->compile = wall_seconds() - began;
            transport->set_patience(kCompilePatience);
            TRY(agree(*transport, {}));
            transport->set_patience(options.patience);
            const double started = wall_seconds();
            auto outputs = run_local(plan, program, bound, *transport, segments);
            times->run = wall_seconds() - started;
            return outputs;
        };
        auto outputs = run();
        if (!outputs.ok()) transport->stop(outputs.error());
        return outputs;
    });
}

}  // namespace tessera
