#include "llvm/link_objects.h"

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>

#include <cmath>
#include <cstring>

#include "base/reports.h"
#include "llvm/targets/target.h"

namespace tessera::codegen {
namespace {

namespace orc = llvm::orc;

template <typename F>
orc::ExecutorSymbolDef symbol_of(F* f) {
    return {orc::ExecutorAddr::fromPtr(f), llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
}

// What generated code may call.
orc::SymbolMap library(orc::LLJIT& jit) {
    orc::SymbolMap out;
    auto one = [&](const char* name, double (*f)(double)) { out[jit.mangleAndIntern(name)] = symbol_of(f); };
    auto onef = [&](const char* name, float (*f)(float)) { out[jit.mangleAndIntern(name)] = symbol_of(f); };
#define TESSERA_BOTH(name) one(#name, ::name), onef(#name "f", ::name##f);
    TESSERA_BOTH(exp)
    TESSERA_BOTH(exp2)
    TESSERA_BOTH(log)
    TESSERA_BOTH(log2)
    TESSERA_BOTH(log1p)
    TESSERA_BOTH(expm1)
    TESSERA_BOTH(sin)
    TESSERA_BOTH(cos)
    TESSERA_BOTH(tan)
    TESSERA_BOTH(asin)
    TESSERA_BOTH(acos)
    TESSERA_BOTH(atan)
    TESSERA_BOTH(sinh)
    TESSERA_BOTH(cosh)
    TESSERA_BOTH(tanh)
    TESSERA_BOTH(asinh)
    TESSERA_BOTH(acosh)
    TESSERA_BOTH(atanh)
    TESSERA_BOTH(erf)
    TESSERA_BOTH(floor)
    TESSERA_BOTH(ceil)
    TESSERA_BOTH(trunc)
    TESSERA_BOTH(roundeven)
    TESSERA_BOTH(sqrt)
#undef TESSERA_BOTH
    auto two = [&](const char* name, double (*f)(double, double)) { out[jit.mangleAndIntern(name)] = symbol_of(f); };
    auto twof = [&](const char* name, float (*f)(float, float)) { out[jit.mangleAndIntern(name)] = symbol_of(f); };
    two("pow", ::pow), twof("powf", ::powf);
    two("fmod", ::fmod), twof("fmodf", ::fmodf);
    two("atan2", ::atan2), twof("atan2f", ::atan2f);
    out[jit.mangleAndIntern("fma")] = symbol_of(static_cast<double (*)(double, double, double)>(::fma));
    out[jit.mangleAndIntern("fmaf")] = symbol_of(static_cast<float (*)(float, float, float)>(::fmaf));
    out[jit.mangleAndIntern("tessera_report")] = symbol_of(&tessera_report);
    out[jit.mangleAndIntern("memcpy")] = symbol_of(&::memcpy);
    out[jit.mangleAndIntern("memmove")] = symbol_of(&::memmove);
    out[jit.mangleAndIntern("memset")] = symbol_of(&::memset);
    return out;
}

struct JitCode : LinkedCode {
    std::unique_ptr<orc::LLJIT> jit;
};

Error broken(llvm::Error error) {
    return Error(Code::E0605, "cannot load generated code: {}", llvm::toString(std::move(error)));
}

}  // namespace

Result<std::unique_ptr<LinkedCode>> link_objects(const std::vector<std::string_view>& objects,
                                                 const std::vector<std::string>& symbols) {
    const Target target = TRY(find_target("host"));
    orc::LLJITBuilder builder;
    builder.setJITTargetMachineBuilder(orc::JITTargetMachineBuilder(llvm::Triple(target.triple)));
    builder.setLinkProcessSymbolsByDefault(false);
    builder.setPlatformSetUp(orc::setUpInactivePlatform);  // no initializers in our objects
    auto jit = builder.create();
    if (!jit) return broken(jit.takeError());
    auto code = std::make_unique<JitCode>();
    code->jit = std::move(*jit);
    orc::JITDylib& dylib = code->jit->getMainJITDylib();
    if (auto e = dylib.define(orc::absoluteSymbols(library(*code->jit)))) return broken(std::move(e));
    for (std::string_view object : objects) {
        auto buffer = llvm::MemoryBuffer::getMemBuffer(llvm::StringRef(object.data(), object.size()), "kernels", false);
        if (auto e = code->jit->addObjectFile(std::move(buffer))) return broken(std::move(e));
    }
    for (const std::string& name : symbols) {
        auto found = code->jit->lookup(name);
        if (!found) return broken(found.takeError());
        code->addresses.push_back(found->toPtr<void*>());
    }
    return std::unique_ptr<LinkedCode>(std::move(code));
}

}  // namespace tessera::codegen
