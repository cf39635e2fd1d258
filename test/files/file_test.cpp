// Runs the text files of this folder. A file says on its first line what to do with each of its graphs and, beside the
// lines, what must come of it:
//   // RUN: print                 a command of kCommands, applied to every graph of the file
//   // CHECK: return x            the printed result has this text, each CHECK of a graph after the one before
//   // ERROR E0210: 3 vs 4        the command fails here, at this line, with this code and this text in the message
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "graph/from_onnx.h"
#include "graph/parse.h"
#include "graph/print.h"
#include "graph/to_onnx.h"
#include "graph/verify.h"

namespace tessera {
namespace {

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
    };
    return kCommands;
}

struct Expectation {
    size_t line;
    bool error;
    std::string code, text;
};

// One graph of a file: its text, padded with empty lines so that places are those of the file.
struct Case {
    size_t line = 0;
    std::string text;
    std::vector<Expectation> expected;
};

std::string trimmed(std::string s) {
    s.erase(0, s.find_first_not_of(" \t"));
    s.erase(s.find_last_not_of(" \t\r") + 1);
    return s;
}

void read_cases(const std::filesystem::path& path, std::string& command, std::vector<Case>& cases) {
    std::ifstream file(path);
    bool header = false;  // a model's header began, its graph not yet
    size_t number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        if (size_t at = line.find("// RUN: "); at != std::string::npos) command = trimmed(line.substr(at + 8));
        bool graph = line.starts_with("graph "), model = line.starts_with("model ") || line.starts_with("weights ");
        if (model || (graph && !header)) cases.push_back({number, std::string(number - 1, '\n'), {}});
        if (model)
            header = true;
        else if (graph)
            header = false;
        if (cases.empty()) continue;
        cases.back().text += line + "\n";
        if (size_t at = line.find("// CHECK: "); at != std::string::npos)
            cases.back().expected.push_back({number, false, "", trimmed(line.substr(at + 10))});
        if (size_t at = line.find("// ERROR "); at != std::string::npos) {
            std::string rest = line.substr(at + 9);
            size_t colon = rest.find(':');
            cases.back().expected.push_back({number, true, rest.substr(0, colon),
                                             colon == std::string::npos ? "" : trimmed(rest.substr(colon + 1))});
        }
    }
}

void run_case(const std::string& source, const Case& c, const Command& command) {
    SCOPED_TRACE(source + ":" + std::to_string(c.line));
    auto graph = parse(c.text, {.source = source});
    Result<std::string> result = std::string();
    if (graph.ok()) {
        auto broken = violations(**graph);
        EXPECT_TRUE(broken.empty()) << broken[0];
        result = command(std::move(*graph));
    } else {
        result = std::move(graph).error();
    }
    size_t at = 0;
    for (const Expectation& e : c.expected) {
        if (e.error) {
            ASSERT_FALSE(result.ok()) << "no error, but line " << e.line << " expects " << e.code;
            EXPECT_EQ(code_name(result.error().code()), e.code) << result.error().to_string();
            EXPECT_TRUE(result.error().message().find(e.text) != std::string::npos) << result.error().to_string();
            EXPECT_TRUE(result.error().where().starts_with(source + ":" + std::to_string(e.line) + ":"))
                << result.error().to_string();
            return;
        }
        ASSERT_TRUE(result.ok()) << result.error().to_string();
        size_t found = result->find(e.text, at);
        ASSERT_NE(found, std::string::npos)
            << "line " << e.line << ": \"" << e.text << "\" is not in, or not after what was checked before:\n"
            << *result;
        at = found + e.text.size();
    }
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    // What is printed reads back, and prints the same.
    auto again = parse(*result, {.source = "printed"});
    ASSERT_TRUE(again.ok()) << again.error().to_string() << "\n" << *result;
}

TEST(Files, DoAsTheySay) {
    std::filesystem::path folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "test" / "files";
    size_t graphs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".tsr") continue;
        std::string source = entry.path().filename().string(), name;
        std::vector<Case> cases;
        read_cases(entry.path(), name, cases);
        auto command = commands().find(name);
        if (command == commands().end()) {
            ADD_FAILURE() << source << ": there is no command \"" << name << "\"";
            continue;
        }
        EXPECT_FALSE(cases.empty()) << source;
        for (const Case& c : cases) run_case(source, c, command->second);
        graphs += cases.size();
    }
    EXPECT_GT(graphs, 20u);
}

}  // namespace
}  // namespace tessera
