// tessera shard: how a model is divided over a mesh of ranks, and what they exchange.
#include "given.h"
#include "help.h"
#include "shard_flags.h"

namespace tessera::cli {
namespace {

constexpr const char* kShardExamples =
    "Examples:\n"
    "  tessera shard model.onnx --mesh data=4 --annotate 'x=data,_'\n"
    "  tessera shard model.onnx --mesh data=2,model=4 --annotate 'x=data,_,_' --annotate 'w1=_,model' --explain\n"
    "  tessera shard model.onnx --mesh model=8 --memory 10G\n"
    "  mpirun -n 8 tessera run model.onnx --random --mesh data=2,model=4 --shard 'x=data,_,_'\n";

struct Shard {
    std::string path;
    ShardFlags flags;
    std::vector<std::string> dims;
    std::string memory;
    bool search = false, explain = false, json = false;

    Status operator()() const;
};

void show_json(const ShardReport& r) {
    Json j{{"mesh", r.mesh},
           {"ranks", r.ranks},
           {"weight_bytes", r.weight_bytes},
           {"rank_weight_bytes", r.rank_weight_bytes},
           {"values", Json::array()},
           {"collectives", Json::array()},
           {"conflicts", r.conflicts},
           {"whole", Json::array()}};
    for (const ShardedValue& v : r.values)
        j["values"].push_back({{"name", v.name},
                               {"type", v.type},
                               {"sharding", v.sharding},
                               {"annotated", v.annotated},
                               {"weight", v.weight},
                               {"bytes", v.bytes},
                               {"rank_bytes", v.rank_bytes}});
    for (const Collective& c : r.collectives)
        j["collectives"].push_back({{"kind", c.kind}, {"value", c.value}, {"axes", c.axes}, {"bytes", c.bytes}});
    for (const auto& [node, why] : r.whole) j["whole"].push_back({{"node", node}, {"why", why}});
    if (r.plans > 0) j["plans"] = r.plans;
    for (const auto& [name, sharding] : r.found) j["found"][name] = sharding;
    print_json(j);
}

void show(const ShardReport& r, bool explain) {
    fmt::print("{}  {}, weights {}, of which a rank keeps {}\n", bold(r.mesh), plural(double(r.ranks), "rank"),
               human_bytes(double(r.weight_bytes)), human_bytes(double(r.rank_weight_bytes)));
    if (explain) {
        for (const ShardedValue& v : r.values)
            fmt::print("  {}{} {}  {}  a rank has {} of {}\n", escaped(v.name), v.annotated ? " (given)" : "", v.type,
                       v.sharding.empty() ? "whole" : v.sharding, human_bytes(double(v.rank_bytes)),
                       human_bytes(double(v.bytes)));
        for (const auto& [node, why] : r.whole)
            fmt::print("  {}: every rank computes all of it: {}\n", escaped(node), why);
    }
    std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>> kinds;  // number, bytes
    int64_t bytes = 0;
    for (const Collective& c : r.collectives) {
        if (explain)
            fmt::print("  {:<14} over {:<12} {}  {}\n", c.kind, c.axes, human_bytes(double(c.bytes)), escaped(c.value));
        auto& [number, sum] = kinds[{c.kind, c.axes}];
        ++number;
        sum += c.bytes;
        bytes += c.bytes;
    }
    for (const auto& [kind, count] : kinds)
        fmt::print("{:>5} {} over {}, {}\n", count.first, kind.first, kind.second, human_bytes(double(count.second)));
    fmt::print("{}, in which a rank receives {}\n", plural(double(r.collectives.size()), "collective"),
               human_bytes(double(bytes)));
    if (r.plans > 0) fmt::print("found among {}:\n", plural(r.plans, "plan"));
    for (const auto& [name, sharding] : r.found) fmt::print("  --annotate '{}={}'\n", escaped(name), sharding);
    for (const std::string& c : r.conflicts) fmt::print("conflict: {}\n", escaped(c));
}

Status Shard::operator()() const {
    const Model model = TRY(load_or_demo(path));
    SymbolValues sizes = TRY(parse_dims(dims));
    TRY(check_dims(sizes, model));
    sizes = with_suggested_sizes(model, std::move(sizes));
    ShardOptions options = TRY(flags.chosen(sizes));
    options.search = search || !memory.empty();
    if (!memory.empty()) options.memory = TRY(parse_size(memory, "--memory"));
    const ShardedModel made = TRY(ShardedModel::make(model, options));
    if (json)
        show_json(made.report());
    else
        show(made.report(), explain);
    return {};
}

}  // namespace

void ShardFlags::add_options(CLI::App& command, const char* annotate) {
    command.add_option("--mesh", mesh, "Named axes of the ranks: data=2,model=4")->option_text("AXIS=SIZE,...");
    command
        .add_option(annotate, annotations,
                    "Divide a value, or those that a pattern with * names: for each dimension axes joined by +, _ "
                    "(propagated) or - "
                    "(whole)")
        ->option_text("VALUE=AXES,... ...")
        ->allow_extra_args(false);
}

Result<ShardOptions> ShardFlags::chosen(const SymbolValues& sizes) const {
    ShardOptions options{.mesh = mesh, .sizes = sizes};
    for (const std::string& text : annotations) {
        const size_t equals = text.rfind('=');
        if (equals == std::string::npos || equals == 0)
            return Error(Code::E0501, "\"{}\" is not VALUE=SHARDING", text).hint("such as 'x=data,_'");
        options.annotations.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    return options;
}

std::optional<int64_t> rank_of_mpirun() {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    return rank ? std::optional<int64_t>(std::strtoll(rank, nullptr, 10)) : std::nullopt;
}

void add_shard(CLI::App& app, Chosen& chosen) {
    auto run = std::make_shared<Shard>();
    CLI::App* c = app.add_subcommand("shard", "Show how a model is divided over many devices");
    c->add_option("model", run->path, "ONNX file, or Tessera's text form; without it, the built-in ResNet-50")
        ->option_text("FILE");
    run->flags.add_options(*c, "--annotate");
    c->get_option("--mesh")->required();
    c->add_option("--dim", run->dims, "Size of a symbolic dimension")
        ->option_text("NAME=SIZE ...")
        ->allow_extra_args(false);
    c->add_flag("--search", run->search, "Find annotations of inputs and weights that make a run cheaper");
    c->add_option("--memory", run->memory, "Find annotations by which a rank keeps at most so many bytes of weights")
        ->option_text("BYTES");
    c->add_flag("--explain", run->explain, "Print the sharding of every value, and every collective");
    add_strict_option(*c);
    c->add_flag("--json", run->json, "Print JSON");
    c->footer(fmt::format("{}\n{}", kShardExamples, kExitStatus));
    c->callback([run, &chosen] { chosen = [run] { return report((*run)(), run->json); }; });
}

}  // namespace tessera::cli
