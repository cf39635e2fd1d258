#include "design_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::cli {
namespace {

constexpr double kWidth = 720, kHeight = 420, kLeft = 78, kRight = 90, kTop = 36, kBottom = 48;

// A logarithmic axis with a margin around its values, and round numbers on it.
class Axis {
  public:
    Axis(std::vector<double> values, double from, double to) : from_(from), to_(to) {
        const auto [least, most] = std::minmax_element(values.begin(), values.end());
        low_ = std::log10(*least) - 0.08;
        high_ = std::log10(*most) + 0.08;
    }
    double at(double value) const { return from_ + (std::log10(value) - low_) / (high_ - low_) * (to_ - from_); }
    std::vector<double> ticks() const {
        std::vector<double> all;
        for (int power = int(std::floor(low_)); power <= int(std::ceil(high_)); ++power)
            for (double digit : {1.0, 2.0, 5.0}) {
                const double value = digit * std::pow(10, power);
                if (std::log10(value) >= low_ && std::log10(value) <= high_) all.push_back(value);
            }
        return all;
    }

  private:
    double from_, to_, low_, high_;
};

std::string escaped_text(const std::string& text) {
    std::string out;
    for (char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    return out;
}

std::string text(double x, double y, const char* anchor, const std::string& what) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                       escaped_text(what));
}

}  // namespace

std::string design_plot(const std::vector<ExploredMachine>& machines, const std::vector<bool>& best,
                        const std::string& model) {
    std::vector<double> areas, cycles;
    for (const ExploredMachine& m : machines) {
        areas.push_back(m.total_area() / 1e6);
        cycles.push_back(double(m.cycles) / 1e6);
    }
    const Axis x(areas, kLeft, kWidth - kRight), y(cycles, kHeight - kBottom, kTop);
    std::string s = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kWidth, kHeight);
    s += text(kLeft, 20, "start", "cycles against area: " + model);
    for (double v : y.ticks()) {
        s += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", kLeft,
                         kWidth - kRight, y.at(v), y.at(v));
        s += text(kLeft - 6, y.at(v) + 4, "end", fmt::format("{:g}", v));
    }
    for (double v : x.ticks()) {
        s += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\" stroke=\"#ddd\"/>\n", x.at(v), x.at(v),
                         kTop, kHeight - kBottom);
        s += text(x.at(v), kHeight - kBottom + 18, "middle", fmt::format("{:g}", v));
    }
    s += text((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle", "area, millions of transistors (estimated)");
    s += fmt::format(
        "<text x=\"16\" y=\"{0}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {0})\">million cycles"
        "</text>\n",
        kHeight / 2);
    std::vector<size_t> front;
    for (size_t i = 0; i < machines.size(); ++i)
        if (best[i]) front.push_back(i);
    std::sort(front.begin(), front.end(), [&](size_t a, size_t b) { return areas[a] < areas[b]; });
    s += "<polyline fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"1.5\" points=\"";
    for (size_t i : front) s += fmt::format("{:.1f},{:.1f} ", x.at(areas[i]), y.at(cycles[i]));
    s += "\"/>\n";
    for (size_t i = 0; i < machines.size(); ++i) {
        const MachineSizes& sizes = machines[i].sizes;
        s += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n", x.at(areas[i]), y.at(cycles[i]),
                         best[i] ? "#1f6feb" : "#9aa5b4");
        s += text(x.at(areas[i]) + 7, y.at(cycles[i]) - 4, "start",
                  fmt::format("{}x{}, {} B", sizes.inputs, sizes.outputs, sizes.bytes_per_cycle));
    }
    return s + "</svg>\n";
}

}  // namespace tessera::cli
