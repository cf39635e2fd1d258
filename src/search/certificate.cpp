#include "search/certificate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "search/check_certificate.h"
#include "search/check_exactness.h"

namespace tessera {

std::string certificate_entry(const Claim& claim, const Certificate& certificate) {
    std::string out = fmt::format("rule {}\nwhere {}\n", claim.rule.name, shapes_text(claim));
    std::vector<std::string> values;
    for (const auto& [name, value] : claim.values)
        if (auto* list = std::get_if<std::vector<Expr>>(&value))
            values.push_back(fmt::format("{}: {}", name, Shape(*list)));
    if (!values.empty()) out += fmt::format("with {}\n", fmt::join(values, ", "));
    return out + certificate.text + "end\n";
}

Result<Certificates> read_certificates(std::string_view text, const std::string& source) {
    Certificates all;
    std::istringstream in{std::string(text)};
    int number = 0;
    CertificateEntry* entry = nullptr;
    for (std::string line; std::getline(in, line);) {
        ++number;
        auto wrong = [&](std::string_view what) {
            return Error(Code::E0301, "expected {}, found \"{}\"", what, line).at(fmt::format("{}:{}", source, number));
        };
        if (!entry) {
            if (line.empty() || line.starts_with("//")) continue;
            if (!line.starts_with("rule ")) return wrong("\"rule NAME\"");
            auto [it, fresh] = all.emplace(line.substr(5), CertificateEntry{});
            if (!fresh) return wrong("a rule that has no certificate yet");
            entry = &it->second;
        } else if (line.starts_with("where ")) {
            entry->shapes = TRY(read_shapes(std::string_view(line).substr(6)));
        } else if (line.starts_with("with ")) {
            entry->values = TRY(read_shapes(std::string_view(line).substr(5)));
        } else if (line == "end") {
            entry = nullptr;
        } else {
            entry->certificate.text += line + "\n";
        }
    }
    if (entry) return Error(Code::E0301, "the last certificate does not end").at(fmt::format("{}:{}", source, number));
    return all;
}

Result<Certificates> load_certificates(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        return Error(Code::E0101, "cannot open \"{}\"", path).hint("certificates lie beside the rules, as x.cert");
    std::stringstream text;
    if (file.peek() != EOF) text << file.rdbuf();
    return read_certificates(text.str(), path);
}

std::string certificates_path(const std::string& rules_path) {
    constexpr std::string_view kEnd = ".rules";
    std::string stem = rules_path.ends_with(kEnd) ? rules_path.substr(0, rules_path.size() - kEnd.size()) : rules_path;
    return stem + ".cert";
}

Status verify_rule(const Rule& rule, const Certificates& certificates) {
    auto refused = [&](std::string why) { return Error(Code::E0305, "{}: {}", rule.name, why).at(rule.source); };
    auto found = certificates.find(rule.name);
    if (found == certificates.end()) return refused("it has no certificate");
    const CertificateEntry& entry = found->second;
    Claim claim{rule, entry.shapes};
    for (const auto& [name, list] : entry.values) claim.values.emplace(name, list.dims());
    // The conditions must confine the rule to what was proved.
    Claim bare = claim;
    bare.rule.conditions.clear();
    Rule needed = to_rule(bare);
    std::vector<std::string> stated;
    for (const Term& c : rule.conditions) stated.push_back(to_string(c, rule));
    for (const Term& c : needed.conditions) {
        std::string text = to_string(c, needed);
        if (std::find(stated.begin(), stated.end(), text) == stated.end())
            return refused(fmt::format("it is proved only where {}, which it does not say", text));
    }
    for (size_t i = 0; i < rule.variables.size(); ++i)
        if (entry.shapes.contains(rule.variables[i].name) && rule.variables[i].constraint.empty())
            return refused(fmt::format("it is proved for real numbers only, and {} is not said to be float",
                                       rule.variables[i].name));
    TRY(check_certificate(claim, entry.certificate));
    if (rule.exactness == Exactness::Exact && exactness_of(claim) != Exactness::Exact)
        return refused("it is said to be exact, and its sides do not do the same operations");
    return {};
}

}  // namespace tessera
