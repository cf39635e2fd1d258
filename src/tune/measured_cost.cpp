#include "tune/measured_cost.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/random.h"
#include "runtime/code_cache.h"
#include "tessera/compile.h"
#include "tune/clock.h"

namespace tessera {
namespace {

constexpr size_t kEvicted = size_t{6} << 20;  // bytes read between runs: more than the caches of one core hold
constexpr int kLeastRuns = 3, kMostRuns = 50;

std::optional<Sizes> sizes_of(const Value& v) {
    if (!v.type().is_tensor() || !v.type().tensor().shape.ranked()) return {};
    Sizes sizes;
    for (const Expr& d : v.type().tensor().shape.dims()) {
        if (!d.as_int()) return {};
        sizes.push_back(*d.as_int());
    }
    return sizes;
}

std::optional<Tensor> weights_like(const Value& v) {
    if (v.is_constant()) return *v.tensor();
    auto sizes = sizes_of(v);
    if (!sizes || v.type().tensor().dtype != DType::f32) return {};
    int64_t count = 1;
    for (int64_t s : *sizes) count *= s;
    RandomStream random(0, "weights");
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(random.bits(i) % 2048) / 1024 - 1;
    return Tensor::of<float>(*sizes, values);
}

// The node alone, as a model.
std::optional<Model> alone(const Node& node) {
    auto graph = std::make_shared<Graph>("node");
    graph->info().opset = node.graph().info().opset;
    NodeSpec spec{&node.op(), {}, node.attrs(), node.output_count()};
    std::unordered_map<const Value*, Value*> given;
    for (const Value* v : node.inputs()) {
        if (!v) {
            spec.inputs.push_back(nullptr);
        } else if (from_weights(*v)) {
            auto tensor = weights_like(*v);
            if (!tensor) return {};
            spec.inputs.push_back(graph->constant(std::move(*tensor)));
        } else {
            if (!sizes_of(*v)) return {};
            auto [it, fresh] = given.emplace(v, nullptr);
            if (fresh) it->second = graph->add_input(fmt::format("x{}", given.size()), v->type());
            spec.inputs.push_back(it->second);
        }
    }
    if (given.empty()) return {};
    auto made = graph->add(std::move(spec));
    if (!made.ok()) return {};
    for (size_t i = 0; i < (*made)->output_count(); ++i) graph->add_output((*made)->output(i), fmt::format("y{}", i));
    return Model(graph);
}

// Reads through more memory than the nearer caches have.
double evict() {
    static const std::vector<char> memory(kEvicted, 1);
    double sum = 0;
    for (size_t i = 0; i < memory.size(); i += 64) sum += static_cast<const volatile char&>(memory[i]);
    return sum;
}

}  // namespace

MeasuredCost::MeasuredCost(const MeasureOptions& options)
    : options_(options), estimate_(estimated_cost(options.speeds)) {}

Result<std::unique_ptr<MeasuredCost>> MeasuredCost::open(const MeasureOptions& options) {
    const CodeCache cache = TRY(CodeCache::open(options.cache));
    std::unique_ptr<MeasuredCost> made(new MeasuredCost(options));
    if (!cache.enabled()) return made;
    made->file_ = (cache.folder() / fmt::format("costs-{}.txt", code_key({"costs", options.target}))).string();
    std::ifstream in(made->file_);
    for (std::string line; std::getline(in, line);) {
        size_t tab = line.find('\t');
        char* end = nullptr;
        double seconds = std::strtod(line.c_str(), &end);
        if (tab != std::string::npos && end == line.c_str() + tab && seconds > 0)
            made->known_[line.substr(tab + 1)] = seconds;
    }
    return made;
}

MeasuredCost::~MeasuredCost() { save(); }

void MeasuredCost::save() {
    if (file_.empty() || fresh_.empty()) return;
    std::ofstream out(file_, std::ios::app);
    for (const std::string& key : fresh_) out << fmt::format("{:.9e}\t{}\n", known_[key], key);
    fresh_.clear();
}

double MeasuredCost::node(const Node& node) {
    const Work work = work_of(node);
    const double estimate = estimate_->node(node);
    if (work == Work::View || work == Work::Map || estimate < options_.least) return estimate;
    std::string key = cost_key(node);
    auto it = known_.find(key);
    if (it != known_.end()) return it->second;
    if (spent_ > options_.budget) return estimate * (estimated_ > 0 ? clocked_ / estimated_ : 1);
    const auto began = std::chrono::steady_clock::now();
    std::optional<double> seconds = measure(node);
    spent_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    ++measured_;
    if (seconds) {
        fresh_.push_back(key);
        clocked_ += *seconds;
        estimated_ += estimate;
    }
    return known_[key] = seconds.value_or(estimate);
}

std::optional<double> MeasuredCost::measure(const Node& node) const {
    std::optional<Model> model = alone(node);
    if (!model) return {};
    auto executable = compile(*model, {.target = options_.target, .threads = 1, .cache = ""});
    if (!executable.ok()) return {};
    auto inputs = model->random_inputs(0);
    if (!inputs.ok() || !executable->run(*inputs).ok()) return {};
    double best = 1e9, sum = 0;
    for (int i = 0; i < kMostRuns && (i < kLeastRuns || sum < options_.seconds); ++i) {
        evict();
        const double began = processor_seconds();
        if (!executable->run(*inputs).ok()) return {};
        const double took = processor_seconds() - began;
        best = std::min(best, took);
        sum += took;
    }
    return best;
}

}  // namespace tessera
