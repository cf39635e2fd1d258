// Pages that need nothing beside them: HTML with its styles, scripts and data inside.
#pragma once

#include "command.h"

namespace tessera::cli {

// A page of report/ or profile_page/, with each line <!--style FILE-->, <!--script FILE--> and <!--data--> replaced by
// what it names. No script runs but these, and nothing is fetched.
std::string page(std::string_view html_file, const Json& data);

}  // namespace tessera::cli
