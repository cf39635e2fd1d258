#include "accelerator_profile.h"

namespace tessera::cli {
namespace {

using Layer = DeviceProfile::Layer;

int64_t cycles_of(const Layer& layer) { return layer.end - layer.begin; }

double times(int64_t more, int64_t fewer) { return fewer > 0 ? double(more) / double(fewer) : 0; }

struct Sums {
    int64_t cycles = 0, without = 0, macs = 0, matrix = 0, scalar = 0, bytes = 0;
};

Sums summed(const AcceleratorProfile& profile) {
    Sums s;
    for (const DeviceProfile& part : profile.parts) {
        s.cycles += part.cycles;
        s.matrix += part.matrix_cycles;
        s.bytes += part.load_bytes + part.store_bytes + part.fetch_bytes;
        for (const Layer& layer : part.layers) {
            s.macs += layer.macs;
            s.scalar += layer.scalar_cycles;
        }
    }
    for (const DeviceProfile& part : profile.without) s.without += part.cycles;
    return s;
}

void print_layer(const Sums& s, bool compare, const std::string& what, const std::string& plan) {
    fmt::print("{:>12} {:>8} {:>8.1f} {:>6.1f} % {:>9} {:>8.0f}x", s.cycles, human_count(double(s.macs)),
               times(s.macs, s.cycles), 100 * times(s.matrix, s.cycles), human_bytes(double(s.bytes)),
               times(s.scalar, s.cycles));
    if (compare) fmt::print(" {:>12} {:>6.2f}x", s.without, times(s.without, s.cycles));
    fmt::print("  {}{}\n", escaped(what), plan.empty() ? "" : dim("  " + plan));
}

void print_units(const DeviceProfile& part) {
    for (const DeviceProfile::Unit& u : part.units)
        fmt::print(
            "  {:<8} {:>6} instructions, busy {:>5.1f} %, waits for instructions {:.1f} %, tokens {:.1f} %, room "
            "{:.1f} %\n",
            u.name, u.instructions, 100 * times(u.busy, part.cycles), 100 * times(u.wait_fetch, part.cycles),
            100 * times(u.wait_previous + u.wait_next, part.cycles), 100 * times(u.wait_room, part.cycles));
    fmt::print("  compute  {:.1f} % matrix unit, {:.1f} % vector ALU, {:.1f} % waits of its operands\n",
               100 * times(part.matrix_cycles, part.cycles), 100 * times(part.alu_cycles, part.cycles),
               100 * times(part.alu_stalls, part.cycles));
}

Json layer_json(const Layer& layer, const Layer* without) {
    Json j{{"name", layer.name},
           {"op", layer.op},
           {"plan", layer.plan},
           {"begin", layer.begin},
           {"cycles", cycles_of(layer)},
           {"macs", layer.macs},
           {"matrix_cycles", layer.matrix_cycles},
           {"matrix_busy", layer.busy()},
           {"bytes", layer.bytes},
           {"least_bytes", layer.least_bytes},
           {"scalar_cycles", layer.scalar_cycles}};
    if (without) j["without_virtual_threads"] = {{"cycles", cycles_of(*without)}, {"bytes", without->bytes}};
    return j;
}

}  // namespace

Json accelerator_json(const AcceleratorProfile& profile) {
    Json parts = Json::array();
    for (size_t p = 0; p < profile.parts.size(); ++p) {
        const DeviceProfile& part = profile.parts[p];
        Json j{{"name", part.name},
               {"machine", part.machine},
               {"megahertz", part.megahertz},
               {"cycles", part.cycles},
               {"macs_per_cycle", part.macs_per_cycle},
               {"bytes_per_cycle", part.bytes_per_cycle},
               {"matrix_cycles", part.matrix_cycles},
               {"alu_cycles", part.alu_cycles},
               {"alu_stalls", part.alu_stalls},
               {"bytes", {{"fetch", part.fetch_bytes}, {"load", part.load_bytes}, {"store", part.store_bytes}}}};
        if (p < profile.without.size()) j["cycles_without_virtual_threads"] = profile.without[p].cycles;
        for (const DeviceProfile::Unit& u : part.units)
            j["units"][u.name] = {{"instructions", u.instructions}, {"busy", u.busy},
                                  {"wait_fetch", u.wait_fetch},     {"wait_previous", u.wait_previous},
                                  {"wait_next", u.wait_next},       {"wait_room", u.wait_room}};
        j["layers"] = Json::array();
        for (size_t l = 0; l < part.layers.size(); ++l)
            j["layers"].push_back(layer_json(part.layers[l], profile.without_of(p, l)));
        parts.push_back(std::move(j));
    }
    const Sums all = summed(profile);
    Json j{{"parts", std::move(parts)},
           {"cycles", all.cycles},
           {"macs", all.macs},
           {"scalar_cycles", all.scalar},
           {"speedup_over_scalar", times(all.scalar, all.cycles)}};
    if (all.without) j["cycles_without_virtual_threads"] = all.without;
    return j;
}

void print_accelerator(const AcceleratorProfile& profile, const std::string& title, size_t most_layers) {
    const DeviceProfile& first = profile.parts.front();
    const bool compare = !profile.without.empty();
    fmt::print("{}  on {}: {} multiply-accumulates and {} bytes a cycle, {} MHz\n", bold(title), first.machine,
               first.macs_per_cycle, first.bytes_per_cycle, first.megahertz);
    fmt::print("{}\n", bold(fmt::format("{:>12} {:>8} {:>8} {:>8} {:>9} {:>9}{}  {}", "cycles", "MACs", "MAC/cyc",
                                        "matrix", "bytes", "scalar",
                                        compare ? fmt::format(" {:>12} {:>7}", "one thread", "hidden") : "", "layer")));
    size_t left = 0;
    for (size_t p = 0, shown = 0; p < profile.parts.size(); ++p)
        for (size_t l = 0; l < profile.parts[p].layers.size(); ++l, ++shown) {
            if (shown >= most_layers) {
                ++left;
                continue;
            }
            const Layer& layer = profile.parts[p].layers[l];
            const Layer* other = profile.without_of(p, l);
            print_layer({cycles_of(layer), other ? cycles_of(*other) : 0, layer.macs, layer.matrix_cycles,
                         layer.scalar_cycles, layer.bytes},
                        compare, layer.op + " " + layer.name, layer.plan);
        }
    if (left) fmt::print("{:>12} {} more (--rows)\n", "", plural(double(left), "layer"));
    const Sums all = summed(profile);
    print_layer(
        all, compare,
        fmt::format("all, {} at {} MHz", human_seconds(double(all.cycles) / first.megahertz / 1e6), first.megahertz),
        "");
    for (const DeviceProfile& part : profile.parts) {
        fmt::print("{}\n", bold(escaped(part.name)));
        print_units(part);
    }
}

}  // namespace tessera::cli
