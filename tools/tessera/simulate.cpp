// tessera simulate: what a partitioned model takes on a described cluster.
#include "base/output_file.h"
#include "given.h"
#include "help.h"
#include "shard_flags.h"

namespace tessera::cli {
namespace {

constexpr const char* kSimulateExamples =
    "Examples:\n"
    "  tessera simulate model.onnx --mesh data=4 --annotate 'x=data,_' --dim N=64\n"
    "  tessera simulate gpt --layers 96 --hidden 12288 --heads 96 --sequence 2048 --vocabulary 51200 \\\n"
    "      --mesh pipeline=8,data=16,model=8 --microbatches 96 --recompute full --cluster dgx-a100\n"
    "  mpirun -n 4 tessera simulate --fit ranks.json\n";

struct SimulateCommand {
    std::string path;
    ShardFlags flags;
    std::vector<std::string> dims;
    GptShape gpt;
    SimulateOptions options;
    std::string trace, chakra, fit;
    bool explain = false, json = false;

    Status operator()() const;
};

Json memory_json(const SimulatedMemory& m) {
    return {{"weights", m.weights},
            {"gradients", m.gradients},
            {"optimizer", m.optimizer},
            {"activations", m.activations},
            {"total", m.total()}};
}

void show_json(const Simulation& s) {
    Json j{{"cluster", s.cluster},
           {"device", s.device},
           {"mesh", s.mesh},
           {"devices", s.devices},
           {"seconds", s.seconds},
           {"utilization", s.utilization},
           {"hardware_utilization", s.hardware_utilization},
           {"flops_per_device", s.flops_per_device},
           {"compute", s.compute},
           {"communication", s.communication},
           {"bubble", s.bubble},
           {"reduction", s.reduction},
           {"update", s.update},
           {"memory", s.memory},
           {"device_memory", s.device_memory},
           {"parameters", s.parameters},
           {"stages", Json::array()},
           {"steps", Json::array()},
           {"sources", s.sources}};
    if (s.tokens_per_second > 0) j["tokens_per_second"] = s.tokens_per_second;
    for (const SimulatedStage& stage : s.stages)
        j["stages"].push_back({{"holds", stage.holds},
                               {"forward", stage.forward},
                               {"backward", stage.backward},
                               {"in_flight", stage.in_flight},
                               {"memory", memory_json(stage.memory)}});
    for (const SimulatedStep& step : s.steps)
        j["steps"].push_back({{"pass", step.pass},
                              {"kind", step.kind},
                              {"name", step.name},
                              {"flops", step.flops},
                              {"bytes", step.bytes},
                              {"seconds", step.seconds}});
    print_json(j);
}

void show_share(const char* what, double seconds, double all) {
    if (seconds > 0) fmt::print("  {:<24} {:>10}  {:>5.1f} %\n", what, human_seconds(seconds), 100 * seconds / all);
}

void show_steps(const Simulation& s) {
    std::string pass;
    for (const SimulatedStep& step : s.steps) {
        if (step.pass != pass) fmt::print("{}\n", bold(pass = step.pass));
        fmt::print("  {:>9}  {:<14} {:>9}  {:>9}  {}\n", human_seconds(step.seconds), step.kind,
                   step.flops > 0 ? human_count(step.flops) + "FLOP" : "", human_bytes(step.bytes), escaped(step.name));
    }
}

void show(const Simulation& s, bool explain) {
    if (explain) show_steps(s);
    fmt::print("{}  {} of {}, {}\n", bold(s.mesh), plural(double(s.devices), "device"), s.cluster, s.device);
    fmt::print("a step takes {}\n", human_seconds(s.seconds));
    show_share("computation", s.compute, s.seconds);
    show_share("exposed communication", s.communication, s.seconds);
    show_share("pipeline bubble", s.bubble, s.seconds);
    show_share("gradients over replicas", s.reduction, s.seconds);
    show_share("optimizer", s.update, s.seconds);
    fmt::print("utilization {:.1f} % of peak", 100 * s.utilization);
    if (s.hardware_utilization > s.utilization * 1.001)
        fmt::print(", {:.1f} % with what is computed again", 100 * s.hardware_utilization);
    fmt::print(": {:.0f} TFLOP/s on each device\n", s.flops_per_device / 1e12);
    if (s.tokens_per_second > 0) fmt::print("{} tokens/s\n", human_count(s.tokens_per_second));
    if (s.parameters > 0) fmt::print("{} parameters\n", human_count(s.parameters));
    fmt::print("memory of the fullest device {} of {}{}\n", human_bytes(s.memory), human_bytes(s.device_memory),
               s.memory > s.device_memory ? ": it does not fit" : "");
    for (size_t i = 0; i < s.stages.size(); ++i) {
        const SimulatedStage& stage = s.stages[i];
        fmt::print("  stage {}: {}; a microbatch {} + {}; {}: weights {}, gradients {}, optimizer {}, activations {}\n",
                   i, stage.holds, human_seconds(stage.forward), human_seconds(stage.backward),
                   human_bytes(stage.memory.total()), human_bytes(stage.memory.weights),
                   human_bytes(stage.memory.gradients), human_bytes(stage.memory.optimizer),
                   human_bytes(stage.memory.activations));
    }
}

Status SimulateCommand::operator()() const {
    if (!fit.empty()) {
        const std::string text = TRY(fit_cluster());
        return text.empty() ? Status() : write_file(fit, text);
    }
    if (path.empty()) return Error(Code::E0501, "there is no model to simulate").hint("name a file, or gpt");
    if (!flags.given()) return Error(Code::E0501, "there is no mesh").hint("give one: --mesh data=2,model=4");
    SimulateOptions own = options;
    const ShardOptions given = TRY(flags.chosen({}));
    own.mesh = given.mesh;
    own.annotations = given.annotations;
    std::optional<Simulation> s;
    if (path == "gpt") {
        s = TRY(simulate_gpt(gpt, own));
    } else {
        const Model model = TRY(load_or_demo(path));
        SymbolValues sizes = TRY(parse_dims(dims));
        TRY(check_dims(sizes, model));
        own.compile.threads = 1;
        own.sizes = with_suggested_sizes(model, std::move(sizes));
        s = TRY(simulate(model, own));
    }
    if (!trace.empty()) TRY(write_file(trace, s->chrome_trace()));
    if (!chakra.empty()) TRY(s->write_chakra(chakra));
    if (json)
        show_json(*s);
    else
        show(*s, explain);
    return {};
}

}  // namespace

void add_simulate(CLI::App& app, Chosen& chosen) {
    auto run = std::make_shared<SimulateCommand>();
    CLI::App* c = app.add_subcommand("simulate", "Estimate the step time and memory of a model on a described cluster");
    c->add_option("model", run->path, "ONNX file, Tessera's text form, or gpt: a step of training one")
        ->option_text("FILE");
    run->flags.add_options(*c, "--annotate");
    c->add_option("--cluster", run->options.cluster,
                  fmt::format("Description of the cluster: {}, or a JSON file", fmt::join(simulated_clusters(), ", ")))
        ->option_text("NAME|FILE")
        ->capture_default_str();
    c->add_option("--dim", run->dims, "Size of a symbolic dimension")
        ->option_text("NAME=SIZE ...")
        ->allow_extra_args(false);
    c->add_option("--microbatches", run->options.microbatches, "Microbatches of a replica in a step")->option_text("N");
    c->add_option("--schedule", run->options.schedule, "Order of a pipeline's passes: gpipe, 1f1b or interleaved")
        ->option_text("gpipe|1f1b|interleaved")
        ->capture_default_str();
    c->add_option("--chunks", run->options.chunks, "Chunks of layers on each stage of an interleaved pipeline")
        ->option_text("N");
    c->add_flag("--overlap", run->options.overlap, "Run collectives beside computation that does not depend on them");
    c->add_option("--layers", run->gpt.layers, "Layers of a GPT")->option_text("N");
    c->add_option("--hidden", run->gpt.hidden, "Features of a GPT")->option_text("N");
    c->add_option("--heads", run->gpt.heads, "Attention heads of a GPT")->option_text("N");
    c->add_option("--sequence", run->gpt.sequence, "Tokens of a GPT's sequence")->option_text("N");
    c->add_option("--vocabulary", run->gpt.vocabulary, "Vocabulary of a GPT")->option_text("N");
    c->add_option("--microbatch", run->options.microbatch, "Sequences of a GPT's microbatch")->option_text("N");
    c->add_option("--recompute", run->options.recompute,
                  "What a GPT's backward pass computes again: none, selective or full")
        ->option_text("none|selective|full")
        ->capture_default_str();
    c->add_flag("--sequence-parallel", run->options.sequence_parallel,
                "Divide a GPT's sequence over the axis model between products");
    c->add_flag("--shard-optimizer", run->options.shard_optimizer,
                "Divide a GPT's optimizer state over the replicas (ZeRO, stage 1)");
    c->add_flag("--measured", run->options.measured, "Time the computation of a model's rank on this machine");
    c->add_option("--fit", run->fit,
                  "Write a description of this machine as ranks of mpirun find it, and simulate nothing")
        ->option_text("FILE");
    c->add_option("--trace", run->trace, "Write the timeline as a Chrome trace")->option_text("FILE");
    c->add_option("--chakra", run->chakra, "Write Chakra execution traces, NAME.0.et and on, one for each device")
        ->option_text("NAME");
    c->add_flag("--explain", run->explain, "Print every kernel and collective of each partitioned program");
    add_strict_option(*c);
    c->add_flag("--json", run->json, "Print JSON");
    c->footer(fmt::format("{}\n{}", kSimulateExamples, kExitStatus));
    c->callback([run, &chosen] { chosen = [run] { return report((*run)(), run->json); }; });
}

}  // namespace tessera::cli
