// What a back end provides whose device computes parts of a graph while kernels of the host compute the rest. A pass of
// lowering replaces each part by one `offload` node; its code becomes a DeviceStep, between copies to the device and
// back.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rewrite/pass.h"
#include "tessera/devices.h"

namespace tessera {

// What a device runs: an instruction stream, with the weights that it was compiled with.
class DeviceCode {
  public:
    virtual ~DeviceCode() = default;
    virtual std::string text() const = 0;  // for people
    // The part that it computes, as a graph whose nodes round as the device does: for checks against the evaluator.
    virtual Result<std::unique_ptr<Graph>> reference(const Graph& body) const { return body.clone(); }
    virtual std::optional<DeviceProfile> profile() const { return {}; }  // of one run; nothing: the device has none
};

// What a user may ask of the code of such a device.
struct OffloadOptions {
    int virtual_threads = 2;  // tiles in flight; 1: loads, computes and stores do not overlap
};

// Whether the node is a part that Offloading::take made.
inline bool is_offloaded(const Node& node) { return node.op().name == "offload"; }

class Offloading {
  public:
    virtual ~Offloading() = default;
    virtual std::string device() const = 0;  // the name of the device, which find_backend knows
    // Replaces each part of the graph that the device computes by a node of the op `offload`, whose attribute `body` is
    // the part. What was chosen and why is added to the context's choices.
    virtual Result<Changed> take(Graph& graph, PassContext& context) const = 0;
    // The code of such a node. Its arguments are the node's inputs and then its outputs, each in memory of the device,
    // whole and in ONNX's order; inputs that are constants too.
    virtual Result<std::shared_ptr<const DeviceCode>> compile(const Node& node) const = 0;
};

}  // namespace tessera
