#include "pass_flags.h"

#include "graph/text/print.h"

namespace tessera::cli {

void PassFlags::add_options(CLI::App& command) {
    command
        .add_option("--print-after", print_after,
                    "Print the graph after this pass, or after \"all\", to standard error")
        ->option_text("PASS ...")
        ->allow_extra_args(false);
    command.add_option("--stop-after", stop_after, "Stop after the first run of this pass")->option_text("PASS");
    command.add_flag("--verify", verify, "Check the graph's invariants after each pass");
    command.add_flag("--with-weights", with_weights, "Include the data of weights in printed graphs");
    command.add_flag("--list-passes", list, "List the passes in the order they run");
}

Status PassFlags::check(const std::vector<PassRun>& there) const {
    std::vector<std::string> names;
    for (const PassRun& p : there) names.push_back(p.pass);
    for (const std::string& pass : print_after)
        if (std::find(names.begin(), names.end(), pass) == names.end() && pass != "all")
            return Error(Code::E0501, "--print-after {}: there is no such pass", pass)
                .hint("the passes are all, {}", fmt::join(names, ", "));
    return {};
}

std::function<void(const std::string&, const Model&, bool)> PassFlags::printer() const {
    if (print_after.empty()) return {};
    return [names = print_after, weights = with_weights](const std::string& pass, const Model& now, bool changed) {
        const bool all = names[0] == "all";
        if (!all && std::find(names.begin(), names.end(), pass) == names.end()) return;
        if (all && !changed) return;
        say_error(fmt::format("// after {}{}\n{}\n", pass, changed ? "" : ", which changed nothing",
                              outline(now.graph(), weights)));
    };
}

std::string outline(const Graph& graph, bool with_weights) {
    return with_weights ? print(graph) : print(graph, {.weights_file = kWeightsLeftOut});
}

void print_passes(const std::vector<PassRun>& passes, bool json) {
    if (json) {
        Json list = Json::array();
        for (const PassRun& p : passes)
            list.push_back({{"pass", p.pass}, {"purpose", p.purpose}, {"optional", p.optional}});
        return print_json({{"passes", list}});
    }
    for (const PassRun& p : passes)
        fmt::print("{:<18}{}{}\n", p.pass, p.purpose, p.optional ? " (only with --with)" : "");
}

}  // namespace tessera::cli
