#include "pages/accelerator_page.h"

#include <map>

#include "pages/page.h"

namespace tessera::cli {
namespace {

// The timelines of all parts, one after the other; texts that instructions share are there once.
class Timelines {
  public:
    void add(const DeviceProfile& part, int64_t begin, size_t first_layer) {
        const size_t first = count_;
        for (const DeviceProfile::Span& s : part.spans) {
            const auto [at, fresh] = texts_.try_emplace(s.instruction, texts_.size());
            if (fresh) list_.push_back(s.instruction);
            spans_.push_back({s.unit, begin + s.begin, begin + s.end, int(first_layer) + s.layer, at->second});
            ++count_;
        }
        for (const auto& [from, to] : part.tokens) tokens_.push_back({first + from, first + to});
    }
    void write(Json& j) {
        j["spans"] = std::move(spans_);
        j["tokens"] = std::move(tokens_);
        j["instructions"] = std::move(list_);
    }

  private:
    Json spans_ = Json::array(), tokens_ = Json::array(), list_ = Json::array();
    std::map<std::string, size_t> texts_;
    size_t count_ = 0;
};

}  // namespace

std::string accelerator_page(const AcceleratorProfile& profile, const Executable& executable,
                             const std::string& title) {
    const DeviceProfile& first = profile.parts.front();
    const double rate = first.megahertz * 1e6;
    Json j{{"title", title}, {"machine", first.machine}, {"megahertz", first.megahertz}};
    // What the charts share with the page of other targets: steps, seconds and peaks.
    j["peak"] = {{"flops", 2 * double(first.macs_per_cycle) * rate},
                 {"bytes", double(first.bytes_per_cycle) * rate},
                 {"where", first.machine}};
    j["units"] = Json::array();
    j["steps"] = Json::array();
    Timelines lines;
    int64_t begin = 0;
    for (size_t p = 0; p < profile.parts.size(); ++p) {
        const DeviceProfile& part = profile.parts[p];
        lines.add(part, begin, j["steps"].size());
        for (size_t l = 0; l < part.layers.size(); ++l) {
            const DeviceProfile::Layer& layer = part.layers[l];
            Json step{{"label", layer.name},
                      {"op", layer.op},
                      {"plan", layer.plan},
                      {"seconds", double(layer.end - layer.begin) / rate},
                      {"cycles", layer.end - layer.begin},
                      {"macs", layer.macs},
                      {"flops", 2 * double(layer.macs)},
                      {"bytes", layer.bytes},
                      {"busy", layer.busy()},
                      {"scalar", layer.scalar_cycles}};
            if (const auto* other = profile.without_of(p, l)) step["without"] = other->end - other->begin;
            j["steps"].push_back(std::move(step));
        }
        for (const DeviceProfile::Unit& u : part.units)
            j["units"].push_back({{"part", part.name},
                                  {"name", u.name},
                                  {"cycles", part.cycles},
                                  {"busy", u.busy},
                                  {"fetch", u.wait_fetch},
                                  {"tokens", u.wait_previous + u.wait_next},
                                  {"room", u.wait_room}});
        begin += part.cycles;
    }
    j["cycles"] = begin;
    j["seconds"] = double(begin) / rate;
    lines.write(j);
    j["decisions"] = Json::array();
    for (const auto& [what, why] : executable.report().decisions) j["decisions"].push_back({what, why});
    return page("accelerator.html", j);
}

}  // namespace tessera::cli
