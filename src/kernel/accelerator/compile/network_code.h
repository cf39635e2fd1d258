// A compiled network as what a device runs.
#pragma once

#include "kernel/accelerator/compile/compile_network.h"
#include "kernel/backend/offload.h"

namespace tessera::accelerator {

class NetworkCode : public DeviceCode {
  public:
    explicit NetworkCode(CompiledNetwork compiled) : compiled_(std::move(compiled)) {}
    const CompiledNetwork& compiled() const { return compiled_; }
    // The instructions as parse_program reads them; a comment before each layer says its name and tiles.
    std::string text() const override;
    Result<std::unique_ptr<Graph>> reference(const Graph& body) const override;
    std::optional<DeviceProfile> profile() const override;

  private:
    const CompiledNetwork compiled_;
};

// The code of an `offload` node whose body take_layers made.
Result<std::shared_ptr<const DeviceCode>> compile_part(const Node& node, const Machine& machine,
                                                       const NetworkOptions& options);

}  // namespace tessera::accelerator
