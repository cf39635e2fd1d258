// GPUs of NVIDIA's: those of this machine ("cuda", "cuda:1"), and architectures that PTX is generated for ("sm_90a").
#include "backends/backend.h"
#include "kernel/gpu/lower/gpu_scheduling.h"
#include "llvm/targets/target.h"
#include "runtime/devices/cuda_device.h"

namespace tessera {
namespace {

class CudaBackend : public Backend {
  public:
    std::string_view name() const override { return "cuda"; }
    std::vector<std::string> targets() const override {
        std::vector<std::string> names{"cuda"};
        for (std::string& name : codegen::target_names())
            if (takes(name)) names.push_back(std::move(name));
        return names;
    }
    std::vector<std::string> forms() const override { return {"cuda", "cuda:N for GPU N"}; }
    bool takes(std::string_view target) const override {
        if (cuda_number(target)) return true;
        const auto found = codegen::find_target(target);
        return found.ok() && found->triple.starts_with("nvptx64");
    }
    std::string_view usual_target() const override { return "sm_90a"; }
    Result<Machine> machine(std::string_view target) const override {
        if (!cuda_number(target)) return describe_target(target);
        return describe_target(TRY(device(target))->target());
    }
    const Scheduling& scheduling() const override { return gpu_scheduling(); }
    std::string_view assembly() const override { return "ptx"; }
    bool shares_memory() const override { return false; }
    Result<Device*> device(std::string_view target) const override {
        if (auto number = cuda_number(target)) return cuda_device(*number);
        return Backend::device(target);
    }
    std::vector<DeviceInfo> devices(std::string* why) const override {
        std::vector<DeviceInfo> found;
        const auto count = count_gpus();
        if (!count.ok() && why) *why = count.error().message();
        for (int i = 0; count.ok() && i < *count; ++i) found.push_back(described(i));
        if (count.ok() && *count == 0 && why) *why = "the driver shows no GPU";
        return found;
    }

  private:
    static DeviceInfo described(int number) {
        DeviceInfo d;
        d.target = fmt::format("cuda:{}", number);
        const auto gpu = describe_gpu(number);
        if (!gpu.ok()) {
            d.why = gpu.error().message();
            return d;
        }
        d.name = gpu->name;
        d.code = gpu->target;
        d.bytes = gpu->bytes;
        d.capability = 10 * gpu->major + gpu->minor;
        d.processors = gpu->processors;
        d.shared_bytes = gpu->shared_bytes;
        if (d.code.empty())
            d.why = fmt::format("its compute capability is {}.{}, and 8.0 is needed", gpu->major, gpu->minor);
        return d;
    }
};

}  // namespace

const Backend& cuda_backend() {
    static const CudaBackend kBackend;
    return kBackend;
}

}  // namespace tessera
