// Files that are part of the binary.
#pragma once

#include <string_view>
#include <vector>

namespace tessera::cli {

struct EmbeddedFile {
    std::string_view name, text;
};
const std::vector<EmbeddedFile>& page_files();  // what is in report/
const std::vector<EmbeddedFile>& peer_files();  // what is in peers/

}  // namespace tessera::cli
