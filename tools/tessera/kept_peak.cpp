// What this processor reached so far: on a busy machine one measurement alone is too low.
#include <sstream>

#include "command.h"
#include "peak.h"
#include "runtime/code_cache.h"
#include "runtime/target_key.h"

namespace tessera::cli {
namespace {

// The user's folder, whatever the model's own is: it is the machine's. Disabled by --no-cache.
CodeCache folder_of(const CompileOptions& options) {
    const bool kept = !options.cache || !options.cache->empty();
    auto cache = CodeCache::open(kept ? std::nullopt : std::optional<std::string>(""));
    return cache.ok() ? *cache : CodeCache({}, 0);
}

std::string key_of(int threads) {
    std::vector<std::string> parts = machine_parts({});
    parts.push_back(fmt::format("peak of {} threads", threads));
    return code_key(parts);
}

std::optional<Peak> kept_peak(const CodeCache& cache, int threads) {
    const auto found = cache.enabled() ? cache.find(key_of(threads)) : std::nullopt;
    if (!found) return {};
    Peak peak{.threads = threads};
    std::istringstream in(*found);
    in >> peak.flops >> peak.bytes;
    if (!in || !(peak.flops > 0) || !(peak.bytes > 0)) return {};
    return peak;
}

void keep(const CodeCache& cache, const Peak& peak) {
    if (cache.enabled()) (void)cache.store(key_of(peak.threads), fmt::format("{} {}\n", peak.flops, peak.bytes));
}

}  // namespace

Peak cpu_peak(const CompileOptions& options) {
    const CodeCache cache = folder_of(options);
    Peak peak = measure_peak(options.threads);
    const auto kept = kept_peak(cache, peak.threads);
    if (kept) {
        peak.flops = std::max(peak.flops, kept->flops);
        peak.bytes = std::max(peak.bytes, kept->bytes);
    }
    if (!kept || peak.flops > kept->flops || peak.bytes > kept->bytes) keep(cache, peak);
    return peak;
}

void raise_peak(Peak& peak, const std::vector<StepProfile>& steps, const CompileOptions& options) {
    constexpr double kLongEnough = 1e-4;  // seconds of a step, for its rate to be kept
    double kept = peak.flops;
    for (const StepProfile& s : steps) {
        const double rate = s.seconds > 0 ? s.flops / s.seconds : 0;
        if (rate <= peak.flops_of(s.dtype)) continue;
        if (s.dtype != "f32") {
            peak.flops_by_type[s.dtype] = rate;
            continue;
        }
        peak.flops = rate;
        if (s.seconds >= kLongEnough) kept = std::max(kept, rate);
    }
    Peak lasting = peak;
    lasting.flops = kept;
    const CodeCache cache = folder_of(options);
    if (const auto before = kept_peak(cache, peak.threads); before && kept > before->flops) keep(cache, lasting);
}

}  // namespace tessera::cli
