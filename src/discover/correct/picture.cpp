#include "discover/correct/picture.h"

#include <algorithm>

namespace tessera {

std::string boxes_text(const Corrected& corrected) {
    if (corrected.strips.empty()) return "equal everywhere";
    std::string text;
    for (const Strip& s : corrected.strips)
        text += fmt::format("{}axis {} from {} to {}", text.empty() ? "recomputed: " : ", ", s.axis, to_string(s.begin),
                            to_string(s.end));
    return text;
}

std::string boxes_picture(const Corrected& corrected, const SymbolValues& sizes) {
    constexpr double kSide = 320, kLeft = 24, kTop = 44;
    const int64_t rank = corrected.output.rank();
    auto extent = [&](int64_t axis) {
        return axis < 0 ? 1.0 : std::max(1.0, double(evaluate_int(corrected.output[axis], sizes).value_or(1)));
    };
    const int64_t across = rank - 1, down = rank - 2;
    const double scale = kSide / std::max(extent(across), extent(down));
    const double width = extent(across) * scale, height = extent(down) * scale;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width + 2 * kLeft, height + kTop + 64);
    svg += fmt::format("<text x=\"{}\" y=\"20\" fill=\"#1f2933\">output {} at these sizes: {} x {}</text>\n", kLeft,
                       corrected.output, extent(down), extent(across));
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"#cfe3d4\"/>\n", kLeft, kTop,
                       width, height);
    bool other = false;
    for (const Strip& s : corrected.strips) {
        const double begin = double(evaluate_int(s.begin, sizes).value_or(0)) * scale;
        const double thick = double(evaluate_int(s.end - s.begin, sizes).value_or(0)) * scale;
        other = other || s.axis < down;
        if (s.axis == across)
            svg += fmt::format("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"#d1495b\"/>\n",
                               kLeft + begin, kTop, thick, height);
        if (s.axis == down)
            svg += fmt::format("<rect x=\"{}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"#d1495b\"/>\n",
                               kLeft, kTop + begin, width, thick);
    }
    svg += fmt::format(
        "<text x=\"{0}\" y=\"{1:.0f}\" fill=\"#3b7d4f\">computed by the mutant</text>\n"
        "<text x=\"{0}\" y=\"{2:.0f}\" fill=\"#d1495b\">{3}</text>\n</svg>\n",
        kLeft, kTop + height + 20, kTop + height + 38,
        corrected.strips.empty() ? "nothing is recomputed"
        : other                  ? "recomputed by the original (also along axes that are not drawn)"
                                 : "recomputed by the original");
    return svg;
}

}  // namespace tessera
