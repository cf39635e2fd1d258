// Where the outputs of a run are left: in memory of the run's own, or in somebody's, where kernels write them if they
// can.
#include <algorithm>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "runtime/run.h"

namespace tessera {
namespace {

bool overlap(const char* begin, const char* end, const char* other, const char* other_end) {
    return begin < other_end && other < end;
}

const char* begin_of(const Tensor& t) { return static_cast<const char*>(t.data()); }
const char* end_of(const Tensor& t) { return begin_of(t) + t.bytes(); }

}  // namespace

void Run::order_given() {
    std::sort(given_.begin(), given_.end(),
              [](const GivenMemory& a, const GivenMemory& b) { return std::less<>()(a.begin, b.begin); });
    const char* reach = nullptr;
    for (GivenMemory& g : given_) g.reach = reach = std::max(reach, g.end, std::less<>());
}

template <typename Test>
const Run::GivenMemory* Run::find_given(const Tensor& t, const Test& fails) const {
    auto g = std::lower_bound(given_.begin(), given_.end(), end_of(t),
                              [](const GivenMemory& a, const char* end) { return std::less<>()(a.begin, end); });
    while (g != given_.begin() && std::less<>()(begin_of(t), (--g)->reach))
        if (overlap(begin_of(t), end_of(t), g->begin, g->end) && fails(*g)) return &*g;
    return nullptr;
}

bool Run::overlaps_inputs(const Tensor& t) const {
    return find_given(t, [](const GivenMemory&) { return true; }) != nullptr;
}

bool Run::may_write(size_t root, const Tensor& t) const {
    const auto& pairs = context_.plan->overwrites;
    return !find_given(t, [&](const GivenMemory& g) {
        if (g.begin != begin_of(t) || g.end != end_of(t)) return true;
        return std::find(pairs.begin(), pairs.end(), std::pair(static_cast<int>(root), g.root)) == pairs.end();
    });
}

Status Run::ask_place(size_t k) {
    Left& left = left_[k];
    if (!options_.place || left.queried) return {};
    const auto b = static_cast<size_t>(program_.outputs[k]);
    const ProgramBuffer& buffer = program_.buffers[b];
    if (buffer.dtype == DType::string) return {};  // is not left in memory of others
    const auto& held = context_.data[static_cast<size_t>(layout_.root[b])];
    // The evaluator makes what a buffer has no shape for.
    auto sizes = held ? std::optional(TRY(datum(program_.outputs[k])).tensor().sizes()) : TRY(sizes_of(b));
    if (!sizes) return {};
    left.queried = true;
    left.memory = TRY(options_.place(k, buffer.dtype, *sizes));
    if (!left.memory) return {};
    const Tensor& t = *left.memory;
    const std::vector<std::string>& names = program_.graph->output_names();
    const std::string& name = names[k];
    if (t.dtype() != buffer.dtype || t.sizes() != *sizes)
        return Error(t.dtype() != buffer.dtype ? Code::E0403 : Code::E0405,
                     "output \"{}\" is {}{}, the memory for it is {}{}", name, dtype_name(buffer.dtype),
                     to_string(*sizes), dtype_name(t.dtype()), to_string(t.sizes()));
    if (t.gpu() != kNoGpu && t.gpu() != context_.device.gpu())
        return Error(Code::E0701, "the memory for output \"{}\" is on GPU {}, but the model runs on {}", name, t.gpu(),
                     shown_place(context_.device.gpu()));
    auto overlaps = [&](auto taken) {
        return taken != taken_.end() && overlap(begin_of(t), end_of(t), taken->first, taken->second.first);
    };
    auto other = taken_.lower_bound(begin_of(t));
    if (!overlaps(other) && other != taken_.begin()) --other;
    if (overlaps(other))
        return Error(Code::E0501, "the memory for outputs \"{}\" and \"{}\" overlaps",
                     names[std::min(k, other->second.second)], names[std::max(k, other->second.second)]);
    if (t.bytes() > 0) taken_.emplace(begin_of(t), std::pair(end_of(t), k));
    shared_ |= overlaps_inputs(t);
    return {};
}

Result<const Tensor*> Run::output_place(size_t root, int64_t bytes) {
    if (outputs_of_.empty()) {
        for (size_t k = 0; k < left_.size(); ++k)
            outputs_of_.emplace_back(layout_.root[static_cast<size_t>(program_.outputs[k])], k);
        std::sort(outputs_of_.begin(), outputs_of_.end());
    }
    auto at = std::lower_bound(outputs_of_.begin(), outputs_of_.end(), std::pair(root, size_t{0}));
    for (; at != outputs_of_.end() && at->first == root; ++at) {
        const size_t k = at->second;
        TRY(ask_place(k));
        Left& left = left_[k];
        if (!left.memory && stays()) left.memory = TRY(device_tensor(k));
        if (!left.memory || left.memory->bytes() != bytes || left.memory->gpu() != context_.device.gpu()) continue;
        const Tensor& t = *left.memory;
        if (!(t.gpu() == kNoGpu ? usable(t) : usable_on_gpu(t)) || !may_write(root, t)) continue;
        left.in_place = true;
        return &t;
    }
    return nullptr;
}

Result<Tensor> Run::device_tensor(size_t k) {
    const auto b = static_cast<size_t>(program_.outputs[k]);
    const ProgramBuffer& buffer = program_.buffers[b];
    auto sizes = TRY(sizes_of(b));
    CHECK(sizes, "the size of \"{}\" is not known where it is needed", buffer.name);
    auto taken = loaded_.device_outputs_->take(TRY(buffer_bytes(buffer, *sizes)), *options_.stream);
    if (!taken.ok()) return needed_for(std::move(taken.error()), "output \"{}\"", program_.graph->output_names()[k]);
    std::shared_ptr<void> memory = std::move(*taken);
    const void* data = memory.get();
    return Tensor::view_on_gpu(context_.device.gpu(), buffer.dtype, std::move(*sizes), data, std::move(memory));
}

bool Run::lies_on_device(size_t root) const {
    if (context_.device.shares_memory() || context_.data[root] || !context_.pointers[root]) return false;
    return layout_.home[root] == Home::Input || !program_.buffers[root].tensor;
}

Result<Tensor> Run::on_device(size_t k) const {
    const auto b = static_cast<size_t>(program_.outputs[k]);
    auto sizes = TRY(sizes_of(b));
    CHECK(sizes, "the size of \"{}\" is not known where it is needed", program_.buffers[b].name);
    return Tensor::view_on_gpu(context_.device.gpu(), program_.buffers[b].dtype, std::move(*sizes),
                               context_.pointers[static_cast<size_t>(layout_.root[b])], context_.mark);
}

Status Run::copy(const Tensor& to, const Tensor& from) {
    if (to.bytes() == 0) return {};
    void* into = read_only(to.data());
    waits_ |= to.gpu() == kNoGpu || from.gpu() == kNoGpu;
    if (to.gpu() != kNoGpu && from.gpu() != kNoGpu)
        return context_.stream->copy_on_device(into, from.data(), to.bytes());
    if (to.gpu() != kNoGpu) return context_.stream->copy_to_device(into, from.data(), to.bytes());
    if (from.gpu() != kNoGpu) return context_.stream->copy_to_host(into, from.data(), to.bytes());
    std::memmove(into, from.data(), static_cast<size_t>(to.bytes()));
    return {};
}

Result<std::optional<Datum>> Run::given_output(size_t k) {
    const auto root = static_cast<size_t>(layout_.root[static_cast<size_t>(program_.outputs[k])]);
    if (layout_.home[root] == Home::Input && lies_on_device(root)) {
        Tensor own = TRY(device_tensor(k));
        TRY(copy(own, TRY(on_device(k))));
        return std::optional<Datum>(std::move(own));
    }
    if (!context_.data[root]) return std::optional<Datum>();
    return std::optional(TRY(apart_from_inputs(TRY(datum(program_.outputs[k])))));
}

Result<Datum> Run::apart_from_inputs(const Datum& d) {
    if (d.is_tensor()) {
        const Tensor& t = d.tensor();
        if (t.dtype() == DType::string || !overlaps_inputs(t)) return d;
        Tensor own = TRY(Tensor::zeros(t.dtype(), t.sizes()));
        TRY(copy(own, t));
        return Datum(std::move(own));
    }
    std::vector<Datum> items;
    for (const Datum& item : d.items()) items.push_back(TRY(apart_from_inputs(item)));
    if (d.is_sequence()) return Datum::sequence(std::move(items));
    return items.empty() ? Datum::none() : Datum::some(std::move(items[0]));
}

Result<Datum> Run::leave_output(size_t k, const std::optional<Datum>& source) {
    Left& left = left_[k];
    if (left.in_place) return Datum(*left.memory);
    const int buffer = program_.outputs[k];
    const auto root = static_cast<size_t>(layout_.root[static_cast<size_t>(buffer)]);
    std::optional<Datum> found = source;
    if (found)
        found = TRY(detached(std::move(*found), context_.mark));
    else if (lies_on_device(root) && (left.memory || stays()))
        found = Datum(TRY(on_device(k)));
    else
        found = TRY(detached(TRY(datum(buffer)), context_.mark));
    if (!found->is_tensor() || found->tensor().dtype() == DType::string) return *found;
    if (!left.memory && stays()) left.memory = TRY(device_tensor(k));
    if (!left.memory) return *found;
    TRY(copy(*left.memory, found->tensor()));
    if (waits_) TRY(context_.stream->synchronize());  // `found` goes
    return Datum(*left.memory);
}

Result<std::vector<Datum>> Run::outputs() {
    if (!stays()) TRY(finish_all());
    if (left_.empty()) {  // nobody says where
        std::vector<Datum> own;
        for (int buffer : program_.outputs) own.push_back(TRY(detached(TRY(datum(buffer)), context_.mark)));
        return own;
    }
    for (size_t k = 0; k < left_.size(); ++k)
        if (program_.graph->outputs()[k]->type().is_tensor()) TRY(ask_place(k));
    // Outputs that are inputs come first where others are written over those.
    std::vector<std::optional<Datum>> sources(left_.size());
    for (size_t k = 0; shared_ && k < left_.size(); ++k)
        if (!left_[k].in_place) sources[k] = TRY(given_output(k));
    std::vector<Datum> list;
    for (size_t k = 0; k < left_.size(); ++k) list.push_back(TRY(leave_output(k, sources[k])));
    if (!stays() || waits_) {
        TRY(finish_all());
        return list;
    }
    if (copied_) TRY(copied_->wait());
    TRY(context_.leave());
    goes_on_ = true;
    return list;
}

}  // namespace tessera
