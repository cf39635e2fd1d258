// Runs the text files of this folder and those below it. A file says what to do with its graphs (.tsr) or kernels
// (.tsk) and, beside the lines, what must come of it:
//   // RUN: print                 a command, applied to the graphs from here on to the next RUN:
//                                 one of kCommands, a pass of the optimizer or of lowering by its name, or
//                                 `rule NAME`, one rule alone; of kernels, one of kKernelCommands
//   // CHECK: return x            the printed result has this text, each CHECK of a graph after the one before
//   // CHECK-NOT: relu            the printed result does not have this text
//   // UNCHANGED                  the result is the graph itself; a rule must change all graphs that do not say so
//   // ERROR E0210: 3 vs 4        the command fails here, at this line, with this code and this text in the message
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "graph/onnx/from_onnx.h"
#include "graph/onnx/to_onnx.h"
#include "graph/text/parse.h"
#include "graph/text/print.h"
#include "graph/verify.h"
#include "kernel/passes/clean_up.h"
#include "rewrite/passes/lowering_passes.h"
#include "rewrite/passes/optimize.h"
#include "rewrite/rules/apply_rules.h"
#include "source_dir.h"

namespace tessera {
namespace {

constexpr std::string_view kRule = "rule ";  // a command that begins so applies one rule alone

using Command = std::function<Result<std::string>(std::unique_ptr<Graph>)>;

Result<std::string> through_onnx(std::unique_ptr<Graph> g) {
    auto back = TRY(from_onnx(TRY(to_onnx(*g))));
    return print(*back);
}

const std::map<std::string, Command>& commands() {
    static const std::map<std::string, Command> kCommands = {
        {"print", [](std::unique_ptr<Graph> g) -> Result<std::string> { return print(*g); }},
        {"print --no-types",
         [](std::unique_ptr<Graph> g) -> Result<std::string> { return print(*g, {.types = false}); }},
        {"onnx", through_onnx},
        {"optimize",
         [](std::unique_ptr<Graph> g) -> Result<std::string> {
             TRY(optimize(*g, {.watch = {.verify = true}}));
             return print(*g);
         }},
    };
    return kCommands;
}

// A pass as often as it finds something to do.
Command repeated(std::function<Result<Changed>(Graph&, PassContext&)> pass) {
    return [pass](std::unique_ptr<Graph> g) -> Result<std::string> {
        PassContext context;
        context.precision = Precision::Fast;
        for (Changed changed = true; changed; changed = TRY(pass(*g, context))) {
            auto broken = violations(*g);
            if (!broken.empty()) return Error(Code::E0205, "after the pass: {}", broken[0]);
        }
        return print(*g);
    };
}

std::optional<Command> rule_command(const std::string& name) {
    for (const RuleFile& file : built_in_rule_files())
        for (const Rule& rule : built_in_rules(file.name))
            if (rule.name == name) {
                auto alone = std::make_shared<const RuleSet>(Rules{rule});
                return repeated([alone](Graph& g, PassContext& c) { return apply_rules(g, *alone, c); });
            }
    return std::nullopt;
}

// Of the optimizer and of lowering.
std::vector<Pass> all_passes() {
    std::vector<Pass> all = pass_table();
    Machine machine;
    machine.features = {"dotprod"};
    for (Pass& pass : lowering_passes(machine)) all.push_back(std::move(pass));
    return all;
}

std::optional<Command> find_command(const std::string& name) {
    if (auto it = commands().find(name); it != commands().end()) return it->second;
    if (name.starts_with(kRule)) return rule_command(name.substr(kRule.size()));
    for (const Pass& pass : all_passes())
        if (pass.name == name) return repeated(pass.run);
    return std::nullopt;
}

const std::map<std::string, void (*)(Kernel&)> kKernelCommands = {
    {"print", [](Kernel&) {}},
    {"partition_loops", partition_loops},
    {"drop_unit_loops", drop_unit_loops},
    {"simplify_kernel", simplify_kernel},
    {"merge_dimensions", merge_dimensions},
    {"drop_unused_buffers", drop_unused_buffers},
};

struct Expectation {
    enum class Kind { Check, CheckNot, Error };
    size_t line;
    Kind kind;
    std::string code, text;
};

// One graph of a file: its text, padded with empty lines so that places are those of the file.
struct Case {
    size_t line = 0;
    std::string command, text;
    std::vector<Expectation> expected;
    bool unchanged = false;
    bool kernel = false;
};

std::string trimmed(std::string s) {
    s.erase(0, s.find_first_not_of(" \t"));
    s.erase(s.find_last_not_of(" \t\r") + 1);
    return s;
}

std::vector<Case> read_cases(const std::filesystem::path& path) {
    std::vector<Case> cases;
    std::string command;
    std::ifstream file(path);
    bool header = false;  // a model's header began, its graph not yet
    size_t number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        if (size_t at = line.find("// RUN: "); at != std::string::npos) command = trimmed(line.substr(at + 8));
        bool graph = line.starts_with("graph "), model = line.starts_with("model ") || line.starts_with("weights ");
        bool kernel = path.extension() == ".tsk" && line.starts_with("kernel ");
        if (model || kernel || (graph && !header))
            cases.push_back({number, command, std::string(number - 1, '\n'), {}, false, kernel});
        if (model)
            header = true;
        else if (graph)
            header = false;
        if (cases.empty()) continue;
        cases.back().text += line + "\n";
        if (size_t at = line.find("// CHECK: "); at != std::string::npos)
            cases.back().expected.push_back({number, Expectation::Kind::Check, "", trimmed(line.substr(at + 10))});
        if (size_t at = line.find("// CHECK-NOT: "); at != std::string::npos)
            cases.back().expected.push_back({number, Expectation::Kind::CheckNot, "", trimmed(line.substr(at + 14))});
        if (line.find("// UNCHANGED") != std::string::npos) cases.back().unchanged = true;
        if (size_t at = line.find("// ERROR "); at != std::string::npos) {
            std::string rest = line.substr(at + 9);
            size_t colon = rest.find(':');
            cases.back().expected.push_back({number, Expectation::Kind::Error, rest.substr(0, colon),
                                             colon == std::string::npos ? "" : trimmed(rest.substr(colon + 1))});
        }
    }
    return cases;
}

// The result of a case's command on its graph, which is printed into `before`.
Result<std::string> run_graph(const std::string& source, const Case& c, std::string& before) {
    auto command = find_command(c.command);
    EXPECT_TRUE(command) << "there is no command \"" << c.command << "\"";
    if (!command) return std::string();
    auto graph = TRY(parse(c.text, {.source = source}));
    before = print(*graph);
    auto broken = violations(*graph);
    EXPECT_TRUE(broken.empty()) << broken[0];
    return (*command)(std::move(graph));
}

Result<std::string> run_kernel(const std::string& source, const Case& c, std::string& before) {
    auto command = kKernelCommands.find(c.command);
    EXPECT_TRUE(command != kKernelCommands.end()) << "there is no command \"" << c.command << "\"";
    if (command == kKernelCommands.end()) return std::string();
    Kernel kernel = TRY(parse_kernels(c.text, source))[0];
    before = to_string(kernel);
    TRY(verify(kernel));
    command->second(kernel);
    TRY(verify(kernel));
    return to_string(kernel);
}

void expect_reads_back(const std::string& text, bool kernel) {
    if (!kernel) {
        auto again = parse(text, {.source = "printed"});
        ASSERT_TRUE(again.ok()) << again.error().to_string() << "\n" << text;
        return;
    }
    auto again = parse_kernels(text, "printed");
    ASSERT_TRUE(again.ok()) << again.error().to_string() << "\n" << text;
    EXPECT_EQ(to_string((*again)[0]), text);
}

void run_case(const std::string& source, const Case& c) {
    SCOPED_TRACE(source + ":" + std::to_string(c.line));
    std::string before;
    Result<std::string> result = c.kernel ? run_kernel(source, c, before) : run_graph(source, c, before);
    size_t at = 0;
    for (const Expectation& e : c.expected) {
        if (e.kind == Expectation::Kind::Error) {
            ASSERT_FALSE(result.ok()) << "no error, but line " << e.line << " expects " << e.code;
            EXPECT_EQ(code_name(result.error().code()), e.code) << result.error().to_string();
            EXPECT_TRUE(result.error().message().find(e.text) != std::string::npos) << result.error().to_string();
            if (!c.kernel || e.code != "E0601") {
                EXPECT_TRUE(result.error().where().starts_with(source + ":" + std::to_string(e.line) + ":"))
                    << result.error().to_string();
            }
            return;
        }
        ASSERT_TRUE(result.ok()) << result.error().to_string();
        if (e.kind == Expectation::Kind::CheckNot) {
            ASSERT_EQ(result->find(e.text), std::string::npos) << "line " << e.line << ": \"" << e.text << "\" is in\n"
                                                               << *result;
            continue;
        }
        size_t found = result->find(e.text, at);
        ASSERT_NE(found, std::string::npos)
            << "line " << e.line << ": \"" << e.text << "\" is not in, or not after what was checked before:\n"
            << *result;
        at = found + e.text.size();
    }
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    if (c.unchanged) {
        EXPECT_EQ(*result, before);
    } else if (c.command.starts_with(kRule)) {
        EXPECT_NE(*result, before) << "the rule changed nothing";
    }
    expect_reads_back(*result, c.kernel);
}

const std::filesystem::path kFolder = std::filesystem::path(source_dir()) / "test" / "files";

TEST(Files, DoAsTheySay) {
    size_t graphs = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kFolder)) {
        if (entry.path().extension() != ".tsr" && entry.path().extension() != ".tsk") continue;
        std::string source = entry.path().lexically_relative(kFolder).string();
        std::vector<Case> cases = read_cases(entry.path());
        EXPECT_FALSE(cases.empty()) << source;
        for (const Case& c : cases) run_case(source, c);
        graphs += cases.size();
    }
    EXPECT_GT(graphs, 20u);
}

// rules/NAME.tsr has a graph that changes for each rule of NAME.rules; for a rule of several ops, with one of them.
TEST(Files, TryEveryRule) {
    for (const RuleFile& file : built_in_rule_files()) {
        std::string name = std::string(file.name) + ".tsr";
        std::set<std::string> tried;
        for (const Case& c : read_cases(kFolder / "rules" / name))
            if (c.command.starts_with(kRule) && !c.unchanged) tried.insert(c.command.substr(kRule.size()));
        std::map<std::string, bool> families;
        for (const Rule& rule : built_in_rules(file.name)) families[rule.family] |= tried.contains(rule.name);
        for (const auto& [family, has_graph] : families)
            EXPECT_TRUE(has_graph) << "test/files/rules/" << name << " has no graph for the rule " << family;
    }
}

TEST(Files, TryEveryPass) {
    for (const Pass& pass : all_passes()) {
        std::string name = pass.name + ".tsr";
        EXPECT_TRUE(std::filesystem::exists(kFolder / name) || std::filesystem::exists(kFolder / "rules" / name))
            << "no file test for the pass " << pass.name;
    }
}

}  // namespace
}  // namespace tessera
