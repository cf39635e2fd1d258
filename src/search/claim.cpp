#include "search/claim.h"

#include <fmt/ranges.h>

namespace tessera {

Rule to_rule(const Claim& claim) { return claim.rule; }

std::string shapes_text(const Claim& claim) {
    std::vector<std::string> shapes;
    for (const auto& [name, shape] : claim.shapes) shapes.push_back(fmt::format("{}: {}", name, shape));
    return fmt::format("{}", fmt::join(shapes, ", "));
}

std::string to_string(const Claim& claim) {
    return fmt::format("{} where {}", to_string(claim.rule), shapes_text(claim));
}

Result<std::map<std::string, Shape>> read_shapes(std::string_view text) {
    std::map<std::string, Shape> shapes;
    auto trim = [](std::string_view s) {
        while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
        while (!s.empty() && (s.back() == ' ' || s.back() == '\n')) s.remove_suffix(1);
        return s;
    };
    auto wrong = [&] { return Error(Code::E0301, "\"{}\" are no shapes", text).hint("x: [M,K], w: [K,2*N]"); };
    for (text = trim(text); !text.empty();) {
        size_t colon = text.find(':'), open = text.find('['), close = text.find(']');
        if (colon == text.npos || open == text.npos || close == text.npos || !(colon < open && open < close))
            return wrong();
        Shape shape;
        for (std::string_view dims = trim(text.substr(open + 1, close - open - 1)); !dims.empty();) {
            size_t end = 0;
            for (int depth = 0; end < dims.size() && (depth > 0 || dims[end] != ','); ++end)
                depth += (dims[end] == '(') - (dims[end] == ')');
            std::optional<Dim> d = parse_dim(trim(dims.substr(0, end)));
            if (!d) return wrong();
            shape.push_back(*d);
            dims = end < dims.size() ? dims.substr(end + 1) : "";
        }
        shapes.emplace(trim(text.substr(0, colon)), shape);
        text = trim(text.substr(close + 1));
        if (text.starts_with(",")) text = trim(text.substr(1));
    }
    return shapes;
}

Result<Claim> read_claim(std::string_view text) {
    size_t where = text.rfind("where ");
    if (where == text.npos) return Error(Code::E0301, "a claim without \"where\" and shapes");
    Rules rules = TRY(read_rules(text.substr(0, where), "claim"));
    if (rules.size() != 1) return Error(Code::E0301, "{} rules where one is claimed", rules.size());
    Claim claim{std::move(rules[0]), {}};
    claim.shapes = TRY(read_shapes(text.substr(where + 6)));
    return claim;
}

}  // namespace tessera
