#include <array>
#include <sstream>

#include "backends/backend.h"
#include "command.h"
#include "peak.h"
#include "runtime/code_cache.h"

namespace tessera::cli {
namespace {

constexpr int64_t kSide = 4096;       // of a product that keeps all SMs busy
constexpr int64_t kCopied = 1 << 26;  // elements of f32: several times the L2 cache
constexpr int kRuns = 20;
constexpr std::array<const char*, 4> kTypes = {"f16", "bf16", "f32", "i8"};

Result<double> seconds_of(const std::string& text, const CompileOptions& options) {
    const Model model = TRY(Model::parse(text));
    const Executable executable = TRY(compile(model, options));
    const DeviceRuns runs = TRY(executable.on_device(TRY(model.random_inputs(0))));
    TRY(runs.seconds(kRuns));  // warms up
    return runs.seconds(kRuns);
}

std::string product_of(const std::string& type) {
    return fmt::format(
        "graph g(a: {0}[{1},{1}], b: {0}[{1},{1}]) {{\n  %t = transpose(b, perm=[1,0])\n  return {2}(a, %t)\n}}\n",
        type, kSide, type == "i8" ? "matmul_integer" : "matmul");
}

Result<Peak> measure(const CompileOptions& options) {
    Peak peak;
    for (const char* type : kTypes)
        peak.flops_by_type[type] = 2.0 * double(kSide) * kSide * kSide / TRY(seconds_of(product_of(type), options));
    const std::string copy = fmt::format("graph g(x: f32[{}]) {{\n  return neg(x)\n}}\n", kCopied);
    peak.bytes = 2.0 * kCopied * sizeof(float) / TRY(seconds_of(copy, options));
    return peak;
}

// One number a line; nothing where it is not what `written` gives.
std::optional<Peak> parsed(const std::string& text) {
    Peak peak;
    std::istringstream in(text);
    for (const char* type : kTypes) in >> peak.flops_by_type[type];
    in >> peak.bytes;
    if (!in || peak.bytes <= 0) return {};
    return peak;
}

std::string written(const Peak& peak) {
    std::string text;
    for (const char* type : kTypes) text += fmt::format("{}\n", peak.flops_by_type.at(type));
    return text + fmt::format("{}\n", peak.bytes);
}

}  // namespace

Result<Peak> gpu_peak(const CompileOptions& options) {
    const Backend& backend = *TRY(find_backend(options.target));
    std::string name;  // of the first device, where none was named
    for (const DeviceInfo& d : backend.devices(nullptr))
        if (d.target == options.target || (name.empty() && options.target == backend.name()))
            name = fmt::format("{} {} {}", d.name, d.code, d.processors);
    // In the user's folder, whatever the model's own is: it is the card's.
    const bool kept = !options.cache || !options.cache->empty();
    const CodeCache cache = TRY(CodeCache::open(kept ? std::nullopt : std::optional<std::string>("")));
    const std::string key = code_key({"peak of a GPU", name, options.precision});
    Peak peak;
    if (auto found = cache.enabled() ? cache.find(key) : std::nullopt)
        if (auto known = parsed(*found)) peak = std::move(*known);
    if (peak.flops_by_type.empty()) {
        CompileOptions own;
        own.target = options.target;
        own.precision = options.precision;
        if (!kept) own.cache = "";
        peak = TRY(measure(own));
        if (cache.enabled()) (void)cache.store(key, written(peak));  // measured again where it cannot be kept
    }
    for (const auto& [type, rate] : peak.flops_by_type) peak.flops = std::max(peak.flops, type == "i8" ? 0 : rate);
    return peak;
}

}  // namespace tessera::cli
