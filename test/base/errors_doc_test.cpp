// docs/errors.md has one paragraph for each code, under a heading with its title, and none for a code there is not.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "source_dir.h"

namespace tessera::errors_doc_test {
namespace {

TEST(errors, each_code_is_explained) {
    std::ifstream file(source_dir() + "/docs/errors.md");
    ASSERT_TRUE(file);
    std::map<std::string, std::pair<std::string, size_t>> sections;  // by code: title, length of the text
    std::string line, current;
    while (std::getline(file, line)) {
        if (line.starts_with("#")) current.clear();
        if (line.starts_with("### ")) {
            size_t colon = line.find(": ");
            ASSERT_NE(colon, std::string::npos) << line;
            current = line.substr(4, colon - 4);
            EXPECT_TRUE(sections.emplace(current, std::pair(line.substr(colon + 2), 0)).second) << current << " twice";
        } else if (!current.empty()) {
            sections[current].second += line.size();
        }
    }
    for (Code code : all_codes()) {
        auto it = sections.find(std::string(code_name(code)));
        ASSERT_NE(it, sections.end()) << code_name(code) << " is not explained";
        EXPECT_EQ(it->second.first, code_title(code));
        EXPECT_GT(it->second.second, 80u) << code_name(code) << " is hardly explained";
        sections.erase(it);
    }
    for (const auto& [name, section] : sections) ADD_FAILURE() << name << " is explained and does not exist";
}

}  // namespace
}  // namespace tessera::errors_doc_test
