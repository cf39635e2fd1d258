// A net under changes that are meant to leave generated code alone: the kernels of a few models, for several processors
// and numbers of threads, are those whose hashes stand in generated/kernels.txt. Where a change is meant,
// TESSERA_UPDATE=1 writes the file anew, and its diff says which models changed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "base/hash.h"
#include "graph/text/parse.h"
#include "kernel/from_graph/from_graph.h"
#include "llvm/compile_kernels.h"
#include "rewrite/edit.h"
#include "rewrite/passes/optimize.h"
#include "source_dir.h"

namespace tessera::generated_test {
namespace {

const std::string kFolder = source_dir() + "/test/kernel/generated/";

std::map<std::string, std::string> model_texts() {
    std::map<std::string, std::string> out;
    std::ifstream file(kFolder + "models.tsr");
    std::string name;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("graph ")) name = line.substr(6, line.find('(') - 6);
        if (!name.empty()) out[name] += line + "\n";
    }
    return out;
}

std::shared_ptr<const Graph> model(const std::string& text) {
    auto graph = parse(text);
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    if (!graph.ok()) return nullptr;
    for (const auto& input : (*graph)->inputs()) {
        if (!input->name().starts_with("w")) continue;
        Sizes sizes;
        for (const Dim& d : input->type().tensor().shape) sizes.push_back(*d.as_int());
        Tensor weights = *Tensor::zeros(input->type().tensor().dtype, sizes);
        for (int64_t i = 0; i < weights.elements(); ++i) weights.set_int(i, i % 5);
        put_in_place(*input, *(*graph)->constant(std::move(weights)), false);
    }
    auto report = optimize(**graph, {.last_phase = Phase::Rewrite});
    EXPECT_TRUE(report.ok()) << report.error().to_string();
    return std::move(*graph);
}

// FNV-1a, so that the file does not depend on this build's hash functions.
uint64_t hash_of_text(const std::string& text) {
    uint64_t h = 0xcbf29ce484222325;
    for (unsigned char c : text) h = (h ^ c) * 0x100000001b3;
    return h;
}

std::string all_hashes() {
    std::ostringstream out;
    for (const auto& [name, text] : model_texts()) {
        auto graph = model(text);
        if (!graph) continue;
        for (const char* target : {"aarch64-neon", "x86_64-avx2", "x86_64-avx512"})
            for (int threads : {1, 4}) {
                LowerOptions options;
                options.machine = *describe_target(target);
                options.threads = threads;
                auto program = from_graph(graph, options);
                EXPECT_TRUE(program.ok()) << name << ": " << program.error().to_string();
                if (!program.ok()) continue;
                std::string kernels;
                for (const Kernel& k : program->kernels) kernels += to_string(k);
                out << fmt::format("{} {} {} {:016x}\n", name, target, threads, hash_of_text(kernels));
            }
    }
    return out.str();
}

TEST(Generated, KernelsAreThoseThatWereWrittenDown) {
    const std::string found = all_hashes(), path = kFolder + "kernels.txt";
    if (const char* update = std::getenv("TESSERA_UPDATE"); update && *update == '1') {
        std::ofstream(path) << found;
        return;
    }
    std::stringstream expected;
    expected << std::ifstream(path).rdbuf();
    EXPECT_EQ(found, expected.str()) << "generated kernels changed; where that is meant: TESSERA_UPDATE=1";
}

}  // namespace
}  // namespace tessera::generated_test
