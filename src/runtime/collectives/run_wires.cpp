#include "runtime/collectives/run_wires.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "runtime/collectives/run_local.h"

namespace tessera::shard {
namespace {

class HostMemory : public WireMemory {
  public:
    Result<Tensor> allocate(DType dtype, const Sizes& sizes) override { return Tensor::zeros(dtype, sizes); }
    Tensor part(const Tensor& all, int64_t first, int64_t elements) const override {
        const auto* from = static_cast<const char*>(all.data()) + first * int64_t(dtype_bytes(all.dtype()));
        return Tensor::view(all.dtype(), {elements}, from, all.owner());
    }
    Result<Tensor> upload(const Tensor& t) override { return t; }
    Result<Tensor> download(const Tensor& t) override { return t; }
    void* stream() const override { return nullptr; }
};

class WireRun {
  public:
    WireRun(const Plan& plan, const LocalProgram& program, const NcclRank& nccl, WireMemory& memory,
            const RunPlaced& segment)
        : plan_(plan), program_(program), nccl_(nccl), memory_(memory), segment_(segment) {
        for (const auto& stage : program.stages)
            if (const auto* w = std::get_if<Wire>(&stage); w && w->kind == Wire::Kind::AllGather) gathers_[w->from] = w;
    }

    Status take(const std::vector<Datum>& inputs) {
        for (size_t i = 0; i < inputs.size(); ++i) {
            Datum part = TRY(input_part(plan_, i, inputs[i], program_.rank));
            has_[plan_.inputs[i]] = part.is_tensor() ? Datum(TRY(memory_.upload(part.tensor()))) : part;
        }
        return {};
    }

    Status run(size_t stage, const Segment& s) {
        std::vector<Datum> inputs;
        for (int id : s.inputs) inputs.push_back(has_.at(id));
        const Place place = [&](size_t output, DType, const Sizes&) -> Result<std::optional<Tensor>> {
            const int id = s.outputs[output];
            if (!is_buffer(id)) return std::optional<Tensor>();
            return std::optional<Tensor>(TRY(memory_for(id)));
        };
        std::vector<Datum> outputs = TRY(segment_(stage, inputs, place));
        for (size_t i = 0; i < outputs.size(); ++i) has_[s.outputs[i]] = std::move(outputs[i]);
        return {};
    }

    Status run(size_t, const Wire& w) {
        if (w.kind == Wire::Kind::AllReduce) has_[w.to] = has_.at(w.from);
        if (w.kind == Wire::Kind::ReduceScatter) {
            const int64_t count = about(w.to).elements;
            has_[w.to] = memory_.part(has_.at(w.from).tensor(), place_in_group(w) * count, count);
        }
        for (const auto& [rank, id] : w.receives)
            has_[id] = TRY(memory_.allocate(about(id).dtype, {about(id).elements}));
        return nccl_.run(
            w, program_, plan_.held.size(), [&](int id) { return const_cast<void*>(has_.at(id).tensor().data()); },
            memory_.stream());
    }
    Status run(size_t, const MoveStep&) { return not_mine(); }
    Status run(size_t, const CombineStep&) { return not_mine(); }
    Status run(size_t, const FinishStage&) { return not_mine(); }

    void release(const std::vector<int>& ids) {
        for (int id : ids) has_.erase(id);
    }

    Result<std::vector<Datum>> outputs() {
        std::vector<Datum> out;
        for (int id : plan_.outputs) {
            const Datum& d = has_.at(id);
            out.push_back(d.is_tensor() ? Datum(TRY(memory_.download(d.tensor()))) : d);
        }
        return out;
    }

  private:
    static Status not_mine() {
        CHECK(false, "the program exchanges boxes");
        return {};
    }
    bool is_buffer(int id) const { return size_t(id) >= plan_.held.size(); }
    const WireBuffer& about(int id) const { return program_.buffers[size_t(id) - plan_.held.size()]; }
    int64_t place_in_group(const Wire& w) const {
        const std::vector<int64_t> group = plan_.mesh.group(program_.rank, w.axes);
        return std::find(group.begin(), group.end(), program_.rank) - group.begin();
    }

    // What a segment packs: of a gather, this rank's part of what is gathered.
    Result<Tensor> memory_for(int id) {
        const WireBuffer& b = about(id);
        const auto gather = gathers_.find(id);
        if (gather == gathers_.end()) return memory_.allocate(b.dtype, {b.elements});
        const Wire& w = *gather->second;
        const Tensor all = TRY(memory_.allocate(b.dtype, {about(w.to).elements}));
        has_[w.to] = all;
        return memory_.part(all, place_in_group(w) * b.elements, b.elements);
    }

    const Plan& plan_;
    const LocalProgram& program_;
    const NcclRank& nccl_;
    WireMemory& memory_;
    const RunPlaced& segment_;
    std::unordered_map<int, const Wire*> gathers_;  // by what they read
    std::unordered_map<int, Datum> has_;
};

}  // namespace

std::unique_ptr<WireMemory> host_memory() { return std::make_unique<HostMemory>(); }

std::vector<std::vector<size_t>> groups_of(const LocalProgram& program) {
    std::vector<std::vector<size_t>> axes;
    for (const auto& stage : program.stages)
        if (const auto* w = std::get_if<Wire>(&stage); w && std::find(axes.begin(), axes.end(), w->axes) == axes.end())
            axes.push_back(w->axes);
    return axes;
}

Result<std::vector<Datum>> run_wires(const Plan& plan, const LocalProgram& program, const std::vector<Datum>& inputs,
                                     const NcclRank& nccl, WireMemory& memory, const RunPlaced& segment) {
    WireRun run(plan, program, nccl, memory, segment);
    TRY(run.take(inputs));
    const auto last = last_reads(plan, program);
    for (size_t i = 0; i < program.stages.size(); ++i) {
        TRY(std::visit([&](const auto& stage) { return run.run(i, stage); }, program.stages[i]));
        run.release(last[i]);
    }
    return run.outputs();
}

}  // namespace tessera::shard
