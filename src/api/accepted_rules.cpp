#include "api/accepted_rules.h"

#include <filesystem>

#include "discover/believe.h"

namespace tessera {
namespace {

Status check_rules(const Rules& rules, const std::string& file, const std::atomic<bool>* cancel) {
    Certificates certificates;
    if (const std::string beside = certificates_path(file); std::filesystem::exists(beside))
        certificates = TRY(load_certificates(beside));
    return believe_all(rules, certificates, cancel);
}

}  // namespace

Result<Rules> accepted_rules(const std::vector<std::string>& files, bool refute, const std::atomic<bool>* cancel) {
    Rules all;
    for (const std::string& file : files) {
        Rules rules = TRY(load_rules(file));
        if (refute) TRY(check_rules(rules, file, cancel));
        for (Rule& rule : rules) all.push_back(std::move(rule));
    }
    return all;
}

}  // namespace tessera
