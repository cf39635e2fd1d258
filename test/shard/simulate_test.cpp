// Simulated steps: closed forms of collectives and pipelines, and properties that every simulation has.
#include "tessera/simulate.h"

#include <nlohmann/json.hpp>
#include <thread>

#include "graph/text/parse.h"
#include "runtime/collectives/fit_network.h"
#include "shard/cluster.h"
#include "shard/drawn.h"
#include "shard/simulate/gpt_blocks.h"
#include "shard/simulate/pipeline.h"
#include "shard/simulate/rank_time.h"
#include "shard/simulate/split_passes.h"
#include "shard/simulate/stage_graphs.h"

namespace tessera::test::simulate_test {

using namespace shard;

namespace {

const Network kNetwork{{"inner", 8, 2e-6, 100e9}, {"outer", 0, 10e-6, 10e9}};

TEST(Simulate, RingsTakeTheirClosedForm) {
    const double bytes = 1e9, ring = 7 * 2e-6 + 7.0 / 8 * bytes / 100e9;
    EXPECT_DOUBLE_EQ(collective_seconds(CollectiveKind::AllGather, bytes, {8, 1}, kNetwork), ring);
    EXPECT_DOUBLE_EQ(collective_seconds(CollectiveKind::ReduceScatter, bytes, {8, 1}, kNetwork), ring);
    EXPECT_DOUBLE_EQ(collective_seconds(CollectiveKind::AllReduce, bytes, {8, 1}, kNetwork), 2 * ring);
    // Between nodes, of what a device has of it within one.
    const double outer = 15 * 10e-6 + 15.0 / 16 * bytes / 8 / 10e9;
    EXPECT_DOUBLE_EQ(collective_seconds(CollectiveKind::AllGather, bytes, {8, 16}, kNetwork), ring + outer);
    EXPECT_DOUBLE_EQ(collective_seconds(CollectiveKind::SendReceive, bytes, {1, 2}, kNetwork), 10e-6 + 0.1);
    EXPECT_DOUBLE_EQ(collective_seconds(CollectiveKind::SendReceive, bytes, {2, 1}, kNetwork), 2e-6 + 0.01);
    EXPECT_DOUBLE_EQ(collective_seconds(CollectiveKind::AllReduce, bytes, {1, 1}, kNetwork), 0);
}

TEST(Simulate, TreesReduceWhatIsSmall) {
    // 2 lg 1024 latencies, not 2 * 1023.
    const GroupShape many{1, 1024};
    EXPECT_LT(collective_seconds(CollectiveKind::AllReduce, 8, many, kNetwork), 21 * 10e-6);
    EXPECT_GT(collective_seconds(CollectiveKind::AllGather, 8, many, kNetwork), 1000 * 10e-6);
}

TEST(Simulate, GroupsFollowTheOrderOfTheAxes) {
    const Mesh mesh = *Mesh::parse("data=4,model=8");
    EXPECT_EQ(group_shape(kNetwork, mesh, {1}), (GroupShape{8, 1}));
    EXPECT_EQ(group_shape(kNetwork, mesh, {0}), (GroupShape{1, 4}));
    EXPECT_EQ(group_shape(kNetwork, mesh, {0, 1}), (GroupShape{8, 4}));
    const Mesh other = *Mesh::parse("model=8,data=4");
    EXPECT_EQ(group_shape(kNetwork, other, {0}), (GroupShape{2, 4}));
    EXPECT_EQ(group_shape(kNetwork, other, {1}), (GroupShape{4, 1}));
    EXPECT_EQ(group_shape(kNetwork, 8, 100000), (GroupShape{1, 100000}));
}

PipelineTime pipeline(PipelineSchedule schedule, int64_t stages, int64_t microbatches, int64_t chunks = 1,
                      bool training = true) {
    const PipelineShape shape{schedule, stages, microbatches, chunks, training};
    // The same work on each stage, whatever the number of chunks.
    const ChunkTime chunk{1.0 / double(chunks), training ? 2.0 / double(chunks) : 0};
    auto time = pipeline_time(shape, std::vector<ChunkTime>(size_t(stages * chunks), chunk));
    EXPECT_TRUE(time.ok()) << time.error().to_string();
    return *time;
}

TEST(Simulate, BubblesTakeTheirClosedForm) {
    for (const int64_t p : {1, 2, 4, 8})
        for (const int64_t m : {8, 16, 64}) {
            const double bubble = double(p - 1) / double(m + p - 1);
            EXPECT_NEAR(pipeline(PipelineSchedule::OneFOneB, p, m).bubble(), bubble, 1e-12) << p << " " << m;
            EXPECT_NEAR(pipeline(PipelineSchedule::GPipe, p, m).bubble(), bubble, 1e-12) << p << " " << m;
            for (const int64_t v : {2, 4}) {  // the stages wait a v-th of the time
                const double idle = double(p - 1) / double(v);
                EXPECT_NEAR(pipeline(PipelineSchedule::Interleaved, p, m, v).bubble(), idle / (double(m) + idle), 1e-12)
                    << p << " " << m << " " << v;
            }
        }
    EXPECT_NEAR(pipeline(PipelineSchedule::OneFOneB, 4, 8, 1, false).bubble(), 3.0 / 11, 1e-12);
}

TEST(Simulate, StagesKeepAsManyMicrobatchesAsTheScheduleNeeds) {
    EXPECT_EQ(pipeline(PipelineSchedule::GPipe, 4, 16).in_flight, (std::vector<int64_t>{16, 16, 16, 16}));
    EXPECT_EQ(pipeline(PipelineSchedule::OneFOneB, 4, 16).in_flight, (std::vector<int64_t>{4, 3, 2, 1}));
    EXPECT_EQ(pipeline(PipelineSchedule::OneFOneB, 4, 2).in_flight, (std::vector<int64_t>{2, 2, 2, 1}));
    // Chunks of half the size: 2 (p - 1 - s) + (v - 1) p + 1.
    EXPECT_EQ(pipeline(PipelineSchedule::Interleaved, 4, 16, 2).in_flight, (std::vector<int64_t>{11, 9, 7, 5}));
}

TEST(Simulate, PassesOfAPipelineKeepTheirOrder) {
    const PipelineShape shape{PipelineSchedule::Interleaved, 4, 8, 3, true};
    std::vector<ChunkTime> chunks;
    for (int i = 0; i < 12; ++i) chunks.push_back({1 + 0.1 * i, 2 - 0.05 * i, 0.3, 0.2});
    const auto time = pipeline_time(shape, chunks);
    ASSERT_TRUE(time.ok()) << time.error().to_string();
    std::map<std::tuple<bool, int64_t, int64_t>, PipelineEvent> events;  // by pass, chunk of the model, microbatch
    for (const auto& stage : time->stages) {
        double free = 0;
        EXPECT_EQ(stage.size(), 8u * 3 * 2);
        for (const PipelineEvent& e : stage) {
            EXPECT_GE(e.begin, free);
            free = e.end;
            EXPECT_TRUE(events.emplace(std::tuple{e.forward, e.chunk * 4 + e.stage, e.microbatch}, e).second);
        }
    }
    for (const auto& [key, e] : events) {
        const auto& [forward, at, m] = key;
        if (forward && at > 0) {
            EXPECT_GE(e.begin, events.at({true, at - 1, m}).end + 0.3);
        }
        if (!forward && at < 11) {
            EXPECT_GE(e.begin, events.at({false, at + 1, m}).end + 0.2);
        }
        if (!forward) {
            EXPECT_GE(e.begin, events.at({true, at, m}).end);
        }
    }
}

TEST(Simulate, InterleavedMicrobatchesAreMultiplesOfTheStages) {
    const auto time = pipeline_time({PipelineSchedule::Interleaved, 4, 6, 2, true}, std::vector<ChunkTime>(8));
    ASSERT_FALSE(time.ok());
    EXPECT_EQ(time.error().code(), Code::E0501);
}

TEST(Simulate, BuiltInClustersAreReadAndWritten) {
    EXPECT_GE(cluster_names().size(), 2u);
    for (const std::string& name : cluster_names()) {
        const auto cluster = find_cluster(name);
        ASSERT_TRUE(cluster.ok()) << cluster.error().to_string();
        EXPECT_EQ(cluster->name, name);
        EXPECT_FALSE(cluster->sources.empty()) << "its numbers have sources";
        const auto again = parse_cluster(cluster->to_json(), name);
        ASSERT_TRUE(again.ok()) << again.error().to_string();
        EXPECT_EQ(again->to_json(), cluster->to_json());
        const DeviceSpeeds& d = cluster->device;
        for (double flops = 1e6, before = 0; flops < 1e14; flops *= 3) {  // no product is faster than a smaller one
            const double seconds = flops / (d.peak(DType::bf16) * d.product_fraction(flops));
            EXPECT_GE(seconds, before * (1 - 1e-12)) << flops;
            before = seconds;
        }
    }
}

TEST(Simulate, MalformedClustersAreRefused) {
    const std::string good = find_cluster("dgx-h100")->to_json();
    EXPECT_TRUE(parse_cluster(good, "c").ok());
    auto changed = [&](const std::function<void(nlohmann::ordered_json&)>& change) {
        auto json = nlohmann::ordered_json::parse(good);
        change(json);
        const auto read = parse_cluster(json.dump(), "c");
        return read.ok() ? "" : read.error().to_string();
    };
    using Json = nlohmann::ordered_json;
    EXPECT_NE(changed([](Json& j) { j["format"] = "other"; }).find("E0110"), std::string::npos);
    EXPECT_NE(changed([](Json& j) { j["devices"] = 3; }).find("no field \"devices\""), std::string::npos);
    EXPECT_NE(changed([](Json& j) { j["device"]["memory_bytes"] = -1; }).find("E0212"), std::string::npos);
    EXPECT_NE(changed([](Json& j) { j["device"]["flops"]["x9"] = 1; }).find("element type"), std::string::npos);
    EXPECT_NE(changed([](Json& j) { j["network"] = Json::array(); }).find("no network"), std::string::npos);
    EXPECT_NE(changed([](Json& j) { j["network"][0]["latency_seconds"] = "x"; }).find("no number"), std::string::npos);
    EXPECT_FALSE(parse_cluster("[1", "c").ok());
    const auto misspelt = find_cluster("dgx-h10");
    ASSERT_FALSE(misspelt.ok());
    EXPECT_NE(misspelt.error().to_string().find("did you mean dgx-h100"), std::string::npos);
}

const GptShape kSmall{.layers = 8, .hidden = 512, .heads = 8, .sequence = 256, .vocabulary = 4096};

Simulation simulated(const GptShape& shape, const SimulateOptions& options) {
    auto s = simulate_gpt(shape, options);
    EXPECT_TRUE(s.ok()) << s.error().to_string();
    return *s;
}

// What a step's time is made of, and that no device does more than it can.
void expect_consistent(const Simulation& s) {
    EXPECT_GT(s.seconds, 0);
    EXPECT_NEAR(s.compute + s.communication + s.bubble + s.reduction + s.update, s.seconds, 1e-9 * s.seconds);
    EXPECT_GT(s.utilization, 0);
    EXPECT_LE(s.hardware_utilization, 1);
    EXPECT_GT(s.memory, 0);
    std::map<std::string, double> free;
    for (const TimelineEvent& e : s.events) {
        EXPECT_GE(e.begin, free[e.lane] - 1e-12) << e.lane << " " << e.name;
        free[e.lane] = e.begin + e.seconds;
        EXPECT_LE(e.begin + e.seconds, s.seconds * (1 + 1e-9)) << e.lane << " " << e.name;
    }
}

TEST(Simulate, StepsOfAGptAreConsistent) {
    for (const char* schedule : {"gpipe", "1f1b", "interleaved"})
        for (const bool overlap : {false, true})
            for (const bool shard : {false, true}) {
                SimulateOptions options{.mesh = "pipeline=2,data=4,model=2"};
                options.schedule = schedule;
                options.overlap = overlap;
                options.shard_optimizer = shard;
                options.microbatches = 8;
                if (options.schedule == std::string("interleaved")) options.chunks = 2;
                const Simulation s = simulated(kSmall, options);
                expect_consistent(s);
                EXPECT_EQ(s.devices, 16);
                EXPECT_EQ(s.stages.size(), 2u);
            }
}

TEST(Simulate, ReplicasOnlyAddTheirReduction) {
    SimulateOptions options{.mesh = "pipeline=2,data=2,model=4"};
    options.microbatches = 8;
    const Simulation few = simulated(kSmall, options);
    EXPECT_GT(few.reduction, 0);
    options.mesh = "pipeline=2,data=512,model=4";
    const Simulation many = simulated(kSmall, options);
    EXPECT_EQ(many.devices, 4096);
    for (size_t i : {0, 1}) {
        EXPECT_EQ(many.stages[i].forward, few.stages[i].forward);
        EXPECT_EQ(many.stages[i].backward, few.stages[i].backward);
    }
    EXPECT_NEAR(many.seconds - many.reduction, few.seconds - few.reduction, 1e-3 * few.seconds);
    EXPECT_GT(many.reduction, few.reduction);
    EXPECT_EQ(many.memory, few.memory);
    options.shard_optimizer = true;
    const Simulation divided = simulated(kSmall, options);
    EXPECT_NEAR(divided.stages[0].memory.optimizer, many.stages[0].memory.optimizer / 512, 1);
}

TEST(Simulate, MoreRecomputationTakesMoreTimeAndLessMemory) {
    SimulateOptions options{.mesh = "model=2"};
    std::map<std::string, Simulation> by;
    for (const char* recompute : {"none", "selective", "full"}) {
        options.recompute = recompute;
        by[recompute] = simulated(kSmall, options);
        EXPECT_NEAR(by[recompute].utilization * by[recompute].seconds, by["none"].utilization * by["none"].seconds,
                    1e-9)
            << "what the model needs does not change";
    }
    auto kept = [&](const char* name) { return by[name].stages[0].memory.activations; };
    EXPECT_GT(kept("none"), kept("selective"));
    EXPECT_GT(kept("selective"), kept("full"));
    EXPECT_LT(by["none"].seconds, by["full"].seconds);
    EXPECT_GT(by["full"].hardware_utilization * by["full"].seconds,
              1.2 * by["none"].hardware_utilization * by["none"].seconds);
}

TEST(Simulate, TensorParallelismDividesWeightsAndWork) {
    SimulateOptions options{.mesh = "model=1"};
    const Simulation one = simulated(kSmall, options);
    EXPECT_NEAR(one.communication, 0, 1e-12);
    options.mesh = "model=8";
    const Simulation eight = simulated(kSmall, options);
    EXPECT_GT(eight.communication, 0);
    EXPECT_LT(eight.compute, one.compute);
    EXPECT_LT(eight.memory, one.memory);
    // 12 h^2 for each layer, and the embedding.
    EXPECT_NEAR(one.parameters, 8 * 12 * 512.0 * 512 + 2 * 4096 * 512 + 256 * 512, 0.01 * one.parameters);
    EXPECT_EQ(one.parameters, eight.parameters);
    std::map<std::string, int> kinds;
    for (const SimulatedStep& step : eight.steps)
        if (step.pass == "layer, forward" || step.pass == "layer, backward") ++kinds[step.pass + ", " + step.kind];
    EXPECT_EQ((kinds["layer, forward, all_reduce"]), 2);
    EXPECT_EQ((kinds["layer, backward, all_reduce"]), 2);
}

TEST(Simulate, MistakesAreNamed) {
    auto error = [](const GptShape& shape, SimulateOptions options) {
        const auto s = simulate_gpt(shape, options);
        return s.ok() ? std::string() : s.error().to_string();
    };
    SimulateOptions options{.mesh = "pipeline=3"};
    EXPECT_NE(error(kSmall, options).find("8 layers do not divide into 3 stages"), std::string::npos);
    options.mesh = "model=2";
    options.schedule = "2f2b";
    EXPECT_NE(error(kSmall, options).find("no schedule"), std::string::npos);
    options.schedule = "1f1b";
    options.recompute = "some";
    EXPECT_NE(error(kSmall, options).find("no recomputation"), std::string::npos);
    options.recompute = "none";
    options.chunks = 2;
    EXPECT_NE(error(kSmall, options).find("interleaved"), std::string::npos);
    options.chunks = 1;
    options.cluster = "nothing";
    EXPECT_NE(error(kSmall, options).find("no cluster"), std::string::npos);
    options.cluster = "dgx-h100";
    GptShape odd = kSmall;
    odd.heads = 7;
    EXPECT_NE(error(odd, options).find("heads"), std::string::npos);
}

// The backward pass from what is kept equals the gradients of the whole graph.
TEST(Simulate, SplitPassesComputeTheSameGradients) {
    auto parsed = parse(
        "graph g(x: f32[4,256], w: f32[256,8], v: f32[8,5], g: f32[4,5]) {\n"
        "  %a = matmul(x, w)\n  %h = tanh(%a)\n  %y = matmul(%h, v)\n"
        "  %t = matmul(g, transpose(v, perm=[1,0]))\n  %d = mul(%t, sub(1.0, mul(%h, %h)))\n"
        "  %dw = matmul(transpose(x, perm=[1,0]), %d)\n  %dv = matmul(transpose(%h, perm=[1,0]), g)\n"
        "  return %y, %dw, %dv\n}");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    const Graph& whole = **parsed;
    Inputs named;
    const RandomStream random(5, "passes");
    uint64_t next = 0;
    for (const auto& in : whole.inputs()) {
        Tensor t = *Tensor::zeros(DType::f32, *in->type().tensor().shape.sizes());
        for (float& e : t.mutable_as<float>()) e = float(random.uniform(next++) - 0.5);
        named[in->name()] = t;
    }
    const auto want = evaluate(whole, named);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    for (const Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
        const auto passes = split_passes(whole, recompute);
        ASSERT_TRUE(passes.ok()) << passes.error().to_string();
        EXPECT_EQ(passes->forward->outputs().size(), 1 + passes->kept);
        EXPECT_EQ(passes->kept, recompute == Recompute::None ? 1u : 0u);  // 128 operations for a byte
        const auto forward = evaluate(*passes->forward, named);
        ASSERT_TRUE(forward.ok()) << forward.error().to_string();
        EXPECT_TRUE((*forward)[0].tensor().same_bits((*want)[0].tensor()));
        Inputs with_kept = named;
        for (size_t k = 0; k < passes->kept; ++k)
            with_kept[passes->backward->inputs()[passes->inputs + k]->name()] = (*forward)[1 + k].tensor();
        const auto backward = evaluate(*passes->backward, with_kept);
        ASSERT_TRUE(backward.ok()) << backward.error().to_string();
        for (size_t i : {0, 1}) EXPECT_TRUE((*backward)[i].tensor().same_bits((*want)[1 + i].tensor())) << i;
    }
}

TEST(Simulate, StagesComputeWhatTheGraphDoes) {
    auto parsed = parse(
        "graph g(x: f32[8,16], a: f32[16,16], b: f32[16,16], c: f32[16,16]) {\n"
        "  %p = relu(matmul(x, a))\n  %q = relu(matmul(%p, b))\n  %r = add(matmul(%q, c), %p)\n  return %r, %p\n}");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    const auto stages = stage_graphs(**parsed, 3, find_cluster("dgx-h100")->device);
    ASSERT_TRUE(stages.ok()) << stages.error().to_string();
    ASSERT_EQ(stages->size(), 3u);
    size_t nodes = 0;
    for (const StageGraph& s : *stages) {
        EXPECT_GE(s.graph->nodes().size(), 1u);
        nodes += s.graph->nodes().size();
    }
    EXPECT_EQ(nodes, (*parsed)->nodes().size());
    EXPECT_TRUE(stages->back().sent.empty());
    EXPECT_EQ((*stages)[2].received, (*stages)[1].sent) << "what an earlier stage made passes through";
    EXPECT_FALSE(stage_graphs(**parsed, 100, find_cluster("dgx-h100")->device).ok());
}

TEST(Simulate, ModelsRunOnStagesAndReplicas) {
    auto parsed = parse(
        "graph g(x: f32[64,512], a: f32[512,512], b: f32[512,512], c: f32[512,512], d: f32[512,512]) {\n"
        "  %p = relu(matmul(x, a))\n  %q = relu(matmul(%p, b))\n  %r = relu(matmul(%q, c))\n"
        "  return matmul(%r, d)\n}");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    const Model model(std::move(*parsed));
    auto run = [&](const std::string& mesh, std::vector<std::pair<std::string, std::string>> annotations,
                   int64_t microbatches) {
        SimulateOptions options{.mesh = mesh, .annotations = std::move(annotations)};
        options.microbatches = microbatches;
        auto s = simulate(model, options);
        EXPECT_TRUE(s.ok()) << s.error().to_string();
        expect_consistent(*s);
        return *s;
    };
    const Simulation one = run("data=1", {}, 1);
    EXPECT_NEAR(one.communication, 0, 1e-12);
    EXPECT_EQ(run("data=100000", {}, 1).seconds, one.seconds) << "replicas cost nothing";
    EXPECT_NEAR(run("data=1", {}, 4).seconds, 4 * one.seconds, 1e-12);
    EXPECT_GT(run("model=8", {{"a", "_,model"}}, 1).communication, 0);
    EXPECT_GT(run("data=8", {{"x", "data,_"}}, 1).communication, 0) << "the result is gathered";
    const Simulation staged = run("pipeline=4", {}, 32);
    EXPECT_EQ(staged.stages.size(), 4u);
    EXPECT_LT(staged.seconds, 32 * one.seconds);
    const auto unknown = simulate(model, {.mesh = "model=2", .annotations = {{"nobody", "_,model"}}});
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().code(), Code::E0401);
}

TEST(Simulate, TracesAreJson) {
    SimulateOptions options{.mesh = "pipeline=2,data=2,model=2"};
    options.microbatches = 4;
    const Simulation s = simulated(kSmall, options);
    const auto trace = nlohmann::json::parse(s.chrome_trace());
    std::map<int, std::string> lanes;
    std::map<int, double> free;
    size_t events = 0;
    for (const auto& e : trace["traceEvents"]) {
        if (e["ph"] == "M") {
            lanes[e["tid"]] = e["args"]["name"];
            continue;
        }
        ASSERT_EQ(e["ph"], "X");
        ++events;
        EXPECT_GE(e["ts"].get<double>(), free[e["tid"]] - 1e-6);
        free[e["tid"]] = e["ts"].get<double>() + e["dur"].get<double>();
    }
    EXPECT_EQ(events, s.events.size());
    EXPECT_EQ(lanes.size(), 4u) << "two stages, and their networks";
}

TEST(Simulate, NetworksAreFittedToRings) {
    const NetworkLevel level{"ranks", 0, 3e-6, 4e9};
    for (const int64_t n : {2, 4, 7}) {
        const GroupShape group{n};
        auto ring = [&](double bytes) {
            return 2 * collective_seconds(CollectiveKind::AllGather, bytes, group, {level});
        };
        const NetworkLevel fitted = fitted_level(n, 256, ring(256), 4e6, ring(4e6));
        EXPECT_NEAR(fitted.latency, level.latency, 1e-12);
        EXPECT_NEAR(fitted.bytes_per_second, level.bytes_per_second, 1);
    }
}

TEST(Simulate, TransportsAreMeasured) {
    const auto transports = thread_transports(2);
    std::vector<Result<NetworkLevel>> fitted(2, Error(Code::E0801, "not run"));
    std::thread other([&] { fitted[1] = fit_network(*transports[1]); });
    fitted[0] = fit_network(*transports[0]);
    other.join();
    for (const auto& level : fitted) {
        ASSERT_TRUE(level.ok()) << level.error().to_string();
        EXPECT_GT(level->latency, 0);
        EXPECT_GT(level->bytes_per_second, 1e6);
    }
    const auto alone = thread_transports(1);
    EXPECT_EQ(fit_network(*alone[0]).error().code(), Code::E0501);
}

// Two devices' worth of a product: by the roofline, and what is alive at the same time.
TEST(Simulate, ARankTakesItsRooflineAndLiveness) {
    auto parsed = parse("graph g(x: f32[64,64], w: f32[64,64]) { return matmul(x, w) }");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    Cluster cluster{.name = "c", .network = {{"n", 0, 1e-3, 1e6}}};
    cluster.device = {.name = "d", .bytes_per_second = 1e9, .scalar_flops = 1e9, .flops = {{DType::f32, 1e9}}};
    const auto machine = machine_of(cluster);
    ASSERT_TRUE(machine.ok()) << machine.error().to_string();
    const std::shared_ptr<const Graph> graph = std::move(*parsed);
    const Value *x = graph->find_value("x"), *w = graph->find_value("w");
    RankTimeOptions options;
    options.is_weight = [&](const Value& v) { return &v == w; };
    auto timed = [&](const char* axes, const Shardings& given) {
        const auto plan = make_plan(graph, *Mesh::parse(axes), given, {.operations_per_byte = 1e-3});
        EXPECT_TRUE(plan.ok()) << plan.error().to_string();
        auto time = rank_time(**plan, *machine, cluster, options);
        EXPECT_TRUE(time.ok()) << time.error().to_string();
        return *time;
    };
    const RankTime one = timed("a=1", {});
    EXPECT_DOUBLE_EQ(one.seconds, 2 * 64.0 * 64 * 64 / 1e9);
    EXPECT_EQ(one.product_flops, 2 * 64.0 * 64 * 64);
    EXPECT_EQ(one.weights, 64 * 64 * 4);
    EXPECT_EQ(one.activations, 2 * 64 * 64 * 4);
    cluster.device.flops = {{DType::f32, 1e15}};
    EXPECT_DOUBLE_EQ(timed("a=1", {}).seconds, 3 * 64.0 * 64 * 4 / 1e9) << "bound by memory";
    cluster.device.flops = {{DType::f32, 1e9}};
    // The sum over k is divided: an all-reduce of the result.
    const Mesh two = *Mesh::parse("a=2");
    const RankTime half = timed("a=2", {{x, *parse_sharding("-,a", two, 2)}, {w, *parse_sharding("a,-", two, 2)}});
    ASSERT_EQ(half.events.size(), 2u);
    EXPECT_EQ(half.events[1].collective, CollectiveKind::AllReduce);
    EXPECT_DOUBLE_EQ(half.events[1].seconds,
                     collective_seconds(CollectiveKind::AllReduce, 64 * 64 * 4, {2}, cluster.network));
    EXPECT_DOUBLE_EQ(half.compute, 64.0 * 64 * 64 / 1e9);
    EXPECT_DOUBLE_EQ(half.seconds, half.compute + half.events[1].seconds);
    EXPECT_EQ(half.weights, 64 * 64 * 2);
}

}  // namespace
}  // namespace tessera::test::simulate_test
