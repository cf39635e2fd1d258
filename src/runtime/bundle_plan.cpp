#include "runtime/bundle_plan.h"

#include <set>

#include "base/check.h"
#include "graph/op_view.h"
#include "runtime/devices/cpu_device.h"
#include "runtime/memory_plan.h"
#include "runtime/weight_places.h"

namespace tessera {
namespace {

using From = BundlePointer::From;

// The launches of all kernels, and code of this machine for those that prepare weights.
class PreparingModule : public CompiledModule {
  public:
    static Result<std::unique_ptr<PreparingModule>> make(const Program& program, CodegenOptions codegen) {
        codegen.target = "host";
        auto made = std::make_unique<PreparingModule>();
        made->kernels_ = TRY(list_launches(program.kernels));
        std::set<size_t> used;
        for (const KernelStep& step : program.prepare) used.insert(step.kernel);
        if (used.empty()) return made;
        std::vector<Kernel> kernels;
        for (size_t k : used) kernels.push_back(program.kernels[k]);
        made->code_ = TRY(compile_kernels(kernels, codegen));
        size_t next = 0;
        for (size_t k : used) made->kernels_[k] = made->code_->kernels()[next++];
        return made;
    }
    const std::string& object() const override { return code_->object(); }

  private:
    std::shared_ptr<CompiledModule> code_;
};

std::string name_and_op(const Node& node) {
    return fmt::format("{} ({})", node.name().empty() ? node.output()->name() : node.name(), node.op().name);
}

Status check_steps(const Program& program) {
    if (!program.devices.empty())
        return Error(Code::E0605, "cannot make a bundle: some steps run on {}", program.devices[0])
            .hint("compile for a CPU only");
    std::vector<std::string> left;
    for (const Step& step : program.steps)
        if (const Node* node = node_of(step))
            if (!std::holds_alternative<CheckStep>(step) || !node->op().indexed_axes)
                left.push_back(name_and_op(*node));
    if (left.empty()) return {};
    const size_t count = left.size();
    if (count > 8) left.resize(8);
    return Error(Code::E0605, "cannot make a bundle: no kernel computes {}{}", fmt::join(left, ", "),
                 count > 8 ? ", ..." : "")
        .hint("a bundle contains kernels only; tessera run evaluates the other nodes with the reference");
}

class Planning {
  public:
    Planning(Program& program, int threads, const CodegenOptions& codegen)
        : program_(program), layout_(program), threads_(threads), codegen_(codegen) {}

    Result<BundlePlan> run() {
        auto module = TRY(PreparingModule::make(program_, codegen_));
        places_ = TRY(place_weights(program_, layout_));
        out_.memory = TRY(prepare_weights(program_, layout_, *module, cpu_device(), 0, true));
        for (size_t b = 0; b < program_.buffers.size(); ++b) {
            if (places_.offsets[b] < 0) continue;
            const auto& tensor = program_.buffers[b].tensor;
            const void* data = out_.memory.pointers[b] ? out_.memory.pointers[b] : tensor ? tensor->data() : nullptr;
            out_.weights.emplace_back(static_cast<const char*>(data), static_cast<size_t>(places_.sizes[b]));
        }
        plan_ = TRY(plan_run(program_, layout_, *module, {}, {threads_}));
        out_.entry.scratch_at = aligned(plan_.block_bytes);
        out_.entry.weights = places_.bytes > 0;
        out_.arena_bytes = kBlockAlignment + aligned(plan_.block_bytes) + threads_ * plan_.scratch_bytes;
        name_outside();
        for (size_t s = 0; s < program_.steps.size(); ++s) {
            if (auto* kernel = std::get_if<KernelStep>(&program_.steps[s]))
                TRY(add(*kernel, plan_.steps[s]));
            else
                TRY(add(std::get<CheckStep>(program_.steps[s])));
        }
        copy_outputs();
        return std::move(out_);
    }

  private:
    size_t root(int b) const { return static_cast<size_t>(layout_.root[static_cast<size_t>(b)]); }

    // Inputs, and outputs that kernels fill where the caller wants them.
    void name_outside() {
        outside_.resize(program_.buffers.size());
        for (size_t i = 0; i < program_.inputs.size(); ++i) {
            const int b = program_.inputs[i];
            const bool used = b >= 0 && layout_.in_run[root(b)] && layout_.home[root(b)] == Home::Input;
            out_.entry.inputs.push_back(used && plan_.bytes[root(b)] > 0);
            if (used) outside_[root(b)] = {From::Input, i, 0};
        }
        for (size_t i = 0; i < program_.outputs.size(); ++i) {
            const size_t b = root(program_.outputs[i]);
            out_.entry.outputs.push_back(plan_.bytes[b] > 0);
            if (layout_.home[b] == Home::Output && outside_[b].from == From::Nothing)
                outside_[b] = {From::Output, i, 0};
        }
    }

    BundlePointer pointer(int buffer) const {
        const size_t b = root(buffer);
        if (places_.offsets[b] >= 0) return {From::Weights, 0, places_.offsets[b]};
        if (plan_.offsets[b] >= 0) return {From::Arena, 0, plan_.offsets[b]};
        return outside_[b];
    }

    Status add(const KernelStep& step, const BoundStep& bound) {
        if (!bound.bound) return Error(Code::E0605, "cannot make a bundle: a size of {} depends on data", step.label);
        auto [at, fresh] = number_.try_emplace(step.kernel, out_.kernels.size());
        if (fresh) out_.kernels.push_back(program_.kernels[step.kernel]);
        for (size_t l = 0; l < bound.launches.size(); ++l) {
            const Launch& launch = bound.launches[l];
            BundleCall call{at->second, l, {}, bound.symbols, launch.grid.x, plan_.scratch_bytes, launch.spread};
            for (size_t k = 0; k < step.args.size(); ++k)
                call.args.push_back(layout_.access[step.kernel].uses(k) ? pointer(step.args[k]) : BundlePointer{});
            out_.entry.actions.emplace_back(std::move(call));
        }
        return {};
    }

    // The check of indices.
    Status add(const CheckStep& step) {
        const Node& node = *step.node;
        TRY(node.op().check(node.view()));  // of sizes, which are all known
        const Shape &x = node.input(0)->type().tensor().shape, &indices = node.input(1)->type().tensor().shape;
        BundleCheck check{.indices = pointer(step.inputs[1])};
        check.wide = node.input(1)->type().tensor().dtype == DType::i64;
        check.count = TRY(element_count(*indices.sizes()));
        const std::vector<int64_t> axes = node.op().indexed_axes(node.view());
        check.step = int64_t(axes.size());
        for (check.first = 0; check.first < check.step; ++check.first) {
            check.high = *x[axes[size_t(check.first)]].as_int();
            check.low = -check.high;
            out_.entry.actions.emplace_back(check);
        }
        return {};
    }

    // Outputs that are inputs, weights, or another output.
    void copy_outputs() {
        for (size_t i = 0; i < program_.outputs.size(); ++i) {
            const BundlePointer from = pointer(program_.outputs[i]);
            if (from.from == From::Output && from.index == i) continue;
            out_.entry.actions.emplace_back(
                BundleCopy{from, {From::Output, i, 0}, plan_.bytes[root(program_.outputs[i])]});
        }
    }

    Program& program_;
    ProgramLayout layout_;
    int threads_;
    const CodegenOptions& codegen_;
    WeightPlaces places_;
    RunPlan plan_;
    std::vector<BundlePointer> outside_;  // by root
    std::unordered_map<size_t, size_t> number_;
    BundlePlan out_;
};

}  // namespace

Result<BundlePlan> plan_bundle(Program& program, int threads, const CodegenOptions& codegen) {
    TRY(check_steps(program));
    return Planning(program, threads, codegen).run();
}

}  // namespace tessera
