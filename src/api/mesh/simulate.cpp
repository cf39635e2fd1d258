#include "tessera/simulate.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/output_file.h"
#include "base/protect.h"
#include "graph/text/parse.h"
#include "runtime/collectives/fit_network.h"
#include "shard/prepare.h"
#include "shard/simulate/simulate_gpt.h"
#include "shard/simulate/simulate_model.h"
#include "shard/simulate/traces.h"

namespace tessera {

struct Simulation::Traces {
    shard::TracedMesh mesh;
};

namespace {

constexpr double kFitPatience = 600;  // seconds that ranks wait for the slowest

// The median of some runs, in this process.
Result<double> measured_seconds(const shard::Segment& segment, const CompileOptions& options) {
    constexpr int kRuns = 5;
    const Executable executable = TRY(compile(Model(std::shared_ptr<Graph>(segment.graph)), options));
    std::vector<Datum> inputs;
    for (const auto& in : segment.graph->inputs()) {
        const TensorType& type = in->type().tensor();
        std::vector<int64_t> sizes;
        for (const Dim& d : type.shape) sizes.push_back(*d.as_int());
        inputs.emplace_back(TRY(Tensor::filled(type.dtype, sizes, is_float(type.dtype) ? 0.5 : 0)));
    }
    std::vector<double> seconds;
    for (int i = 0; i <= kRuns; ++i) {
        const double began = wall_seconds();
        TRY(executable.run_in_order(inputs));
        if (i > 0) seconds.push_back(wall_seconds() - began);
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
}

// Seconds of a graph's run on one thread.
Result<double> seconds_of(const std::string& text) {
    CompileOptions options;
    options.threads = 1;
    const std::shared_ptr<Graph> graph = TRY(parse(text));
    return measured_seconds({graph, {}, {}}, options);
}

// What this process reaches, beside the other ranks.
Result<shard::DeviceSpeeds> host_speeds() {
    shard::DeviceSpeeds d{.name = "a rank on this machine",
                          .target = "host",
                          .memory = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE))};
    std::vector<std::pair<double, double>> rates;
    double peak = 0;
    for (const int64_t n : {64, 128, 256, 512, 1024}) {
        const double flops = 2.0 * double(n) * double(n) * double(n);
        const double seconds =
            TRY(seconds_of(fmt::format("graph g(a: f32[{0},{0}], b: f32[{0},{0}]) {{ return matmul(a, b) }}", n)));
        rates.emplace_back(flops, flops / seconds);
        peak = std::max(peak, rates.back().second);
    }
    for (const auto& [flops, rate] : rates) d.efficiency.emplace_back(flops, rate / peak);
    d.flops = {{DType::f32, peak}};
    const int64_t elements = 1 << 23;
    d.bytes_per_second =
        3.0 * 4 * double(elements) /
        TRY(seconds_of(fmt::format("graph g(a: f32[{0}], b: f32[{0}]) {{ return add(a, b) }}", elements)));
    d.scalar_flops = double(1 << 14) * 16 / TRY(seconds_of("graph g(a: f32[16384]) { return tanh(tanh(a)) }"));
    d.launch = TRY(seconds_of("graph g(a: f32[8]) { return neg(a) }"));
    return d;
}

Simulation with_traces(shard::Simulated made) {
    made.shown.traces = std::make_shared<const Simulation::Traces>(Simulation::Traces{std::move(made.traced)});
    return std::move(made.shown);
}

}  // namespace

std::string Simulation::chrome_trace() const { return shard::chrome_trace_of(events); }

Status Simulation::write_chakra(const std::string& name) const {
    constexpr int64_t kMostTraces = 1 << 14;
    if (devices > kMostTraces)
        return Error(Code::E0501, "traces of {} devices are {} files, more than {}", devices, devices, kMostTraces);
    for (int64_t rank = 0; rank < devices; ++rank)
        TRY(write_file(fmt::format("{}.{}.et", name, rank), shard::chakra_trace(traces->mesh, rank)));
    return {};
}

Result<std::string> fit_cluster() {
    return protect("simulate", {}, []() -> Result<std::string> {
        const auto transport = TRY(shard::mpi_transport(kFitPatience));
        shard::Cluster cluster{.name = "this machine"};
        cluster.network.push_back(TRY(shard::fit_network(*transport)));
        TRY(shard::agree(*transport, {}));
        cluster.device = TRY(host_speeds());
        TRY(shard::agree(*transport, {}));
        cluster.sources = {fmt::format("measured by {} ranks at the same time, one thread each", transport->ranks())};
        return transport->rank() == 0 ? cluster.to_json() : std::string();
    });
}

std::vector<std::string> simulated_clusters() { return shard::cluster_names(); }

Result<Simulation> simulate_gpt(const GptShape& shape, const SimulateOptions& options) {
    return protect("simulate", {},
                   [&]() -> Result<Simulation> { return with_traces(TRY(shard::gpt_simulation(shape, options))); });
}

Result<Simulation> simulate(const Model& model, const SimulateOptions& options) {
    return protect("simulate", {.text = [&] { return model.to_text(); }}, [&]() -> Result<Simulation> {
        const auto graph = TRY(shard::graph_to_shard(model.graph(), options.sizes));
        shard::MeasureSegment measured;
        if (options.measured)
            measured = [&](const shard::Segment& segment) { return measured_seconds(segment, options.compile); };
        return with_traces(TRY(shard::model_simulation(*graph, options, measured)));
    });
}

}  // namespace tessera
