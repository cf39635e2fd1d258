// What a search found, as text and as JSON.
#pragma once

#include "command.h"
#include "tessera/search.h"

namespace tessera::cli {

std::string search_text(const SearchReport& report, bool explain);
Json search_json(const SearchReport& report, bool explain);

}  // namespace tessera::cli
