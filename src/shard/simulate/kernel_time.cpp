#include "shard/simulate/kernel_time.h"

#include <algorithm>
#include <map>

#include "backends/backend.h"
#include "graph/count.h"
#include "kernel/from_graph/from_graph.h"

namespace tessera::shard {
namespace {

constexpr double kProductIntensity = 16;  // operations for each byte, from which on a node is a product

double value_of(const Expr& e) { return double(e.as_int().value_or(0)); }

DType operand_type(const Node& node) {
    for (const Value* v : node.inputs())
        if (v && v->type().is_tensor()) return v->type().tensor().dtype;
    return DType::f32;
}

KernelTime kernel_time(const KernelStep& step, const DeviceSpeeds& speeds) {
    KernelTime t{.label = step.label, .flops = value_of(step.flops), .bytes = value_of(step.bytes)};
    double rate = speeds.scalar_flops;
    for (const Node* node : step.nodes) {
        if (!is_product(*node)) continue;
        t.product = true;
        t.product_flops += value_of(count(*node).flops);
        rate = speeds.peak(operand_type(*node)) * speeds.product_fraction(t.flops);
    }
    t.seconds = std::max(t.flops / rate, t.bytes / speeds.bytes_per_second) + speeds.launch;
    return t;
}

// By the evaluator on the host, or in code of the op's own: at the speed of memory.
KernelTime host_time(const Node& node, const DeviceSpeeds& speeds) {
    const Cost cost = count(node);
    const double bytes = value_of(cost.bytes);
    return {std::string(node.op().name), value_of(cost.flops), bytes, bytes / speeds.bytes_per_second + speeds.launch};
}

std::vector<int> buffers_of(const Step& step) {
    std::vector<int> buffers;
    if (auto* kernel = std::get_if<KernelStep>(&step)) {
        buffers = kernel->args;
    } else {
        buffers = inputs_of(step);
        for (int b : values_made(step)) buffers.push_back(b);
    }
    return buffers;
}

double scratch_bytes(const Program& program) {
    std::map<int, std::pair<size_t, size_t>> lives;  // by buffer: the first and the last step
    auto root = [&](int b) {
        while (program.buffers[size_t(b)].alias >= 0) b = program.buffers[size_t(b)].alias;
        return b;
    };
    for (size_t s = 0; s < program.steps.size(); ++s)
        for (int b : buffers_of(program.steps[s])) {
            if (b < 0) continue;
            const BufferRole role = program.buffers[size_t(root(b))].role;
            if (role != BufferRole::Intermediate && role != BufferRole::Output) continue;
            lives.try_emplace(root(b), s, s).first->second.second = s;
        }
    for (int b : program.outputs)
        if (auto at = lives.find(root(b)); at != lives.end()) at->second.second = program.steps.size();
    std::vector<double> change(program.steps.size() + 2);
    for (const auto& [b, life] : lives) {
        const ProgramBuffer& buffer = program.buffers[size_t(b)];
        double bytes = double(dtype_bytes(buffer.dtype));
        for (const Expr& n : buffer.shape) bytes *= value_of(n);
        change[life.first] += bytes;
        change[life.second + 1] -= bytes;
    }
    double now = 0, most = 0;
    for (double c : change) most = std::max(most, now += c);
    return most;
}

}  // namespace

Result<Machine> machine_of(const Cluster& cluster) {
    const Backend* backend = TRY(find_backend(cluster.device.target));
    return backend->machine(cluster.device.target);
}

bool is_product(const Node& node) {
    if (node.is(Trait::Bilinear) && !node.is(Trait::Elementwise)) return true;
    const Cost cost = count(node);
    return value_of(cost.flops) > kProductIntensity * value_of(cost.bytes);
}

double product_flops(const Graph& graph) {
    double flops = 0;
    for (const auto& node : graph.nodes())
        if (is_product(*node)) flops += value_of(count(*node).flops);
    return flops;
}

Result<GraphTime> graph_time(const std::shared_ptr<const Graph>& graph, const Machine& machine,
                             const DeviceSpeeds& speeds) {
    LowerOptions lower{.machine = machine};
    lower.schedule = false;
    const Program program = TRY(from_graph(graph, lower));
    GraphTime time;
    for (const Step& step : program.steps) {
        if (auto* kernel = std::get_if<KernelStep>(&step))
            time.kernels.push_back(kernel_time(*kernel, speeds));
        else if (const std::string_view kind = kind_of(step); kind == "host" || kind == "device")
            time.kernels.push_back(host_time(*node_of(step), speeds));
    }
    for (const KernelTime& k : time.kernels) {
        time.seconds += k.seconds;
        time.product_flops += k.product_flops;
    }
    time.scratch = scratch_bytes(program);
    return time;
}

}  // namespace tessera::shard
