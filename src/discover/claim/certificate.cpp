#include "discover/claim/certificate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "base/text_file.h"

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
        } else if (line.starts_with("listed ")) {
            entry->listed = line.substr(7);
        } else if (line == "end") {
            entry = nullptr;
        } else {
            entry->certificate.text += line + "\n";
        }
    }
    if (entry)
        return Error(Code::E0301, "the last certificate has no \"end\"").at(fmt::format("{}:{}", source, number));
    return all;
}

Result<Certificates> load_certificates(const std::string& path) {
    return read_certificates(TRY(read_text_file(path, "the certificates of x.rules are in x.cert beside it")), path);
}

const Certificates& built_in_certificates(std::string_view file) {
    static const std::map<std::string_view, Certificates> all = [] {
        std::map<std::string_view, Certificates> by_file;
        for (const RuleFile& f : built_in_certificate_files()) {
            Result<Certificates> read = read_certificates(f.text, fmt::format("rules/{}.cert", f.name));
            CHECK(read.ok(), "{}", read.error().to_string());
            by_file.emplace(f.name, std::move(*read));
        }
        return by_file;
    }();
    static const Certificates none;
    auto it = all.find(file);
    return it == all.end() ? none : it->second;
}

std::string certificates_path(const std::string& rules_path) {
    constexpr std::string_view kEnd = ".rules";
    std::string stem = rules_path.ends_with(kEnd) ? rules_path.substr(0, rules_path.size() - kEnd.size()) : rules_path;
    return stem + ".cert";
}

}  // namespace tessera
