#include "loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

namespace tessera::cli {

void LossCurve::add(double loss) {
    sum_ += loss;
    if (++open_ < each_) return;
    points_.push_back(sum_ / double(each_));
    sum_ = 0;
    open_ = 0;
    if (points_.size() < kMostPoints) return;
    for (size_t i = 0; i < kMostPoints / 2; ++i) points_[i] = (points_[2 * i] + points_[2 * i + 1]) / 2;
    points_.resize(kMostPoints / 2);
    each_ *= 2;
}

std::string LossCurve::text() const {
    std::string all = fmt::format("{} {} {:a}", each_, open_, sum_);
    for (double p : points_) all += fmt::format(" {:a}", p);
    return all;
}

bool LossCurve::read(std::string_view text) {
    std::istringstream words{std::string(text)};
    LossCurve made;
    std::string word;
    if (!(words >> made.each_ >> made.open_ >> word) || made.each_ == 0) return false;
    made.sum_ = std::strtod(word.c_str(), nullptr);
    while (words >> word && made.points_.size() < kMostPoints)
        made.points_.push_back(std::strtod(word.c_str(), nullptr));
    *this = std::move(made);
    return true;
}

std::string LossCurve::plot(size_t columns, size_t rows) const {
    static const char* const kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    if (points_.empty()) return "";
    const size_t width = std::min(columns, points_.size());
    std::vector<double> shown;
    for (size_t c = 0; c < width; ++c) {
        const size_t from = c * points_.size() / width, to = std::max(from + 1, (c + 1) * points_.size() / width);
        double sum = 0;
        for (size_t i = from; i < to; ++i) sum += points_[i];
        shown.push_back(sum / double(to - from));
    }
    const double top = *std::max_element(shown.begin(), shown.end());
    const double bottom = std::min(0.0, *std::min_element(shown.begin(), shown.end()));
    const double scale = top > bottom ? double(8 * rows) / (top - bottom) : 0;
    std::string lines;
    for (size_t row = rows; row-- > 0;) {
        lines += row + 1 == rows ? fmt::format("{:>9.4g} ", top)
                 : row == 0      ? fmt::format("{:>9.4g} ", bottom)
                                 : std::string(10, ' ');
        for (double v : shown) {
            const double height = std::isfinite(v) ? (v - bottom) * scale - double(8 * row) : 0;
            lines += kBlocks[std::clamp<int64_t>(std::llround(height), 0, 8)];
        }
        lines += "\n";
    }
    return lines;
}

std::string LossCurve::svg() const {
    constexpr double kWidth = 720, kHeight = 320, kLeft = 60, kRight = 12, kTop = 12, kBottom = 40;
    const double width = kWidth - kLeft - kRight, height = kHeight - kTop - kBottom;
    double top = points_.empty() ? 1 : *std::max_element(points_.begin(), points_.end());
    double bottom = points_.empty() ? 0 : std::min(0.0, *std::min_element(points_.begin(), points_.end()));
    if (!(top > bottom)) top = bottom + 1;
    auto y = [&](double v) { return kTop + (top - v) / (top - bottom) * height; };
    auto x = [&](size_t i) {
        return kLeft + (points_.size() < 2 ? 0 : double(i) / double(points_.size() - 1) * width);
    };
    std::string s = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kWidth, kHeight);
    constexpr int kLines = 4;
    for (int i = 0; i <= kLines; ++i) {
        const double v = bottom + (top - bottom) * i / kLines;
        s += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", kLeft,
                         kWidth - kRight, y(v), y(v));
        s += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>\n", kLeft - 6, y(v) + 4, v);
    }
    const size_t steps = points_.size() * each_;
    for (int i = 0; i <= kLines; ++i)
        s += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", kLeft + width * i / kLines,
                         kHeight - kBottom + 18, steps * size_t(i) / kLines);
    s +=
        fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">step</text>\n", kLeft + width / 2, kHeight - 6);
    s += "<polyline fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"1.5\" points=\"";
    for (size_t i = 0; i < points_.size(); ++i)
        if (std::isfinite(points_[i])) s += fmt::format("{:.1f},{:.1f} ", x(i), y(points_[i]));
    return s + "\"/>\n<text x=\"14\" y=\"" + fmt::format("{:.0f}", kTop + height / 2) +
           "\" text-anchor=\"middle\" transform=\"rotate(-90 14 " + fmt::format("{:.0f}", kTop + height / 2) +
           ")\">loss</text>\n</svg>\n";
}

}  // namespace tessera::cli
