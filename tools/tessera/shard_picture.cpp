#include "shard_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "command.h"

namespace tessera::cli {
namespace {

constexpr double kPageWidth = 980, kNodeLeft = 250, kNode = 330, kWeight = 250, kGap = 20, kBoxHeight = 24, kRow = 40,
                 kPill = 17;
constexpr double kLane = 9;
constexpr int kLanes = 14;
constexpr const char* kColours[] = {"#9ecae1", "#fdae6b", "#a1d99b", "#bcbddc", "#fb9a99", "#ffe08a",
                                    "#8fd3c8", "#e7a6d3", "#c9b18f", "#b5cf6b", "#ff9da7", "#86bcb6"};

std::string marked_up(const std::string& text) {
    std::string out;
    for (char c : escaped(text)) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    return out;
}

std::string label_at(double x, double y, const char* anchor, const std::string& what, const char* style = "") {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, style,
                       marked_up(what));
}

std::string shortened(const std::string& text, size_t most) {
    return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

std::string in_words(std::string kind) {
    std::replace(kind.begin(), kind.end(), '_', '-');
    return kind;
}

class Picture {
  public:
    Picture(const ShardReport& report, const std::string& model) : report_(report), model_(model) {
        for (const ShardedValue& v : report.values) values_[v.name] = &v;
        for (const Collective& c : report.collectives) collectives_[c.value].push_back(&c);
        for (const ShardedValue& v : report.values) colour(v.sharding);
    }

    std::string draw() {
        place();
        std::string out = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
            kPageWidth, bottom_ + 20);
        out += label_at(
            20, 24, "start",
            fmt::format("{} over {}: {} computing, {} in collectives, {} a rank", model_, report_.mesh,
                        human_seconds(report_.cost.compute_seconds), human_seconds(report_.cost.communicate_seconds),
                        human_bytes(double(report_.cost.bytes()))),
            " font-size=\"15\"");
        return out + legend() + edges() + boxes() + "</svg>\n";
    }

  private:
    static bool is_whole(const std::string& sharding) { return sharding.find_first_not_of("-,_") == std::string::npos; }

    const char* colour(const std::string& sharding) {
        if (is_whole(sharding)) return "#eeeeee";
        const auto [found, _] = colours_.emplace(sharding, colours_.size());
        return kColours[found->second % std::size(kColours)];
    }
    const char* colour_of(const std::string& value) {
        const auto found = values_.find(value);
        return found == values_.end() ? "#ffffff" : colour(found->second->sharding);
    }
    std::string sharding_of(const std::string& value) const {
        const auto found = values_.find(value);
        return found == values_.end() || is_whole(found->second->sharding) ? "whole" : found->second->sharding;
    }

    // A row for each input and each node; below it, its collectives.
    void place() {
        bottom_ = 44 + 22 * double((std::max<size_t>(colours_.size(), 1) + 4) / 4 + 1);
        auto add = [&](const std::string& value) {
            y_[value] = bottom_;
            bottom_ += kRow + kPill * double(collectives_[value].size());
        };
        for (const ShardedValue& v : report_.values)
            if (!v.weight && !is_result(v.name)) {
                inputs_.push_back(v.name);
                add(v.name);
            }
        for (const ShardedNode& n : report_.nodes) {
            for (const std::string& r : n.results) y_[r] = bottom_;
            add(n.results[0]);
        }
    }

    bool is_result(const std::string& value) {
        if (results_.empty())
            for (const ShardedNode& n : report_.nodes)
                for (const std::string& r : n.results) results_.insert({r, true});
        return results_.contains(value);
    }

    std::string legend() {
        std::string out;
        std::vector<std::pair<std::string, std::string>> entries{{"whole", "#eeeeee"}};
        std::vector<std::string> texts(colours_.size());
        for (const auto& [sharding, number] : colours_) texts[number] = sharding;
        for (const std::string& t : texts) entries.emplace_back(t, colour(t));
        for (size_t i = 0; i < entries.size(); ++i) {
            const double x = 20 + 235 * double(i % 4), y = 40 + 22 * double(i / 4);
            out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"16\" height=\"14\" fill=\"{}\" stroke=\"#999\"/>\n", x,
                               y, entries[i].second);
            out += label_at(x + 22, y + 12, "start", entries[i].first);
        }
        return out;
    }

    // From where a value is made to where it is read: down the middle to the next row, else along lanes at the left.
    std::string edges() {
        std::string out;
        int lane = 0;
        for (const ShardedNode& n : report_.nodes)
            for (const std::string& in : n.inputs) {
                const auto from = y_.find(in);
                if (from == y_.end()) continue;
                const double to = y_.at(n.results[0]), start = from->second + kBoxHeight;
                const bool crosses = collectives_.contains(in) && !collectives_[in].empty();
                const char* line = crosses ? "stroke=\"#d62728\" stroke-width=\"2\"" : "stroke=\"#888\"";
                if (to - start < kRow + kPill * double(collectives_[in].size()) - kBoxHeight + 1) {
                    out += fmt::format("<line x1=\"{0}\" x2=\"{0}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" {3}/>\n",
                                       kNodeLeft + 40, start, to, line);
                    continue;
                }
                const double x = kNodeLeft - 12 - kLane * double(lane++ % kLanes);
                out += fmt::format("<path d=\"M{0} {1:.1f} H{2:.1f} V{3:.1f} H{0}\" fill=\"none\" {4}/>\n", kNodeLeft,
                                   start - 8, x, to + 8, line);
            }
        return out;
    }

    std::string box(double x, double y, double width, const std::string& value, const std::string& name) {
        std::string out =
            fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" stroke=\"#666\">",
                        x, y, width, kBoxHeight, colour_of(value));
        const auto found = values_.find(value);
        out += fmt::format(
            "<title>{}</title></rect>\n",
            marked_up(found == values_.end()
                          ? value
                          : fmt::format("{} {} {}, a rank has {}", value, found->second->type, sharding_of(value),
                                        human_bytes(double(found->second->rank_bytes)))));
        const std::string sharding = sharding_of(value);
        out +=
            label_at(x + 6, y + 16, "start", shortened(name, size_t((width - 7 * double(sharding.size()) - 20) / 6.6)));
        return out + label_at(x + width - 6, y + 16, "end", sharding, " fill=\"#333\" font-family=\"monospace\"");
    }

    std::string boxes() {
        std::string out;
        auto row = [&](const std::string& value, const std::string& name) {
            out += box(kNodeLeft, y_.at(value), kNode, value, name);
            double y = y_.at(value) + kBoxHeight + 2;
            for (const Collective* c : collectives_[value]) {
                out += pill(kNodeLeft + 60, y, *c);
                y += kPill;
            }
        };
        for (const std::string& in : inputs_) row(in, "input " + in);
        for (const ShardedNode& n : report_.nodes) {
            row(n.results[0], n.op + "  " + n.results[0]);
            double x = kNodeLeft + kNode + kGap;
            const double y = y_.at(n.results[0]);
            for (const std::string& in : n.inputs) {
                const auto found = values_.find(in);
                if (found == values_.end() || !found->second->weight || found->second->bytes < 1024) continue;
                if (x + 120 > kPageWidth) break;
                out += box(x, y, kWeight, in, in);
                for (const Collective* c : collectives_[in]) out += pill(x, y + kBoxHeight + 2, *c);
                x += kWeight + kGap;
            }
        }
        return out;
    }

    static std::string pill(double x, double y, const Collective& c) {
        const std::string label = fmt::format("{} over {}, {}, {}", in_words(c.kind), c.axes,
                                              human_bytes(double(c.bytes)), human_seconds(c.seconds));
        return fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"15\" rx=\"7\" fill=\"#d62728\"/>\n",
                           x, y, 14 + 5.9 * double(label.size())) +
               label_at(x + 7, y + 11.5, "start", label, " fill=\"white\" font-size=\"11\"");
    }

    const ShardReport& report_;
    const std::string& model_;
    std::map<std::string, const ShardedValue*> values_;
    std::map<std::string, std::vector<const Collective*>> collectives_;
    std::map<std::string, size_t> colours_;
    std::map<std::string, double> y_;
    std::map<std::string, bool> results_;
    std::vector<std::string> inputs_;
    double bottom_ = 0;
};

}  // namespace

std::string shard_picture(const ShardReport& report, const std::string& model) { return Picture(report, model).draw(); }

}  // namespace tessera::cli
