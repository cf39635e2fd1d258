// tessera cache: what the folder of compiled code holds, and how to empty it.
#include <chrono>

#include "help.h"
#include "runtime/code_cache.h"

namespace tessera::cli {
namespace {

constexpr const char* kCacheExamples =
    "Examples:\n"
    "  tessera cache                   its folder and size\n"
    "  tessera cache list              its entries, most recently used first\n"
    "  tessera cache clear\n";

struct Cache {
    std::optional<std::string> folder;
    bool json = false;

    Result<CodeCache> open() const {
        CodeCache cache = TRY(CodeCache::open(folder));
        if (cache.enabled()) return cache;
        return Error(Code::E0605, "there is no folder for compiled code")
            .hint("set TESSERA_CACHE to a folder, or HOME, below which the default folder is");
    }
    Status size() const;
    Status list() const;
    Status clear() const;
};

double seconds_ago(std::filesystem::file_time_type time) {
    const auto now = std::filesystem::file_time_type::clock::now();
    return std::max(0.0, std::chrono::duration<double>(now - time).count());
}

std::string ago(double seconds) {
    constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
    if (seconds < kMinute) return "just now";
    if (seconds < kHour) return plural(std::floor(seconds / kMinute), "minute") + " ago";
    if (seconds < kDay) return plural(std::floor(seconds / kHour), "hour") + " ago";
    return plural(std::floor(seconds / kDay), "day") + " ago";
}

const char* kind_of(const CodeCache::Entry& entry) { return entry.program ? "model" : "code"; }

Status Cache::size() const {
    const CodeCache cache = TRY(open());
    int64_t bytes = 0, programs = 0, codes = 0;
    for (const CodeCache::Entry& e : cache.entries()) {
        bytes += e.bytes;
        ++(e.program ? programs : codes);
    }
    if (json) {
        print_json({{"folder", cache.folder().string()},
                    {"bytes", bytes},
                    {"limit_bytes", cache.limit()},
                    {"models", programs},
                    {"codes", codes}});
        return {};
    }
    fmt::print("{}\n", bold(escaped(cache.folder().string())));
    fmt::print("  size         {} of at most {} (TESSERA_CACHE_SIZE)\n", human_bytes(double(bytes)),
               human_bytes(double(cache.limit())));
    fmt::print("  entries      {} with code and weights, {} with code, measurements or checked rules only\n",
               plural(double(programs), "model"), plural(double(codes), "piece"));
    return {};
}

Status Cache::list() const {
    const CodeCache cache = TRY(open());
    std::vector<CodeCache::Entry> entries = cache.entries();
    std::reverse(entries.begin(), entries.end());
    if (json) {
        Json j{{"folder", cache.folder().string()}, {"entries", Json::array()}};
        for (const CodeCache::Entry& e : entries)
            j["entries"].push_back({{"file", e.path.filename().string()},
                                    {"kind", kind_of(e)},
                                    {"bytes", e.bytes},
                                    {"seconds_since_use", seconds_ago(e.used)}});
        print_json(j);
        return {};
    }
    for (const CodeCache::Entry& e : entries)
        fmt::print("{:>10}  {:<5}  {}  {}\n", human_bytes(double(e.bytes)), kind_of(e),
                   escaped(e.path.filename().string()), ago(seconds_ago(e.used)));
    return {};
}

Status Cache::clear() const {
    const CodeCache cache = TRY(open());
    const int64_t gone = cache.clear();
    if (json)
        print_json({{"folder", cache.folder().string()}, {"removed_bytes", gone}});
    else
        fmt::print("{} removed from {}\n", human_bytes(double(gone)), escaped(cache.folder().string()));
    return {};
}

}  // namespace

void add_cache(CLI::App& app, Chosen& chosen) {
    auto cache = std::make_shared<Cache>();
    CLI::App* c = app.add_subcommand("cache", "Show or clear the cache of compiled code");
    c->footer(fmt::format("{}\n{}", kCacheExamples, kExitStatus));  // its subcommands inherit it
    auto add = [&](CLI::App& to, Status (Cache::*action)() const) {
        to.add_option("--cache-dir", cache->folder, "Folder of the code cache (per user)")->option_text("DIR");
        to.add_flag("--json", cache->json, "Print JSON");
        return [cache, action, &chosen] {
            chosen = [cache, action] { return report((cache.get()->*action)(), cache->json); };
        };
    };
    CLI::App* size = c->add_subcommand("size", "Print the folder and the size of the cache");
    size->callback(add(*size, &Cache::size));
    CLI::App* list = c->add_subcommand("list", "List the entries, most recently used first");
    list->callback(add(*list, &Cache::list));
    CLI::App* clear = c->add_subcommand("clear", "Remove all entries");
    clear->callback(add(*clear, &Cache::clear));
    c->require_subcommand(0, 1);
    const auto otherwise = add(*c, &Cache::size);
    c->callback([c, otherwise] {
        if (c->get_subcommands().empty()) otherwise();
    });
}

}  // namespace tessera::cli
