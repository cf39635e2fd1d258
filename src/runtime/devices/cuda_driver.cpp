#include "runtime/devices/cuda_driver.h"

#include <dlfcn.h>

#include <mutex>
#include <optional>

namespace tessera::cuda {
namespace {

constexpr int kOldest = 12000;  // CUDA 12.0

Error no_device(std::string why) {
    return Error(Code::E0701, "no usable GPU: {}", why)
        .hint("target host runs on the CPU; target sm_90 generates code without a GPU");
}

Result<Driver> load_now() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return no_device("NVIDIA's driver (libcuda.so.1) is not installed");
    using Find = int (*)(const char*, void**, int, uint64_t, int*);
    const auto find = reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"));
    if (!find) return no_device("the driver is older than CUDA 12");
    Driver driver;
    std::string missing;
    auto entry = [&](const char* name) -> void* {
        void* found = nullptr;
        if (find(name, &found, kOldest, 0, nullptr) != 0 || !found) missing = name;
        return found;
    };
#define TESSERA_CUDA_FIND(name, arguments) driver.name = reinterpret_cast<int(*) arguments>(entry(#name));
    TESSERA_CUDA_ENTRIES(TESSERA_CUDA_FIND)
#undef TESSERA_CUDA_FIND
    if (!missing.empty()) return no_device("the driver is older than CUDA 12: it has no " + missing);
    const int begun = driver.cuInit(0);
    if (begun != 0) {
        const char* text = nullptr;
        driver.cuGetErrorString(begun, &text);
        return no_device(text ? text : "the driver does not start");
    }
    TRY(driver.check(driver.cuDriverGetVersion(&driver.version), "asking for the driver's version"));
    if (driver.version < kOldest)
        return no_device(fmt::format("the driver has CUDA {}.{}, and 12.0 is needed", driver.version / 1000,
                                     driver.version % 1000 / 10));
    return driver;
}

}  // namespace

Result<const Driver*> Driver::load() {
    static std::once_flag once;
    static std::optional<Result<Driver>> driver;
    std::call_once(once, [] { driver.emplace(load_now()); });
    if (!driver->ok()) return driver->error();
    return &**driver;
}

Status Driver::check(int result, const char* doing) const {
    if (result == 0) return {};
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    const std::string why = fmt::format("{}: {} ({})", doing, text ? text : "an unknown error", name ? name : "?");
    return Error(result == kOutOfMemory ? Code::E0408 : Code::E0702, "the GPU failed while {}", why);
}

}  // namespace tessera::cuda
