// tessera shard: how a model is divided over a mesh of ranks, and what they exchange.
#include "base/output_file.h"
#include "given.h"
#include "help.h"
#include "shard_flags.h"
#include "shard_picture.h"

namespace tessera::cli {
namespace {

constexpr const char* kShardExamples =
    "Examples:\n"
    "  tessera shard model.onnx --mesh data=4 --annotate 'x=data,_'\n"
    "  tessera shard model.onnx --mesh data=2,model=4 --annotate 'x=data,_,_' --annotate 'w1=_,model' --explain\n"
    "  tessera shard model.onnx --mesh data=2,model=4 --memory 40GiB --explain --picture model.svg\n"
    "  tessera shard model.onnx --mesh data=4,model=8 --search --beta data=25G --beta model=300G\n"
    "  mpirun -n 8 tessera run model.onnx --random --mesh data=2,model=4 --shard 'x=data,_,_'\n";

struct Shard {
    std::string path;
    ShardFlags flags;
    std::vector<std::string> dims;
    std::string memory, picture, flops, bandwidth;
    std::vector<std::string> alpha, beta;  // of all axes, or AXIS=
    Progress::Mode progress = Progress::Mode::Auto;
    bool search = false, explain = false, json = false;

    Status operator()() const;
    Result<DeviceSpeed> speed() const;
};

Json cost_json(const ShardCost& c) {
    Json j{{"seconds", c.seconds()},
           {"compute_seconds", c.compute_seconds},
           {"communicate_seconds", c.communicate_seconds},
           {"memory_bytes", c.bytes()},
           {"weight_bytes", c.weight_bytes},
           {"activation_bytes", c.activation_bytes},
           {"collectives", Json::array()}};
    for (const CollectiveSum& k : c.collectives)
        j["collectives"].push_back(
            {{"kind", k.kind}, {"axes", k.axes}, {"count", k.count}, {"bytes", k.bytes}, {"seconds", k.seconds}});
    return j;
}

void show_cost(const ShardCost& c, const char* margin) {
    fmt::print("{}estimated {}: {} computing, {} in collectives\n", margin, human_seconds(c.seconds()),
               human_seconds(c.compute_seconds), human_seconds(c.communicate_seconds));
    for (const CollectiveSum& k : c.collectives)
        fmt::print("{}{:>5} {} over {}, {}, {}\n", margin, k.count, k.kind, k.axes, human_bytes(double(k.bytes)),
                   human_seconds(k.seconds));
    fmt::print("{}memory {}: weights {}, live activations {}\n", margin, human_bytes(double(c.bytes())),
               human_bytes(double(c.weight_bytes)), human_bytes(double(c.activation_bytes)));
}

// What the second best has more and less of than the best.
std::vector<std::pair<std::string, double>> differences(const ShardCost& best, const ShardCost& second) {
    std::map<std::string, double> sums;
    for (const CollectiveSum& k : second.collectives) sums[k.kind + " over " + k.axes] += k.seconds;
    for (const CollectiveSum& k : best.collectives) sums[k.kind + " over " + k.axes] -= k.seconds;
    sums["computing"] = second.compute_seconds - best.compute_seconds;
    std::vector<std::pair<std::string, double>> list(sums.begin(), sums.end());
    std::erase_if(list, [&](const auto& d) { return std::fabs(d.second) < 1e-3 * best.seconds(); });
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) { return std::fabs(a.second) > std::fabs(b.second); });
    return list;
}

void show_second(const ShardCost& best, const ShardSecond& second, bool explain) {
    const double loss = second.cost.seconds() / best.seconds() - 1;
    fmt::print("second best: {:+.1f} %, {}, divides {:.0f} % of the arithmetic otherwise", 100 * loss,
               human_seconds(second.cost.seconds()), 100 * second.different);
    const char* before = ": ";
    for (const auto& [what, seconds] : differences(best, second.cost)) {
        fmt::print("{}{} {}{}", before, what, seconds < 0 ? "-" : "+", human_seconds(std::fabs(seconds)));
        before = ", ";
    }
    fmt::print("\n");
    for (const auto& [name, sharding] : second.annotations)
        fmt::print("  --annotate '{}={}'\n", escaped(name), sharding);
    if (explain) show_cost(second.cost, "  ");
}

void show_json(const ShardReport& r) {
    Json j{{"mesh", r.mesh},
           {"ranks", r.ranks},
           {"weight_bytes", r.weight_bytes},
           {"rank_weight_bytes", r.rank_weight_bytes},
           {"cost", cost_json(r.cost)},
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
        j["collectives"].push_back(
            {{"kind", c.kind}, {"value", c.value}, {"axes", c.axes}, {"bytes", c.bytes}, {"seconds", c.seconds}});
    for (const auto& [node, why] : r.whole) j["whole"].push_back({{"node", node}, {"why", why}});
    if (r.plans > 0) j["plans"] = r.plans;
    if (r.plans > 0) j["bound_seconds"] = r.bound_seconds;
    for (const auto& [name, sharding] : r.found) j["found"][name] = sharding;
    if (r.second) {
        j["second"] = {{"cost", cost_json(r.second->cost)}, {"different", r.second->different}};
        for (const auto& [name, sharding] : r.second->annotations) j["second"]["annotations"][name] = sharding;
    }
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
    int64_t bytes = 0;
    for (const Collective& c : r.collectives) {
        if (explain)
            fmt::print("  {:<14} over {:<12} {}  {}\n", c.kind, c.axes, human_bytes(double(c.bytes)), escaped(c.value));
        bytes += c.bytes;
    }
    show_cost(r.cost, "");
    fmt::print("{}, in which a rank receives {}\n", plural(double(r.collectives.size()), "collective"),
               human_bytes(double(bytes)));
    if (r.plans > 0) fmt::print("found among {}:\n", plural(r.plans, "plan"));
    for (const auto& [name, sharding] : r.found) fmt::print("  --annotate '{}={}'\n", escaped(name), sharding);
    if (r.second) show_second(r.cost, *r.second, explain);
    for (const std::string& c : r.conflicts) fmt::print("conflict: {}\n", escaped(c));
}

// The number of "4", or of "model=4" and its axis.
Result<std::pair<std::string, std::string>> axis_and_number(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) return std::pair(std::string(), text);
    return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

Result<DeviceSpeed> Shard::speed() const {
    DeviceSpeed speed;
    if (!flops.empty()) speed.operations = double(TRY(parse_size(flops, "--flops")));
    if (!bandwidth.empty()) speed.memory = double(TRY(parse_size(bandwidth, "--bandwidth")));
    auto each = [&](const std::vector<std::string>& list, const auto& set) -> Status {
        for (const bool of_axis : {false, true})  // those of all axes first
            for (const std::string& text : list) {
                const auto [axis, number] = TRY(axis_and_number(text));
                if (axis.empty() == of_axis) continue;
                LinkSpeed& link = of_axis ? speed.axes.try_emplace(axis, speed.link).first->second : speed.link;
                TRY(set(link, number));
            }
        return {};
    };
    TRY(each(alpha, [](LinkSpeed& link, const std::string& number) -> Status {
        char* end = nullptr;
        const double us = std::strtod(number.c_str(), &end);
        if (number.empty() || *end || !(us >= 0) || us > 1e9)
            return Error(Code::E0501, "--alpha {}: expected microseconds, as 5 or model=2.5", number);
        link.latency = us * 1e-6;
        return {};
    }));
    for (auto& [_, link] : speed.axes) link.bandwidth = 0;  // --beta of all axes may follow
    TRY(each(beta, [](LinkSpeed& link, const std::string& number) -> Status {
        link.bandwidth = double(TRY(parse_size(number, "--beta")));
        return {};
    }));
    for (auto& [_, link] : speed.axes)
        if (link.bandwidth == 0) link.bandwidth = speed.link.bandwidth;
    return speed;
}

Status Shard::operator()() const {
    const Model model = TRY(load_or_demo(path));
    SymbolValues sizes = TRY(parse_dims(dims));
    TRY(check_dims(sizes, model));
    sizes = with_suggested_sizes(model, std::move(sizes));
    ShardOptions options = TRY(flags.chosen(sizes));
    options.search = search || !memory.empty();
    if (!memory.empty()) options.memory = TRY(parse_size(memory, "--memory"));
    options.speed = TRY(speed());
    if (!picture.empty() && !picture.ends_with(".svg"))
        return Error(Code::E0501, "--picture {} writes SVG: end it in .svg", picture);
    std::optional<ShardedModel> sharded;
    {
        Progress line(progress, "shard");
        options.progress = [&](std::string_view what, size_t done, size_t total) { line.update(what, done, total); };
        sharded = TRY(ShardedModel::make(model, options));
    }
    const ShardedModel& made = *sharded;
    if (!picture.empty()) TRY(write_file(picture, shard_picture(made.report(), shown_path(path))));
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
    c->add_flag("--search", run->search, "Find the sharding whose run is estimated to take least, and the second best");
    c->add_option("--memory", run->memory,
                  "Find a sharding by which a rank needs at most so many bytes for weights and live activations: 40GiB")
        ->option_text("BYTES");
    c->add_option("--alpha", run->alpha, "Latency of a collective in microseconds, of all axes or one (default: 5)")
        ->option_text("[AXIS=]US ...")
        ->allow_extra_args(false);
    c->add_option("--beta", run->beta, "Bytes a second that a rank receives, of all axes or one (default: 200G)")
        ->option_text("[AXIS=]BYTES ...")
        ->allow_extra_args(false);
    c->add_option("--flops", run->flops, "Operations a second of a rank (default: 100T)")->option_text("OPS");
    c->add_option("--bandwidth", run->bandwidth, "Bytes a second of a rank's memory (default: 2T)")
        ->option_text("BYTES");
    c->add_option("--picture", run->picture, "Also draw the model, coloured by sharding")->option_text("FILE.svg");
    add_progress_option(*c, run->progress);
    c->add_flag("--explain", run->explain, "Print the sharding of every value, and every collective");
    add_strict_option(*c);
    c->add_flag("--json", run->json, "Print JSON");
    c->footer(fmt::format("{}\n{}", kShardExamples, kExitStatus));
    c->callback([run, &chosen] { chosen = [run] { return report((*run)(), run->json); }; });
}

}  // namespace tessera::cli
