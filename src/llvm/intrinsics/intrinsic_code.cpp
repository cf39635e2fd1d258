#include "llvm/intrinsics/intrinsic_code.h"

#include <algorithm>

namespace tessera::codegen {

const std::vector<IntrinsicCode>& all_intrinsic_code() {
    static const std::vector<IntrinsicCode> kAll = [] {
        std::vector<IntrinsicCode> all;
        for (auto set : {fma_code(), dot_product_code(), i8mm_code(), bf16_code(), fp16fml_code(), vnni_code(),
                         avx512bf16_code(), amx_code()})
            all.insert(all.end(), set.begin(), set.end());
        return all;
    }();
    return kAll;
}

const IntrinsicCode* find_intrinsic_code(std::string_view name) {
    const std::vector<IntrinsicCode>& all = all_intrinsic_code();
    auto found = std::find_if(all.begin(), all.end(), [&](const IntrinsicCode& c) { return c.name == name; });
    return found == all.end() ? nullptr : &*found;
}

}  // namespace tessera::codegen
