#include "shard/cluster.h"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "base/text_file.h"

namespace tessera::shard {
namespace {

using ClusterJson = nlohmann::ordered_json;

constexpr const char* kClusterFormat = "tessera cluster 1";
constexpr const char* kClusterHint = "machines/clusters/dgx-h100.json is an example, docs/simulation.md explains it";

class ClusterReader {
  public:
    ClusterReader(const ClusterJson& json, const std::string& source) : json_(json), source_(source) {}

    Result<Cluster> read() {
        Cluster c;
        if (!json_.is_object() || json_.value("format", ClusterJson()) != kClusterFormat)
            return malformed(fmt::format("its format is not \"{}\"", kClusterFormat));
        TRY(known(json_, {"format", "name", "device", "network", "sources"}));
        c.name = TRY(text(json_, "name"));
        if (!json_.contains("device") || !json_["device"].is_object()) return malformed("it has no device");
        c.device = TRY(device(json_["device"]));
        if (!json_.contains("network") || !json_["network"].is_array() || json_["network"].empty())
            return malformed("it has no network, a list of levels");
        for (const ClusterJson& level : json_["network"]) c.network.push_back(TRY(network_level(level)));
        for (size_t i = 1; i + 1 < c.network.size(); ++i)
            if (c.network[i].devices % std::max<int64_t>(1, c.network[i - 1].devices) != 0)
                return malformed(
                    fmt::format("network \"{}\" does not connect whole groups of the level within", c.network[i].name));
        for (const ClusterJson& s : json_.value("sources", ClusterJson::array()))
            if (s.is_string()) c.sources.push_back(s.get<std::string>());
        return c;
    }

  private:
    Error malformed(std::string_view what) const {
        return Error(Code::E0110, "\"{}\" is not the description of a cluster: {}", source_, what)
            .hint("{}", kClusterHint);
    }
    // A field that nobody reads is a misspelling.
    Status known(const ClusterJson& j, const std::vector<std::string_view>& names) const {
        for (const auto& [name, value] : j.items())
            if (std::find(names.begin(), names.end(), name) == names.end())
                return malformed(fmt::format("there is no field \"{}\"", name));
        return {};
    }
    Result<std::string> text(const ClusterJson& j, const char* field) const {
        if (!j.contains(field) || !j[field].is_string()) return malformed(fmt::format("it has no text \"{}\"", field));
        return j[field].get<std::string>();
    }
    Result<double> number(const ClusterJson& j, const char* field, double least, double most) const {
        if (!j.contains(field) || !j[field].is_number())
            return malformed(fmt::format("it has no number \"{}\"", field));
        const auto value = j[field].get<double>();
        if (value >= least && value <= most && std::isfinite(value)) return value;
        return Error(Code::E0212, "{} is {}, expected a number from {} to {}", field, value, least, most).at(source_);
    }
    Result<DeviceSpeeds> device(const ClusterJson& j) const {
        TRY(known(j, {"name", "target", "memory_bytes", "memory_bytes_per_second", "memory_fraction", "scalar_flops",
                      "launch_seconds", "flops", "product_fraction"}));
        DeviceSpeeds d;
        d.name = TRY(text(j, "name"));
        d.target = TRY(text(j, "target"));
        d.memory = TRY(number(j, "memory_bytes", 1, 1e18));
        const double nominal = TRY(number(j, "memory_bytes_per_second", 1, 1e18));
        const double fraction = TRY(number(j, "memory_fraction", 1e-6, 1));
        d.bytes_per_second = nominal * fraction;
        d.scalar_flops = TRY(number(j, "scalar_flops", 1, 1e21));
        d.launch = TRY(number(j, "launch_seconds", 0, 1));
        if (!j.contains("flops") || !j["flops"].is_object() || j["flops"].empty())
            return malformed("its device has no flops by element type");
        for (const auto& [name, value] : j["flops"].items()) {
            const auto dtype = dtype_from_name(name);
            if (!dtype) return malformed(fmt::format("there is no element type \"{}\"", name));
            d.flops.emplace_back(*dtype, TRY(number(j["flops"], name.c_str(), 1, 1e21)));
        }
        for (const ClusterJson& point : j.value("product_fraction", ClusterJson::array())) {
            if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number() ||
                point[0] <= 0 || point[1] <= 0 || point[1] > 1)
                return malformed("product_fraction is not a list of [operations, fraction of the peak]");
            if (!d.efficiency.empty() && d.efficiency.back().first >= point[0].get<double>())
                return malformed("product_fraction is not in ascending order of operations");
            d.efficiency.emplace_back(point[0].get<double>(), point[1].get<double>());
        }
        return d;
    }
    Result<NetworkLevel> network_level(const ClusterJson& j) const {
        if (!j.is_object()) return malformed("a level of the network is no object");
        TRY(known(j, {"name", "devices", "latency_seconds", "bytes_per_second", "fraction"}));
        NetworkLevel level;
        level.name = TRY(text(j, "name"));
        if (j.contains("devices")) level.devices = int64_t(TRY(number(j, "devices", 1, 1e9)));
        level.latency = TRY(number(j, "latency_seconds", 0, 10));
        const double nominal = TRY(number(j, "bytes_per_second", 1, 1e18));
        level.bytes_per_second = nominal * (j.contains("fraction") ? TRY(number(j, "fraction", 1e-6, 1)) : 1);
        return level;
    }

    const ClusterJson& json_;
    const std::string& source_;
};

}  // namespace

double DeviceSpeeds::peak(DType operands) const {
    double usual = 0;
    for (const auto& [dtype, rate] : flops) {
        if (dtype == operands) return rate;
        if (dtype == DType::f32 || usual == 0) usual = rate;
    }
    return usual;
}

double DeviceSpeeds::product_fraction(double operations) const {
    if (efficiency.empty()) return 1;
    if (operations <= efficiency.front().first)  // takes the time of the smallest
        return efficiency.front().second * operations / efficiency.front().first;
    for (size_t i = 1; i < efficiency.size(); ++i) {
        const auto& [low, below] = efficiency[i - 1];
        const auto& [high, above] = efficiency[i];
        if (operations > high) continue;
        return below * std::pow(above / below, std::log(operations / low) / std::log(high / low));
    }
    return efficiency.back().second;
}

std::string Cluster::to_json() const {
    ClusterJson j{{"format", kClusterFormat}, {"name", name}};
    j["device"] = {{"name", device.name},
                   {"target", device.target},
                   {"memory_bytes", device.memory},
                   {"memory_bytes_per_second", device.bytes_per_second},
                   {"memory_fraction", 1.0},
                   {"scalar_flops", device.scalar_flops},
                   {"launch_seconds", device.launch},
                   {"flops", ClusterJson::object()},
                   {"product_fraction", ClusterJson::array()}};
    for (const auto& [dtype, rate] : device.flops) j["device"]["flops"][std::string(dtype_name(dtype))] = rate;
    for (const auto& [operations, fraction] : device.efficiency)
        j["device"]["product_fraction"].push_back({operations, fraction});
    j["network"] = ClusterJson::array();
    for (const NetworkLevel& level : network) {
        ClusterJson l{{"name", level.name}};
        if (level.devices > 0) l["devices"] = level.devices;
        l["latency_seconds"] = level.latency;
        l["bytes_per_second"] = level.bytes_per_second;
        j["network"].push_back(std::move(l));
    }
    j["sources"] = sources;
    return j.dump(2) + "\n";
}

Result<Cluster> parse_cluster(const std::string& text, const std::string& source) {
    const ClusterJson json = ClusterJson::parse(text, nullptr, false);
    return ClusterReader(json, source).read();
}

std::vector<std::string> cluster_names() {
    std::vector<std::string> names;
    for (const ClusterFile& f : built_in_clusters()) names.emplace_back(f.name);
    return names;
}

Result<Cluster> find_cluster(const std::string& name_or_path) {
    for (const ClusterFile& f : built_in_clusters())
        if (f.name == name_or_path) return parse_cluster(f.text, name_or_path);
    if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json"))
        return parse_cluster(TRY(read_text_file(name_or_path, "name a cluster's JSON file")), name_or_path);
    const std::vector<std::string> names = cluster_names();
    const std::string meant = nearest(name_or_path, std::vector<std::string_view>(names.begin(), names.end()));
    return Error(Code::E0501, "there is no cluster \"{}\"", name_or_path)
        .hint("{}there are: {}, and JSON files", meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
              fmt::join(names, ", "));
}

}  // namespace tessera::shard
