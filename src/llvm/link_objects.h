// Object files linked into this process.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tessera::codegen {

struct LinkedCode {
    virtual ~LinkedCode() = default;  // and the code with it
    std::vector<void*> addresses;     // one for each symbol asked for
};

// E0605: an object is broken, or a symbol is not in any.
Result<std::unique_ptr<LinkedCode>> link_objects(const std::vector<std::string_view>& objects,
                                                 const std::vector<std::string>& symbols);

}  // namespace tessera::codegen
