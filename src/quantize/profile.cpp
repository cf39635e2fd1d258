#include "quantize/profile.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "onnx/file.h"
#include "quantize/plan.h"

namespace tessera {
namespace {

using ProfileJson = nlohmann::ordered_json;
constexpr const char* kProfileFormat = "tessera profile 1";

// Numbers of bins as runs: a negative number -n stands for n empty bins.
ProfileJson packed_bins(const std::vector<int64_t>& bins) {
    ProfileJson out = ProfileJson::array();
    int64_t empty = 0;
    auto flush = [&] {
        if (empty) out.push_back(-empty);
        empty = 0;
    };
    for (int64_t n : bins) {
        if (n == 0) {
            ++empty;
            continue;
        }
        flush();
        out.push_back(n);
    }
    flush();
    return out;
}

ProfileJson to_json_object(const ValueProfile& v) {
    ProfileJson j{{"min", v.min},           {"max", v.max},     {"count", v.count},
                  {"exponent", v.exponent}, {"first", v.first}, {"bins", packed_bins(v.bins)}};
    if (!v.channel_max.empty()) {
        j["channel_max"] = v.channel_max;
        j["channel_sum"] = v.channel_sum;
    }
    return j;
}

// Reads one value; false if anything contradicts.
bool read_value(const ProfileJson& j, ValueProfile& v) {
    j.at("min").get_to(v.min);
    j.at("max").get_to(v.max);
    j.at("count").get_to(v.count);
    j.at("exponent").get_to(v.exponent);
    j.at("first").get_to(v.first);
    int64_t counted = 0;
    for (const auto& n : j.at("bins")) {
        const auto number = n.get<int64_t>();
        if (number < -int64_t(ValueProfile::kBins)) return false;
        if (number < 0)
            v.bins.resize(v.bins.size() + size_t(-number));
        else
            v.bins.push_back(number), counted += number;
        if (v.bins.size() > ValueProfile::kBins) return false;
    }
    if (j.contains("channel_max")) {
        j.at("channel_max").get_to(v.channel_max);
        j.at("channel_sum").get_to(v.channel_sum);
    }
    // The bins must be those of the range.
    if (!(std::isfinite(v.min) && std::isfinite(v.max) && v.min <= v.max) || v.count <= 0 || v.bins.empty())
        return false;
    if (v.exponent < -140 || v.exponent > 128) return false;
    auto bin = [&](double x) { return std::floor(std::ldexp(x, -v.exponent)); };
    return counted == v.count && bin(v.min) == double(v.first) &&
           bin(v.max) == double(v.first + int64_t(v.bins.size()) - 1) && v.channel_max.size() == v.channel_sum.size();
}

}  // namespace

std::vector<Observed> observed_values(const Graph& graph) {
    std::vector<Observed> found;
    std::map<const Value*, size_t> at;
    auto add = [&](const Value* v, std::optional<int64_t> axis) {
        if (!v || v->is_constant() || !is_f32(v)) return;
        const auto [place, fresh] = at.emplace(v, found.size());
        if (fresh) found.push_back({v, axis});
        if (axis && !found[place->second].channel_axis) found[place->second].channel_axis = axis;
    };
    for (const auto& node : graph.nodes()) {
        const OpKind kind = kind_of(*node);
        if (kind == OpKind::Other) continue;
        for (size_t i = 0; i < node->inputs().size(); ++i)
            add(node->input(i), kind == OpKind::Layer && i == 0 ? std::optional(channel_axis(*node)) : std::nullopt);
        add(node->output(), {});
    }
    return found;
}

Result<ValueProfile> observe(const Tensor& value, const Observed& what, int64_t sample) {
    ValueProfile profile;
    const auto data = value.as<float>();
    for (float x : data)
        if (!std::isfinite(x))
            return Error(Code::E0407, "\"{}\" is {} in sample {}", what.value->name(),
                         std::isnan(x) ? "NaN" : "infinite", sample + 1)
                .hint("calibrate on data for which the model computes finite values");
    profile.add(data.data(), data.size());
    if (!what.channel_axis || data.empty()) return profile;
    const int64_t axis = *what.channel_axis < 0 ? *what.channel_axis + value.rank() : *what.channel_axis;
    const int64_t channels = value.size(axis);
    int64_t inner = 1;
    for (int64_t d = axis + 1; d < value.rank(); ++d) inner *= value.size(d);
    profile.channel_max.assign(size_t(channels), 0);
    profile.channel_sum.assign(size_t(channels), 0);
    for (size_t at = 0; at < data.size(); at += size_t(inner)) {
        const size_t c = at / size_t(inner) % size_t(channels);
        double most = profile.channel_max[c], sum = 0;
        for (size_t i = at; i < at + size_t(inner); ++i) {
            most = std::max(most, double(std::abs(data[i])));
            sum += data[i];
        }
        profile.channel_max[c] = most;
        profile.channel_sum[c] += sum;
    }
    return profile;
}

Status Profile::merge(const Profile& other) {
    if (model != other.model)
        return Error(Code::E0501, "the profiles are of different models")
            .hint("merge profiles that were made from the same file, with the same options");
    for (const auto& [name, value] : other.values) values[name].merge(value);
    samples += other.samples;
    return {};
}

std::string Profile::to_json() const {
    ProfileJson j{
        {"format", kProfileFormat}, {"model", model}, {"samples", samples}, {"values", ProfileJson::object()}};
    for (const auto& [name, value] : values) j["values"][name] = to_json_object(value);
    return j.dump() + "\n";
}

Result<Profile> Profile::parse(const std::string& json, const std::string& source) {
    auto malformed = [&](std::string_view what) {
        return Error(Code::E0110, "\"{}\" is not a profile: {}", source, what)
            .hint("profiles are written by tessera calibrate");
    };
    const ProfileJson j = ProfileJson::parse(json, nullptr, false);
    if (j.is_discarded() || !j.is_object()) return malformed("it is not a JSON object");
    if (!j.contains("format") || j["format"] != kProfileFormat) return malformed("its format is not known");
    Profile made;
    try {
        j.at("model").get_to(made.model);
        j.at("samples").get_to(made.samples);
        for (const auto& [name, value] : j.at("values").items())
            if (!read_value(value, made.values[name]))
                return malformed(fmt::format("the histogram of \"{}\" contradicts itself", name));
    } catch (const nlohmann::json::exception& e) {
        return malformed(e.what());
    }
    return made;
}

Result<Profile> Profile::load(const std::string& path) {
    const auto file = TRY(onnx::MappedFile::open(path));
    return parse(std::string(file->bytes()), path);
}

Status Profile::save(const std::string& path) const { return write_file(path, to_json()); }

}  // namespace tessera
