// ONNX's own backend tests under drawn shardings: every rank has the results of the unsharded evaluator, bit by bit
// where no sum of floats was divided. Needs the files that test/onnx/dump_suite.py writes, in build/onnx_suite_files or
// where TESSERA_SHARD_SUITE says. TESSERA_SHARD_CASES and TESSERA_SHARD_SEED choose other cases.
#include <cstdlib>
#include <filesystem>
#include <set>

#include "graph/onnx/from_onnx.h"
#include "graph/onnx/values.h"
#include "onnx/read.h"
#include "shard/drawn.h"
#include "source_dir.h"

namespace tessera::test::shard_suite_test {

using namespace shard;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kMostElements = 1 << 16;  // of an input

fs::path suite_folder() {
    const char* given = std::getenv("TESSERA_SHARD_SUITE");
    return given ? fs::path(given) : fs::path(source_dir()) / "build" / "onnx_suite_files";
}

uint64_t number_from(const char* name, uint64_t standard) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : standard;
}

std::vector<fs::path> models() {
    std::vector<fs::path> found;
    for (const char* kind : {"node", "simple", "pytorch-converted", "pytorch-operator"})
        for (const auto& entry : fs::directory_iterator(suite_folder() / kind))
            if (fs::exists(entry.path() / "test_data_set_0" / "input_0.pb")) found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
}

struct Sample {
    std::unique_ptr<Graph> graph;
    Inputs inputs;
};

// A model with the inputs of its first data set. Nothing where an input is no tensor, or large.
std::optional<Sample> read_sample(const fs::path& folder) {
    auto model = onnx::read_model_file(folder / "model.onnx");
    if (!model.ok()) return {};
    auto graph = from_onnx(*model);
    if (!graph.ok()) return {};
    Sample sample{std::move(*graph), {}};
    for (size_t i = 0; i < model->graph.inputs.size(); ++i) {
        const fs::path file = folder / "test_data_set_0" / fmt::format("input_{}.pb", i);
        const Value* v = sample.graph->find_value(model->graph.inputs[i].name);
        if (!v || v->kind() != Value::Kind::Input || !fs::exists(file)) continue;
        auto raw = onnx::read_tensor_file(file);
        if (!v->type().is_tensor() || !raw.ok()) return {};
        auto tensor = tensor_from_onnx(*raw);
        if (!tensor.ok() || tensor->elements() > kMostElements) return {};
        sample.inputs[v->name()] = *tensor;
    }
    return sample;
}

// Integers that say shapes, axes and the like become constants, so that bodies can be read.
void fix_small_integers(Sample& sample) {
    for (const auto& v : sample.graph->inputs()) {
        const auto given = sample.inputs.find(v->name());
        if (given == sample.inputs.end() || !is_int(given->second.tensor().dtype())) continue;
        if (given->second.tensor().elements() <= 64)
            sample.graph->replace_uses(v.get(), sample.graph->constant(given->second.tensor()));
    }
}

bool divides_float_sums(const Plan& plan) {
    return std::any_of(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& s) {
        auto* c = std::get_if<CombineStep>(&s);
        return c && is_float(plan.held[size_t(c->from)].dtype) && (c->op == ReduceOp::Sum || c->op == ReduceOp::Prod);
    });
}

// Up to the rounding of partial sums, relative to the largest element.
bool close(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || a.sizes() != b.sizes()) return false;
    const double unit = a.dtype() == DType::f64    ? 1e-12
                        : a.dtype() == DType::bf16 ? 0x1p-6
                        : a.dtype() == DType::f16  ? 0x1p-8
                                                   : 1e-5;
    double largest = 1;
    for (int64_t i = 0; i < b.elements(); ++i)
        if (std::isfinite(b.real_at(i))) largest = std::max(largest, std::fabs(b.real_at(i)));
    for (int64_t i = 0; i < a.elements(); ++i) {
        const double x = a.real_at(i), y = b.real_at(i);
        if (!(x == y || (std::isnan(x) && std::isnan(y)) || std::fabs(x - y) <= unit * largest)) return false;
    }
    return true;
}

struct Counts {
    size_t cases = 0, divided = 0, exact = 0;  // with a node that was divided; compared bit by bit
    std::set<std::string> ops;                 // that were divided
};

void run_case(const fs::path& folder, uint64_t seed, Counts& counts) {
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, folder.filename().string()));
    auto sample = read_sample(folder);
    if (!sample) return;
    Drawing draw(seed);
    if (draw.below(4) > 0) fix_small_integers(*sample);
    SymbolValues sizes;
    std::vector<Datum> inputs;
    for (const auto& v : sample->graph->inputs()) {
        const auto given = sample->inputs.find(v->name());
        if (given == sample->inputs.end()) return;  // has a default
        if (!binds(v->type(), type_of(given->second), sizes)) return;
        inputs.push_back(given->second);
    }
    auto graph = graph_to_shard(*sample->graph, sizes);
    if (!graph.ok()) return;
    const auto want = evaluate(**graph, sample->inputs);
    if (!want.ok()) return;
    const Mesh mesh = draw.mesh();
    PlanOptions options{.overlap_operations = draw.below(2) > 0 ? 1.0 : 1e9};
    if (draw.below(4) > 0) options.draw = [&](size_t n) { return draw.below(n); };
    auto plan = make_plan(*graph, mesh, draw.shardings(**graph, mesh), options);
    if (!plan.ok()) {
        EXPECT_EQ(plan.error().code(), Code::E0409) << plan.error().to_string();
        return;
    }
    const bool rounds = divides_float_sums(**plan);
    const std::string wrong = wrong_on_threads(**plan, inputs, *want, rounds ? close : never_equal);
    EXPECT_EQ(wrong, "") << describe(**plan);
    ++counts.cases;
    counts.exact += !rounds;
    const size_t before = counts.ops.size();
    bool divided = false;
    for (const PlanStep& s : (*plan)->steps)
        if (auto* c = std::get_if<ComputeStep>(&s); c && c->body && c->ranges.front() != c->ranges.back()) {
            divided = true;
            counts.ops.insert(c->unit->node->op().name);
        }
    counts.divided += divided || counts.ops.size() > before;
}

TEST(ShardSuite, OnnxTestsUnderDrawnShardings) {
    if (!fs::exists(suite_folder() / "node"))
        GTEST_SKIP() << "SKIP: no " << suite_folder().string() << "; test/onnx/dump_suite.py writes it";
    const std::vector<fs::path> all = models();
    const uint64_t cases = number_from("TESSERA_SHARD_CASES", 1000);
    const uint64_t first = number_from("TESSERA_SHARD_SEED", 1) * 1000003;
    Counts counts;
    Drawing order(first);
    for (uint64_t i = 0; counts.cases < cases && i < 4 * cases; ++i) {
        // All of them in turn where there are cases enough, otherwise some.
        const size_t at = cases >= all.size() ? i % all.size() : order.below(all.size());
        run_case(all[at], first + i, counts);
    }
    EXPECT_GT(counts.cases, cases / 2);
    fmt::print("seed {}: {} cases, {} with divided nodes, {} compared bit by bit, {} ops divided\n", first / 1000003,
               counts.cases, counts.divided, counts.exact, counts.ops.size());
}

}  // namespace
}  // namespace tessera::test::shard_suite_test
