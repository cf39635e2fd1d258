// The search against all shardings: of small graphs, every combination of homes for all values is planned.
#include "shard/search/search.h"

#include <cmath>

#include "graph/text/parse.h"
#include "shard/drawn.h"
#include "shard/report.h"

namespace tessera::test::shard_search_test {

using namespace shard;

namespace {

std::shared_ptr<Graph> graph_of(const std::string& text) {
    auto parsed = parse("graph g(" + text + "\n}");
    EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
    auto graph = graph_to_shard(**parsed, {});
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    return *graph;
}

std::vector<const Value*> values_of(const Graph& graph) {
    std::vector<const Value*> values;
    auto add = [&](const Value* v) {
        if (auto sizes = divisible_sizes(*v); sizes && !sizes->empty()) values.push_back(v);
    };
    for (const auto& v : graph.inputs()) add(v.get());
    for (const auto& v : graph.constants()) add(v.get());
    for (const auto& n : graph.nodes())
        for (size_t i = 0; i < n->output_count(); ++i) add(n->output(i));
    return values;
}

// The least seconds of a plan, of all homes of all values over a mesh with one axis.
double least_seconds(const std::shared_ptr<Graph>& graph, const Mesh& mesh, const SearchOptions& options) {
    const auto values = values_of(*graph);
    std::vector<size_t> at(values.size(), 0);
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = at.size(); i > 0;) {
        Shardings given;
        bool possible = true;
        for (size_t v = 0; v < values.size(); ++v) {
            const Sizes sizes = *divisible_sizes(*values[v]);
            Sharding& s = given[values[v]];
            s.dims.resize(sizes.size());
            if (at[v] == 0) continue;
            s.dims[at[v] - 1].axes = {0};
            possible &= sizes[at[v] - 1] >= mesh.size(0);
        }
        if (possible) {
            const auto plan = make_plan(graph, mesh, given, options.plan);
            EXPECT_TRUE(plan.ok());
            const bool fits = !options.memory || peak_memory(**plan).bytes() <= *options.memory;
            if (fits) least = std::min(least, cost_of(**plan, options.plan.chosen_rates()).seconds());
        }
        for (i = at.size(); i > 0 && ++at[i - 1] == divisible_sizes(*values[i - 1])->size() + 1; --i) at[i - 1] = 0;
    }
    return least;
}

const char* const kSmall[] = {
    "x: f32[8,16], w: f32[16,32], v: f32[32,16]) {\n  return matmul(relu(matmul(x, w)), v)",
    "x: f32[64,8], w: f32[8,4]) {\n  return relu(matmul(x, w))",
    "x: f32[4,64], w: f32[64,64]) {\n  return add(x, matmul(x, w))",
    "q: f32[8,16], k: f32[16,8], v: f32[8,16]) {\n  return matmul(relu(matmul(q, k)), v)",
    "x: f32[16,8], y: f32[16,8]) {\n  return reduce_sum(mul(x, y), [1], keepdims=0)",
    "x: f32[8,4,8,8], w: f32[16,4,3,3]) {\n  return relu(conv(x, w, pads=[1,1,1,1]))",
};

TEST(ShardSearch, CostsWhatTheBestOfAllShardingsDoes) {
    for (const char* text : kSmall)
        for (const double operations : {0.5, 5.0, 50.0, 1000.0}) {
            const auto graph = graph_of(text);
            for (const char* axes : {"a=2", "a=4"}) {
                const Mesh mesh = *Mesh::parse(axes);
                SearchOptions options{.plan = {.operations_per_byte = operations}};
                const auto found = search_shardings(graph, mesh, {}, options);
                ASSERT_TRUE(found.ok()) << found.error().to_string();
                const double least = least_seconds(graph, mesh, options);
                EXPECT_LE(found->best.cost.seconds(), least * 1.001)
                    << text << " over " << axes << ", " << operations << " operations a byte";
                EXPECT_TRUE(found->exact);
            }
        }
}

// Chains of matrix products, sums over rows, transposes and elementwise ops, with sizes and rates that are drawn.
TEST(ShardSearch, CostsWhatTheBestDoesOnDrawnGraphs) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        Drawing draw(seed);
        const int sizes[] = {4, 8, 16, 64};
        auto size = [&] { return sizes[draw.below(4)]; };
        int rows = size(), columns = size(), products = 0;
        std::string inputs = fmt::format("x: f32[{},{}]", rows, columns), body, last = "x";
        for (int i = 0; i < 3; ++i) {
            switch (draw.below(products < 2 ? 6 : 4)) {
                case 0: body += fmt::format("\n  %v{} = relu(%{})", i, last); break;
                case 1: body += fmt::format("\n  %v{} = mul(%{}, %{})", i, last, last); break;
                case 2:
                    body += fmt::format("\n  %v{} = transpose(%{}, perm=[1,0])", i, last);
                    std::swap(rows, columns);
                    break;
                case 3: body += fmt::format("\n  %v{0} = sub(%{1}, reduce_mean(%{1}, [1]))", i, last); break;
                default:
                    const int next = size();
                    inputs += fmt::format(", w{}: f32[{},{}]", i, columns, next);
                    body += fmt::format("\n  %v{} = matmul(%{}, w{})", i, last, i);
                    columns = next;
                    ++products;
            }
            last = fmt::format("v{}", i);
        }
        const auto graph = graph_of(inputs + ") {" + body + "\n  return %" + last);
        if (values_of(*graph).size() > 7) continue;
        const Mesh mesh = *Mesh::parse(draw.below(2) ? "a=2" : "a=4");
        SearchOptions options{.plan = {.rates = byte_rates(std::pow(10.0, double(draw.below(4))))}};
        options.plan.rates.link.latency = draw.below(2) ? 0 : 200;
        const auto found = search_shardings(graph, mesh, {}, options);
        ASSERT_TRUE(found.ok()) << found.error().to_string();
        EXPECT_LE(found->best.cost.seconds(), least_seconds(graph, mesh, options) * 1.01)
            << "seed " << seed << ": " << inputs << body;
    }
}

TEST(ShardSearch, WithinAMemoryToo) {
    for (const char* text : kSmall) {
        const auto graph = graph_of(text);
        const Mesh mesh = *Mesh::parse("a=4");
        SearchOptions options{.plan = {.operations_per_byte = 5}};
        const auto free = search_shardings(graph, mesh, {}, options);
        ASSERT_TRUE(free.ok());
        options.memory = free->best.peak.bytes() * 3 / 4;
        const double least = least_seconds(graph, mesh, options);
        const auto found = search_shardings(graph, mesh, {}, options);
        ASSERT_EQ(found.ok(), std::isfinite(least)) << text;
        if (!found.ok()) continue;
        EXPECT_LE(found->best.peak.bytes(), *options.memory);
        EXPECT_LE(found->best.cost.seconds(), least * 1.25) << text;  // prices miss what lies between two of them
        EXPECT_GE(found->best.cost.seconds(), least * 0.999) << text;
    }
}

std::string words(const Plan& plan) {
    std::map<std::string, int> counts;
    for (const PlanStep& s : plan.steps)
        if (is_collective(plan, s))
            ++counts[fmt::format("{} over {}", kind_of(plan, s), axis_names(plan.mesh, collective_axes(plan, s)))];
    std::string text;
    for (const auto& [kind, n] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, kind);
    return text;
}

std::unique_ptr<Plan> plan_of(const std::shared_ptr<Graph>& graph, const Mesh& mesh, const Judged& judged,
                              const SearchOptions& options) {
    auto plan = make_plan(graph, mesh, judged.given, options.plan);
    EXPECT_TRUE(plan.ok());
    return std::move(*plan);
}

// Blocks of a transformer with 8 heads and 256 features, for a few tokens.
std::shared_ptr<Graph> transformer(int blocks, int tokens) {
    std::string inputs = fmt::format("x: f32[1,{},256]", tokens), body, x = "x";
    for (int n = 0; n < blocks; ++n) {
        for (const char* w : {"wq", "wk", "wv", "wo"}) inputs += fmt::format(", {}{}: f32[256,256]", w, n);
        inputs += fmt::format(", g{0}: f32[256], h{0}: f32[256], w1{0}: f32[256,1024], w2{0}: f32[1024,256]", n);
        body += fmt::format(R"(
  %n{0} = layer_normalization(%{1}, g{0}, axis=-1)
  %q{0} = transpose(reshape(matmul(%n{0}, wq{0}), [1,{2},8,32]), perm=[0,2,1,3])
  %k{0} = transpose(reshape(matmul(%n{0}, wk{0}), [1,{2},8,32]), perm=[0,2,3,1])
  %v{0} = transpose(reshape(matmul(%n{0}, wv{0}), [1,{2},8,32]), perm=[0,2,1,3])
  %a{0} = matmul(softmax(matmul(%q{0}, %k{0}), axis=-1), %v{0})
  %y{0} = add(%{1}, matmul(reshape(transpose(%a{0}, perm=[0,2,1,3]), [1,{2},256]), wo{0}))
  %m{0} = layer_normalization(%y{0}, h{0}, axis=-1)
  %z{0} = add(%y{0}, matmul(gelu(matmul(%m{0}, w1{0})), w2{0})))",
                            n, x, tokens);
        x = fmt::format("z{}", n);
    }
    const auto graph = graph_of(inputs + ") {" + body + "\n  return %" + x);
    float fill = 0;
    for (const auto& in : graph->inputs()) {
        if (in->name() == "x") continue;
        Tensor t = *Tensor::zeros(DType::f32, *in->type().tensor().shape.sizes());
        for (float& w : t.mutable_as<float>()) w = fill;
        fill += 1;
        graph->replace_uses(in.get(), graph->constant(t, "weight_" + in->name()));
    }
    return graph;
}

// Few tokens: reading the weights takes longest, and Megatron's sharding divides them with two all-reduces a block.
TEST(ShardSearch, MegatronsBlockForFewTokens) {
    const auto graph = transformer(2, 8);
    const Mesh mesh = *Mesh::parse("model=8");
    SearchOptions options{.plan = {.rates = {.memory = 20e9}}};
    const auto found = search_shardings(graph, mesh, {}, options);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    const auto plan = plan_of(graph, mesh, found->best, options);
    EXPECT_EQ(words(*plan), "4 all_reduce over model");
    for (const char* block : {"0", "1"}) {
        for (const char* columns : {"wq", "wk", "wv", "w1"})
            EXPECT_EQ(
                to_string(plan->shardings.at(graph->find_value(fmt::format("weight_{}{}", columns, block))), mesh),
                "-,model");
        for (const char* rows : {"wo", "w2"})
            EXPECT_EQ(to_string(plan->shardings.at(graph->find_value(fmt::format("weight_{}{}", rows, block))), mesh),
                      "model,-");
    }
    ASSERT_TRUE(found->second);
    EXPECT_GT(found->second->cost.seconds(), found->best.cost.seconds());
}

// Many tokens: dividing the sequence costs less, unless each rank is to keep an eighth of the weights.
TEST(ShardSearch, MegatronsBlockInLittleMemory) {
    const auto graph = transformer(1, 256);
    const Mesh mesh = *Mesh::parse("model=8");
    SearchOptions options;
    Shardings megatron;
    for (const char* name : {"weight_wq0", "weight_w10"})
        megatron[graph->find_value(name)] = *parse_sharding("_,model", mesh, 2);
    const auto annotated = make_plan(graph, mesh, megatron, options.plan);
    ASSERT_TRUE(annotated.ok());
    EXPECT_EQ(words(**annotated), "2 all_reduce over model");
    const double seconds = cost_of(**annotated, options.plan.rates).seconds();
    const auto free = search_shardings(graph, mesh, {}, options);
    ASSERT_TRUE(free.ok()) << free.error().to_string();
    EXPECT_LT(free->best.cost.seconds(), seconds);
    options.memory = peak_memory(**annotated).bytes();
    const auto found = search_shardings(graph, mesh, {}, options);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_LE(found->best.cost.seconds(), 1.0001 * seconds);
    EXPECT_EQ(words(*plan_of(graph, mesh, found->best, options)), "2 all_reduce over model");
}

// Tokens in groups go to experts and back, between layers that divide the groups. The experts' weights do not fit
// whole.
TEST(ShardSearch, ExpertsReceiveTokensByAllToAll) {
    const auto graph = graph_of(
        "x: f32[8,64,64], m: f32[8,64,8,16], p: f32[64,512], q: f32[512,64], w1: f32[8,64,512], w2: f32[8,512,64]) {\n"
        "  %a = matmul(relu(matmul(x, p)), q)\n"
        "  %d = einsum(%a, m, equation=\"gsh,gsec->egch\")\n"
        "  %h = relu(einsum(%d, w1, equation=\"egch,ehk->egck\"))\n"
        "  %o = einsum(einsum(%h, w2, equation=\"egck,ekh->egch\"), m, equation=\"egch,gsec->gsh\")\n"
        "  return matmul(relu(matmul(%o, p)), q)");
    const Mesh mesh = *Mesh::parse("expert=8");
    for (const auto& in : graph->inputs()) {
        if (in->name() == "x" || in->name() == "m") continue;
        const Tensor zeros = *Tensor::zeros(DType::f32, *in->type().tensor().shape.sizes());
        graph->replace_uses(in.get(), graph->constant(zeros, "weight_" + in->name()));
    }
    SearchOptions options{.plan = {.operations_per_byte = 50}, .memory = 1600000};
    const auto found = search_shardings(graph, mesh, {}, options);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    const auto plan = plan_of(graph, mesh, found->best, options);
    EXPECT_EQ(words(*plan), "1 all_gather over expert, 2 all_to_all over expert");
    EXPECT_EQ(to_string(plan->shardings.at(graph->find_value("weight_w1")), mesh), "expert,-,-") << describe(*plan);
}

TEST(ShardSearch, ABatchOfImagesIsDivided) {
    const auto graph = graph_of(
        "x: f32[16,3,32,32], w1: f32[32,3,3,3], w2: f32[32,32,3,3], w3: f32[32,10]) {\n"
        "  %a = relu(conv(x, w1, pads=[1,1,1,1]))\n  %b = relu(conv(%a, w2, pads=[1,1,1,1]))\n"
        "  return matmul(reshape(global_average_pool(%b), [16,32]), w3)");
    const Mesh mesh = *Mesh::parse("data=4");
    const auto found = search_shardings(graph, mesh, {}, {});
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    const auto plan = plan_of(graph, mesh, found->best, {});
    EXPECT_EQ(to_string(plan->shardings.at(graph->find_value("x")), mesh), "data,-,-,-");
    EXPECT_EQ(words(*plan), "1 all_gather over data");
    ASSERT_TRUE(found->second);
    EXPECT_GE(found->second->cost.seconds(), found->best.cost.seconds());
    EXPECT_GE(found->different, 0.2);
}

// What equal layers add to the search is a little of what the first ones take.
TEST(ShardSearch, RepeatedLayersAreSolvedOnce) {
    auto layers = [](int n) {
        std::string text = "x: f32[16,8,32]", body, last = "x";
        for (int i = 0; i < n; ++i) {
            text += fmt::format(", u{0}: f32[32,128], v{0}: f32[128,32]", i);
            body += fmt::format("\n  %z{0} = add({1}, matmul(relu(matmul({1}, u{0})), v{0}))", i, last);
            last = fmt::format("%z{}", i);
        }
        return graph_of(text + ") {" + body + "\n  return " + last);
    };
    const Mesh mesh = *Mesh::parse("data=2,model=2");
    SearchOptions options{.second = false, .trials = 0};
    const auto few = search_shardings(layers(4), mesh, {}, options);
    const auto many = search_shardings(layers(24), mesh, {}, options);
    ASSERT_TRUE(few.ok() && many.ok());
    EXPECT_GT(many->eliminated, 5 * few->eliminated);
    EXPECT_LT(many->computed, 2 * few->computed + 40);
}

// Weights and the tensors that live at the same time.
TEST(ShardSearch, MemoryIsOfWhatIsLive) {
    const auto graph = graph_of("x: f32[8,4]) {\n  return relu(exp(relu(exp(neg(x)))))");
    const Mesh mesh = *Mesh::parse("a=2");
    const auto plan = make_plan(graph, mesh, {});
    ASSERT_TRUE(plan.ok());
    const PeakMemory peak = peak_memory(**plan);
    EXPECT_EQ(peak.weights, 0);
    EXPECT_EQ(peak.activations, 2 * 8 * 4 * 4);  // an operand and its result
}

}  // namespace
}  // namespace tessera::test::shard_search_test
