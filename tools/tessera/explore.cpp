// tessera explore: one model on machines of several sizes, cycles against area.
#include <algorithm>
#include <charconv>

#include "base/output_file.h"
#include "design_plot.h"
#include "given.h"
#include "help.h"

namespace tessera::cli {
namespace {

constexpr const char* kExploreExamples =
    "Examples:\n"
    "  tessera explore int8.onnx --target tessel --array 8,16,32\n"
    "  tessera explore int8.onnx --target tessel --array 8,16,32x8 --memory 8,16,32 --plot machines.svg\n";

struct Explore {
    std::string path, target, machine, plot;
    std::string arrays, memories;  // lists with commas
    int virtual_threads = 2;
    bool json = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()() const;

  private:
    Status check_usage() const;
    Result<std::vector<MachineSizes>> sizes() const;
    void show(const std::vector<ExploredMachine>& all) const;
    void show_json(const std::vector<ExploredMachine>& all) const;
};

bool read_size(const std::string& text, int& size) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    return error == std::errc() && end == text.data() + text.size() && size > 0;
}

// "16" or "32x8".
Result<MachineSizes> array_of(const std::string& text) {
    MachineSizes s;
    const size_t by = text.find('x');
    const bool two = by != std::string::npos;
    if (!read_size(text.substr(0, by), s.inputs) || (two && !read_size(text.substr(by + 1), s.outputs)))
        return Error(Code::E0501, "--array {}: expected a number above 0, or two as in 32x8", text);
    if (!two) s.outputs = s.inputs;
    return s;
}

// "8,16,32": each once.
Result<std::vector<std::string>> items_of(const char* option, const std::string& list) {
    std::vector<std::string> items;
    for (size_t at = 0; at <= list.size();) {
        const size_t comma = std::min(list.find(',', at), list.size());
        std::string item = list.substr(at, comma - at);
        if (item.empty()) return Error(Code::E0501, "{} {}: a size is missing beside a comma", option, list);
        if (std::find(items.begin(), items.end(), item) != items.end())
            return Error(Code::E0501, "{} {}: {} is given twice", option, list, item);
        items.push_back(std::move(item));
        at = comma + 1;
    }
    return items;
}

Result<std::vector<MachineSizes>> Explore::sizes() const {
    std::vector<int> bytes;
    if (!memories.empty())
        for (const std::string& text : TRY(items_of("--memory", memories)))
            if (!read_size(text, bytes.emplace_back()))
                return Error(Code::E0501, "--memory {}: expected a number above 0", text);
    std::vector<MachineSizes> all;
    for (const std::string& text : TRY(items_of("--array", arrays))) {
        MachineSizes one = TRY(array_of(text));
        for (int n : bytes) {
            one.bytes_per_cycle = n;
            all.push_back(one);
        }
        if (bytes.empty()) all.push_back(one);
    }
    return all;
}

Status Explore::check_usage() const {
    if (!plot.empty() && !plot.ends_with(".svg"))
        return Error(Code::E0501, "--plot {} writes SVG: end it in .svg", plot);
    if (!machine.empty() && !machine.ends_with(".json"))
        return Error(Code::E0501, "--machine {}: the description of a machine ends in .json", machine);
    return {};
}

// Which machines no other one beats in both area and cycles.
std::vector<bool> best_of(const std::vector<ExploredMachine>& all) {
    std::vector<bool> best;
    for (const ExploredMachine& m : all)
        best.push_back(std::none_of(all.begin(), all.end(), [&](const ExploredMachine& other) {
            const double a = other.total_area(), b = m.total_area();
            return (a <= b && other.cycles < m.cycles) || (a < b && other.cycles <= m.cycles);
        }));
    return best;
}

void Explore::show(const std::vector<ExploredMachine>& all) const {
    fmt::print("{:>9} {:>8} {:>12} {:>9} {:>6}", "array", "memory", "cycles", "ms", "use");
    for (const auto& [part, transistors] : all.front().area) fmt::print(" {:>12}", part);
    fmt::print(" {:>8}\n", "total");
    const std::vector<bool> best = best_of(all);
    for (size_t i = 0; i < all.size(); ++i) {
        const ExploredMachine& m = all[i];
        fmt::print("{:>9} {:>8} {:>12} {:>9.2f} {:>5.1f}%", fmt::format("{}x{}", m.sizes.inputs, m.sizes.outputs),
                   m.sizes.bytes_per_cycle, m.cycles, double(m.cycles) / m.megahertz / 1e3, 100 * m.utilization());
        for (const auto& [part, transistors] : m.area) fmt::print(" {:>12.2f}", transistors / 1e6);
        fmt::print(" {:>8.2f}{}\n", m.total_area() / 1e6, best[i] ? " *" : "");
    }
    fmt::print(
        "\n{} of {} multiply-accumulates. memory: bytes a cycle. use: multiply-accumulates that the model needs,\n"
        "of those that the matrix unit could do. Areas: estimated, in millions of transistors.\n"
        "*: no other of these machines is both smaller and faster.\n",
        plural(double(all.front().layers), "layer"), human_count(double(all.front().macs)));
}

void Explore::show_json(const std::vector<ExploredMachine>& all) const {
    const std::vector<bool> best = best_of(all);
    Json machines = Json::array();
    for (size_t i = 0; i < all.size(); ++i) {
        const ExploredMachine& m = all[i];
        Json area = Json::object();
        for (const auto& [part, transistors] : m.area) area[part] = transistors;
        machines.push_back({{"array", {m.sizes.inputs, m.sizes.outputs}},
                            {"bytes_per_cycle", m.sizes.bytes_per_cycle},
                            {"cycles", m.cycles},
                            {"matrix_cycles", m.matrix_cycles},
                            {"milliseconds", double(m.cycles) / m.megahertz / 1e3},
                            {"layers", m.layers},
                            {"macs", m.macs},
                            {"utilization", m.utilization()},
                            {"transistors", m.total_area()},
                            {"area", std::move(area)},
                            {"best", bool(best[i])}});
    }
    print_json({{"model", path}, {"target", target}, {"machines", std::move(machines)}});
}

Status Explore::operator()() const {
    TRY(check_usage());
    ExploreOptions options{.target = machine.empty() ? target : target + ":" + machine,
                           .machines = TRY(sizes()),
                           .virtual_threads = virtual_threads,
                           .cancel = &interrupted()};
    const Model model = TRY(load_or_demo(path));
    std::vector<ExploredMachine> all;
    {
        Progress line(progress, "explore");
        options.progress = [&](std::string_view what, size_t done, size_t total) { line.update(what, done, total); };
        all = TRY(explore(model, options));
    }
    if (!plot.empty()) {
        const std::vector<bool> best = best_of(all);
        TRY(write_file(plot, design_plot(all, best, path)));
    }
    if (json)
        show_json(all);
    else
        show(all);
    return {};
}

}  // namespace

void add_explore(CLI::App& app, Chosen& chosen) {
    auto e = std::make_shared<Explore>();
    CLI::App* c = app.add_subcommand("explore", "Compare machines of several sizes on a model: cycles against area");
    c->add_option("model", e->path, "Quantized model")->required()->option_text("MODEL");
    c->add_option("--target", e->target, "Target whose machine can have other sizes")->required()->option_text("NAME");
    c->add_option("--array", e->arrays, "Sizes of the matrix unit: 8,16 or 32x8 (inputs x outputs)")
        ->required()
        ->option_text("SIZES");
    c->add_option("--memory", e->memories, "Bytes a cycle of each memory channel: 8,16,32 (the description's)")
        ->option_text("BYTES");
    c->add_option("--machine", e->machine, "Description that all other sizes come from (the target's usual one)")
        ->option_text("FILE.json");
    c->add_option("--virtual-threads", e->virtual_threads, "Tiles in flight (2)")
        ->option_text("1|2")
        ->check(CLI::IsMember({1, 2}));
    c->add_option("--plot", e->plot, "Also draw cycles against area")->option_text("FILE.svg");
    c->add_flag("--json", e->json, "Print JSON");
    add_progress_option(*c, e->progress);
    c->footer(fmt::format("{}\n{}", kExploreExamples, kExitStatus));
    c->callback([e, &chosen] { chosen = [e] { return report((*e)(), e->json); }; });
}

}  // namespace tessera::cli
