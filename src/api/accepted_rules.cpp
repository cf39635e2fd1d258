#include "api/accepted_rules.h"

#include <filesystem>

#include "base/text_file.h"
#include "discover/believe.h"
#include "runtime/code_cache.h"

namespace tessera {
namespace {

// Believes the rules of a file, once for the text of it and of the certificates beside it. An entry of the cache holds
// that whole text, not its digest alone: two texts with one digest can be made on purpose.
Status check_rules(const Rules& rules, const std::string& text, const std::string& file, const CodeCache& cache,
                   const std::atomic<bool>* cancel) {
    const std::string beside = certificates_path(file);
    std::string proofs;
    if (std::filesystem::exists(beside)) proofs = TRY(read_text_file(beside, "check the file's permissions"));
    const std::string question = fmt::format("{}\n{}{}", text.size(), text, proofs);
    const std::string key = code_key({"believed rules", question});
    if (cache.find(key) == question) return {};
    TRY(believe_all(rules, TRY(read_certificates(proofs, beside)), cancel));
    (void)cache.store(key, question);  // a folder that cannot be written to is no error
    return {};
}

}  // namespace

Result<Rules> accepted_rules(const std::vector<std::string>& files, bool refute,
                             const std::optional<std::string>& cache, const std::atomic<bool>* cancel) {
    Rules all;
    if (files.empty()) return all;
    const CodeCache kept = TRY(CodeCache::open(cache));
    for (const std::string& file : files) {
        const std::string text = TRY(read_text_file(file, "check the path and the file's permissions"));
        Rules rules = TRY(read_rules(text, file));
        if (refute) TRY(check_rules(rules, text, file, kept, cancel));
        for (Rule& rule : rules) all.push_back(std::move(rule));
    }
    return all;
}

}  // namespace tessera
