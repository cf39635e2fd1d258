// Pictures of how tiles lie with the threads of a block: a square for each element, coloured by the warp, with the
// number of the thread where its elements begin.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernel/from_tile/from_tile.h"
#include "kernel/from_tile/lowering.h"

namespace tessera {
namespace from_tile_detail {
namespace {

constexpr int64_t kCell = 14, kMostRows = 64, kMostColumns = 64, kMargin = 12, kTitle = 34;
constexpr const char* kColours[] = {"#a6cee3", "#b2df8a", "#fb9a99", "#fdbf6f",
                                    "#cab2d6", "#ffff99", "#8dd3c7", "#fccde5"};

// Of each element, row by row: the thread that has it, -1 for none, and its number among the thread's.
struct Owner {
    int64_t thread = -1, element = 0;
};
std::vector<Owner> owners_of(const TileLayout& layout) {
    int names = 0;
    const TilePlace place = place_in(layout, names);
    int64_t all = 1, loops = 1;
    for (int64_t size : layout.shape) all *= size;
    for (const TilePlace::Loop& loop : place.loops) loops *= loop.extent;
    std::vector<Owner> owners(static_cast<size_t>(all));
    for (int64_t thread = 0; thread < layout.used(); ++thread)
        for (int64_t each = 0; each < loops; ++each) {
            SymbolValues at{{place.warp.node().name, thread / kThreadsOfWarp},
                            {place.group.node().name, thread % kThreadsOfWarp / kPairsOfGroup},
                            {place.pair.node().name, thread % kPairsOfGroup}};
            int64_t rest = each;
            for (size_t l = place.loops.size(); l-- > 0; rest /= place.loops[l].extent)
                at.emplace(place.loops[l].var.node().name, rest % place.loops[l].extent);
            int64_t flat = 0;
            for (size_t d = 0; d < layout.shape.size(); ++d)
                flat = flat * layout.shape[d] + evaluate_int(place.at[d], at).value_or(0);
            owners[static_cast<size_t>(flat)] = {thread, evaluate_int(place.own, at).value_or(0)};
        }
    return owners;
}

std::string title_of(const TileLayout& layout) {
    return fmt::format("[{}]: {} threads of {} warps, {} elements each{}", fmt::join(layout.shape, ", "), layout.used(),
                       layout.warps, layout.per_thread(),
                       layout.of_products ? ", as matrix instructions leave sums" : "");
}

// Dimensions in front of the last are rows, one after the other. Large tiles show their corner.
std::string draw(const TileLayout& layout, int64_t& width, int64_t& y) {
    const std::vector<Owner> owners = owners_of(layout);
    const int64_t all_columns = layout.shape.back(), all_rows = static_cast<int64_t>(owners.size()) / all_columns;
    const int64_t rows = std::min(all_rows, kMostRows), columns = std::min(all_columns, kMostColumns);
    std::string text = fmt::format("<text x=\"{}\" y=\"{}\" class=\"title\">{}{}</text>\n", kMargin, y + 20,
                                   title_of(layout), rows * columns < all_rows * all_columns ? " (its corner)" : "");
    y += kTitle;
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns;) {
            const auto owner = [&](int64_t column) { return owners[static_cast<size_t>(r * all_columns + column)]; };
            const Owner first = owner(c);
            int64_t end = c + 1;
            while (end < columns && owner(end).thread == first.thread) ++end;
            const char* colour =
                first.thread < 0 ? "#eeeeee" : kColours[first.thread / kThreadsOfWarp % std::ssize(kColours)];
            const int64_t left = kMargin + c * kCell, top = y + r * kCell;
            text += fmt::format(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>row {}, columns {} to {}: "
                "thread {}, "
                "elements {} to {}</title></rect>\n<text x=\"{}\" y=\"{}\">{}</text>\n",
                left, top, (end - c) * kCell, kCell, colour, r, c, end - 1, first.thread, first.element,
                owner(end - 1).element, left + 1, top + 10, first.thread);
            c = end;
        }
    width = std::max(width, 2 * kMargin + std::max<int64_t>(columns * kCell, 7 * std::ssize(title_of(layout)) + 80));
    y += rows * kCell + kMargin;
    return text;
}

}  // namespace
}  // namespace from_tile_detail

Result<std::string> draw_layouts(const tile::Program& program, const std::vector<tile::Argument>& arguments,
                                 int grid_rank, const Machine& machine, int warps) {
    using namespace from_tile_detail;
    TileOptions options{.warps = warps};
    Result<std::string> drawn = Error(Code::E0604, "{} has no tiles to draw", program.data().name);
    for (const Matrices matrices : {Matrices::OfFour, Matrices::OfWarp, Matrices::None}) {
        if (matrices == Matrices::OfFour && !machine.has("wgmma")) continue;
        TileLowering lowering(program.data(), arguments, grid_rank, machine, options, matrices, false);
        const Result<Kernel> made = lowering.run();
        if (!made.ok() && lowering.needs_other_products() && matrices != Matrices::None) continue;
        if (!made.ok() && !lowering.needs_addresses()) return made.error();
        int64_t width = 0, y = 0;
        std::string body;
        for (const auto& [_, layout] : lowering.layouts()) body += draw(layout, width, y);
        drawn = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\">\n<style>rect {{ stroke: "
            "#666666; stroke-width: 0.5 }} text {{ font: 7px sans-serif }} .title {{ font: bold 13px "
            "sans-serif }}</style>\n<rect width=\"{}\" height=\"{}\" fill=\"white\" stroke=\"none\"/>\n{}</svg>\n",
            width, y, width, y, body);
        break;
    }
    return drawn;
}

}  // namespace tessera
