// Damaged model files give an error or a result, never a crash. Meant to run under AddressSanitizer and UBSan.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "fuzz/exercise.h"
#include "fuzz/mutate.h"
#include "kernel/random_kernel.h"
#include "rewrite/rule.h"
#include "source_dir.h"

namespace tessera::mutation_test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDamagedFiles = 4000;
constexpr size_t kDamagedTexts = 2000;
constexpr int64_t kLargestSeed = 64 << 10;

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

constexpr const char* kOwnSeeds[] = {
    "graph g(x: f32[N,3,H,W], w: f32[4,3,3,3]) { return relu(conv(x, w, pads=[1,1,1,1], strides=[2,2])) }",
    "graph g(x: f32[N,4], b: bool[]) { return if(b, then_branch=graph t() { return neg(x) }, "
    "else_branch=graph e() { return softmax(x) }) }",
    "graph g(x: f32[5,N]) { %v, %i = top_k(x, [2], axis=0)\n return %v, %i }",
    "graph g(x: f32[S,2,3], w: f32[1,16,3], r: f32[1,16,4]) { return lstm(x, w, r, hidden_size=4) }",
    "graph g(x: i64[N], y: i64[N]) { return reshape(concat(x, y, axis=0), [2,-1]) }",
};

// The ONNX suite's models where `make test` has written them, and our own.
std::vector<std::string> seed_models() {
    std::vector<fs::path> paths;
    std::error_code none;
    fs::path suite = fs::path(source_dir()) / "build/onnx_suite_files";
    for (auto it = fs::recursive_directory_iterator(suite, none); it != fs::recursive_directory_iterator(); ++it)
        if (it->path().extension() == ".onnx" && it->file_size() < kLargestSeed) paths.push_back(it->path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> models;
    for (const char* text : kOwnSeeds) {
        auto model = Model::parse(text);
        EXPECT_TRUE(model.ok()) << model.error().to_string();
        models.push_back(*model->to_onnx());
    }
    for (const fs::path& p : paths) models.push_back(read_file(p));
    return models;
}

uint64_t seed() {
    const char* given = std::getenv("TESSERA_SEED");
    uint64_t s = given ? std::strtoull(given, nullptr, 10) : 20261115;
    printf("seed %llu (set TESSERA_SEED to repeat another)\n", static_cast<unsigned long long>(s));
    return s;
}

// A crash leaves the file that caused it. Written in place: a new file each time would wait for the disk.
void remember(const std::string& bytes, const char* name) {
    static std::map<std::string, int> open_files;
    auto [it, fresh] = open_files.emplace(name, -1);
    if (fresh) it->second = open((fs::temp_directory_path() / name).c_str(), O_CREAT | O_RDWR, 0644);
    ASSERT_EQ(ftruncate(it->second, 0), 0);
    ASSERT_EQ(pwrite(it->second, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
}

// Tries `count` damaged models, each from `damage(model)`.
template <typename F>
void try_damaged(size_t count, F damage) {
    auto models = seed_models();
    ASSERT_FALSE(models.empty());
    std::mt19937_64 random(seed());
    size_t loaded = 0, ran = 0;
    for (size_t i = 0; i < count; ++i) {
        std::string bytes = damage(models[random() % models.size()], random);
        remember(bytes, "tessera-damaged.onnx");
        loaded += Model::from_onnx(bytes).ok();
        ran += exercise_onnx(bytes);
    }
    printf("%zu damaged files of %zu models: %zu still load, %zu still run\n", count, models.size(), loaded, ran);
    EXPECT_GT(loaded, 0u);
    EXPECT_LT(loaded, count);
}

TEST(mutation, models_with_damaged_bytes_never_crash) { try_damaged(kDamagedFiles, mutate_bytes); }

TEST(mutation, models_with_damaged_meaning_never_crash) { try_damaged(kDamagedFiles, mutate_meaning); }

TEST(mutation, truncation_anywhere_never_crashes) {
    auto models = seed_models();
    ASSERT_FALSE(models.empty());
    std::sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    for (size_t k = 0; k < models.size(); k += models.size() / 12 + 1)
        for (size_t length = 0; length < models[k].size(); length += 1 + models[k].size() / 200) {
            std::string bytes = models[k].substr(0, length);
            remember(bytes, "tessera-damaged.onnx");
            exercise_onnx(bytes);
        }
}

TEST(mutation, damaged_text_never_crashes) {
    std::vector<std::string> texts;
    for (const std::string& bytes : seed_models())
        if (auto model = Model::from_onnx(bytes); model.ok()) texts.push_back(model->to_text());
    ASSERT_FALSE(texts.empty());
    std::mt19937_64 random(seed());
    size_t loaded = 0;
    for (size_t i = 0; i < kDamagedTexts; ++i) {
        std::string text = mutate_bytes(texts[random() % texts.size()], random);
        remember(text, "tessera-damaged.tsr");
        loaded += Model::parse(text).ok();
        exercise_text(text);
    }
    printf("%zu damaged texts: %zu still load\n", kDamagedTexts, loaded);
    EXPECT_LT(loaded, kDamagedTexts);
}

TEST(mutation, damaged_rules_never_crash) {
    const auto& files = built_in_rule_files();
    ASSERT_FALSE(files.empty());
    std::mt19937_64 random(seed());
    size_t read = 0;
    for (size_t i = 0; i < kDamagedTexts; ++i) {
        std::string text = mutate_bytes(std::string(files[random() % files.size()].text), random);
        remember(text, "tessera-damaged.rules");
        read += exercise_rules(text);
    }
    printf("%zu damaged rule files: %zu still read\n", kDamagedTexts, read);
    EXPECT_LT(read, kDamagedTexts);
}

TEST(mutation, damaged_kernels_never_crash) {
    std::mt19937_64 random(seed());
    size_t read = 0;
    for (size_t i = 0; i < kDamagedTexts; ++i) {
        std::string text = mutate_bytes(to_string(random_kernel(random(), {.exact = false}).kernel), random);
        remember(text, "tessera-damaged.tsk");
        read += exercise_kernels(text);
    }
    printf("%zu damaged kernels: %zu still read\n", kDamagedTexts, read);
    EXPECT_GT(read, 0u);
    EXPECT_LT(read, kDamagedTexts);
}

}  // namespace
}  // namespace tessera::mutation_test
