#include "kernel/ir/verified.h"

#include <cstdlib>
#include <string_view>

#include "base/check.h"

namespace tessera {

bool verifies_kernels() {
    static const bool on = [] {
#ifdef NDEBUG
        bool by_default = false;
#else
        bool by_default = true;
#endif
        const char* given = std::getenv("TESSERA_VERIFY");
        return given ? std::string_view(given) == "1" : by_default;
    }();
    return on;
}

void check_verified(const Kernel& kernel, const char* pass) {
    if (!verifies_kernels()) return;
    CheckScope scope(pass, [&] { return to_string(kernel); });
    Status sound = verify(kernel);
    CHECK(sound.ok(), "{}", sound.error().to_string());
}

}  // namespace tessera
