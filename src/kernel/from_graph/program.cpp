#include "kernel/from_graph/program.h"

namespace tessera {
namespace {

struct InputsOf {
    std::vector<int> operator()(const KernelStep&) const { return {}; }
    std::vector<int> operator()(const FoundStep& step) const { return {step.count}; }
    std::vector<int> operator()(const CopyStep& step) const { return {step.from}; }
    std::vector<int> operator()(const auto& step) const { return step.inputs; }
};

struct ValuesMade {
    std::vector<int> operator()(const HostStep& step) const { return step.outputs; }
    std::vector<int> operator()(const ControlStep& step) const { return step.outputs; }
    std::vector<int> operator()(const auto&) const { return {}; }
};

struct MovedBy {
    std::vector<int> operator()(const CopyStep& step) const { return {step.from, step.to}; }
    std::vector<int> operator()(const DeviceStep& step) const {
        std::vector<int> all = step.inputs;
        all.insert(all.end(), step.outputs.begin(), step.outputs.end());
        return all;
    }
    std::vector<int> operator()(const auto&) const { return {}; }
};

struct KindOf {
    std::string_view operator()(const KernelStep&) const { return "kernel"; }
    std::string_view operator()(const HostStep&) const { return "host"; }
    std::string_view operator()(const ControlStep&) const { return "control"; }
    std::string_view operator()(const CheckStep&) const { return "check"; }
    std::string_view operator()(const InferStep&) const { return "sizes"; }
    std::string_view operator()(const FoundStep&) const { return "sizes"; }
    std::string_view operator()(const CopyStep&) const { return "copy"; }
    std::string_view operator()(const DeviceStep&) const { return "device"; }
};

struct NodeOf {
    const Node* operator()(const KernelStep&) const { return nullptr; }
    const Node* operator()(const auto& step) const { return step.node; }
};

}  // namespace

const Node* node_of(const Step& step) { return std::visit(NodeOf{}, step); }

std::vector<int> inputs_of(const Step& step) { return std::visit(InputsOf{}, step); }

std::vector<int> moved_by(const Step& step) { return std::visit(MovedBy{}, step); }

std::vector<int> values_made(const Step& step) { return std::visit(ValuesMade{}, step); }

std::string_view kind_of(const Step& step) { return std::visit(KindOf{}, step); }

}  // namespace tessera
