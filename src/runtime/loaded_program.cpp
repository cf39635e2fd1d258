#include "runtime/loaded_program.h"

#include <algorithm>
#include <chrono>

#include "backends/backend.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "graph/evaluate/bind_inputs.h"
#include "graph/evaluate/check_sizes.h"
#include "runtime/devices/cpu_device.h"
#include "runtime/memory_plan.h"
#include "runtime/run.h"
#include "runtime/weight_places.h"

namespace tessera {
namespace {

constexpr size_t kMostPlans = 64;

}  // namespace

LoadedProgram::LoadedProgram(Program program, std::shared_ptr<CompiledModule> module, const LoadOptions& options)
    : program_(std::move(program)),
      module_(std::move(module)),
      layout_(program_),
      device_(options.device ? *options.device : cpu_device()),
      threads_(Team(options.threads).threads()),
      memory_(options.memory && device_.shares_memory() ? options.memory : make_run_memory()) {}

Result<std::unique_ptr<LoadedProgram>> LoadedProgram::load(Program program, std::shared_ptr<CompiledModule> module,
                                                           const LoadOptions& options) {
    std::unique_ptr<LoadedProgram> loaded(new LoadedProgram(std::move(program), std::move(module), options));
    loaded->weights_ = TRY(prepare_weights(loaded->program_, loaded->layout_, *loaded->module_, loaded->device_,
                                           loaded->threads_, options.keep_constants));
    TRY(loaded->find_devices(options.others));
    loaded->complete_ = options.keep_constants;
    for (NestedProgram& n : loaded->program_.nested) {
        auto inner = TRY(load(std::move(*n.program), loaded->module_, options));
        loaded->weights_.bytes += inner->weights_.bytes;
        loaded->nested_.push_back({n.graph, n.captured, std::move(inner)});
    }
    loaded->program_.nested.clear();
    return loaded;
}

// The devices of steps other than kernels', and their code.
Status LoadedProgram::find_devices(const std::vector<Device*>& given) {
    if (!program_.devices.empty()) others_ = given;
    for (size_t d = others_.size(); d < program_.devices.size(); ++d)
        others_.push_back(TRY(device_for(program_.devices[d])));
    if (!others_.empty() && !device_.shares_memory())
        return Error(Code::E0701, "kernels run on {}, but other steps on {}", device_.name(), others_[0]->name())
            .hint("one of the two must be the CPU");
    for (const Step& step : program_.steps)
        if (const auto* own = std::get_if<DeviceStep>(&step))
            code_[own->code.get()] = TRY(others_[static_cast<size_t>(own->device) - 1]->load_code(own->code));
    return {};
}

Status LoadedProgram::prepare(RunContext& context, std::shared_ptr<const RunPlan> plan) const {
    TRY(context.prepare(std::move(plan), layout_, weights_.pointers));
    for (size_t d = 0; d < others_.size(); ++d) TRY(context.reserve_on(d, *others_[d], layout_, program_));
    return {};
}

Result<std::unique_ptr<LoadedProgram>> LoadedProgram::restore(Program program, std::shared_ptr<CompiledModule> module,
                                                              std::string_view weights,
                                                              std::shared_ptr<const void> owner,
                                                              const LoadOptions& options) {
    auto loaded = without_weights(std::move(program), std::move(module), options);
    TRY(loaded->read_weights(weights, std::move(owner)));
    return loaded;
}

std::unique_ptr<LoadedProgram> LoadedProgram::without_weights(Program program, std::shared_ptr<CompiledModule> module,
                                                              const LoadOptions& options) {
    std::unique_ptr<LoadedProgram> loaded(new LoadedProgram(std::move(program), std::move(module), options));
    for (NestedProgram& n : loaded->program_.nested)
        loaded->nested_.push_back(
            {n.graph, n.captured, without_weights(std::move(*n.program), loaded->module_, options)});
    loaded->program_.nested.clear();
    return loaded;
}

Status LoadedProgram::read_weights(std::string_view weights, std::shared_ptr<const void> owner) {
    const int64_t wanted = TRY(stored_bytes());
    if (wanted != static_cast<int64_t>(weights.size()))
        return Error(Code::E0605, "the program needs {} bytes of weights, but there are {}", wanted, weights.size());
    return take_weights(weights, owner);
}

Result<int64_t> LoadedProgram::stored_bytes() const {
    int64_t bytes = TRY(place_weights(program_, layout_)).bytes;
    for (const GraphConstant& c : graph_constants(program_)) bytes += aligned(c.value->tensor()->bytes());
    for (const Nested& n : nested_) bytes += TRY(n.loaded->stored_bytes());
    return bytes;
}

// Its own come first, then what the evaluator may ask for, then those of nested programs.
Status LoadedProgram::take_weights(std::string_view& weights, const std::shared_ptr<const void>& owner) {
    const WeightPlaces places = TRY(place_weights(program_, layout_));
    std::vector<ProgramBuffer>& buffers = program_.buffers;
    weights_ = {};
    weights_.pointers.assign(buffers.size(), nullptr);
    weights_.bytes = places.bytes;
    for (size_t b = 0; b < buffers.size(); ++b) {
        const auto root = static_cast<size_t>(layout_.root[b]);
        if (places.offsets[root] < 0 || buffers[b].role != BufferRole::Constant) continue;
        const char* data = weights.data() + places.offsets[root];
        if (const Value* v = buffers[b].value; v && v->is_constant())
            program_.graph->move_constant(*v, Tensor::view(v->tensor()->dtype(), v->tensor()->sizes(), data, owner));
        buffers[b].tensor.reset();
        if (root != b) continue;
        Sizes sizes;
        for (const Expr& d : buffers[b].shape) sizes.push_back(*evaluate_int(d, {}));  // known: place_weights needed it
        buffers[b].tensor = Tensor::view(buffers[b].dtype, std::move(sizes), data, owner);
    }
    for (size_t b = 0; b < buffers.size(); ++b)
        if (places.offsets[b] >= 0) weights_.pointers[b] = read_only(weights.data() + places.offsets[b]);
    weights_.memory.push_back(owner);
    complete_ = false;
    weights.remove_prefix(static_cast<size_t>(places.bytes));
    for (const GraphConstant& c : graph_constants(program_)) {
        const Tensor& t = *c.value->tensor();
        const auto bytes = static_cast<size_t>(aligned(t.bytes()));
        c.graph->move_constant(*c.value, Tensor::view(t.dtype(), t.sizes(), weights.data(), owner));
        weights.remove_prefix(bytes);
    }
    for (Nested& n : nested_) {
        TRY(n.loaded->take_weights(weights, owner));
        weights_.bytes += n.loaded->weights_.bytes;
    }
    if (!layout_.sizes.empty()) return {};
    plans_.emplace_back(std::vector<int64_t>(), TRY(plan({})));
    for (Kernel& kernel : program_.kernels) {
        kernel.body = nullptr;
        kernel.buffers.clear();
    }
    return {};
}

Result<std::vector<std::string_view>> LoadedProgram::weight_pieces() const {
    const WeightPlaces places = TRY(place_weights(program_, layout_));
    std::vector<std::string_view> pieces;
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
        if (places.offsets[b] < 0) continue;
        const auto& tensor = program_.buffers[b].tensor;
        const void* data = weights_.pointers[b] ? weights_.pointers[b] : tensor ? tensor->data() : nullptr;
        CHECK(data || places.sizes[b] == 0, "weight \"{}\" is not there", program_.buffers[b].name);
        pieces.emplace_back(static_cast<const char*>(data), static_cast<size_t>(places.sizes[b]));
    }
    for (const GraphConstant& c : graph_constants(program_))
        pieces.emplace_back(static_cast<const char*>(c.value->tensor()->data()),
                            static_cast<size_t>(c.value->tensor()->bytes()));
    for (const Nested& n : nested_) {
        const std::vector<std::string_view> inner = TRY(n.loaded->weight_pieces());
        pieces.insert(pieces.end(), inner.begin(), inner.end());
    }
    return pieces;
}

Result<std::shared_ptr<const RunPlan>> LoadedProgram::plan(const SymbolValues& symbols) const {
    return std::make_shared<const RunPlan>(TRY(plan_run(program_, layout_, *module_, symbols, {threads_})));
}

Result<std::shared_ptr<const RunPlan>> LoadedProgram::plan_for(const std::vector<Datum>& inputs) const {
    std::vector<int64_t> key;
    read_sizes(layout_.sizes, inputs, key);
    {
        std::lock_guard lock(mutex_);
        for (size_t i = plans_.size(); i-- > 0;)
            if (plans_[i].first == key) {
                if (i + 1 < plans_.size())
                    std::rotate(plans_.begin() + long(i), plans_.begin() + long(i) + 1, plans_.end());
                return plans_.back().second;
            }
    }
    const SymbolValues symbols = TRY(bind_sizes(layout_.sizes, key));
    if (!symbols.empty()) TRY(check_sizes(*program_.graph, symbols));
    for (const EqualSizes& e : program_.equal_sizes) {
        const auto said = evaluate_int(e.said, symbols), found = evaluate_int(e.found, symbols);
        if (said && found && *said != *found)
            return Error(Code::E0411, "a size of \"{}\" is {} at run time, but {} in the model", e.value, *found,
                         *said);
    }
    auto plan = TRY(this->plan(symbols));
    std::lock_guard lock(mutex_);
    if (plans_.size() == kMostPlans) plans_.erase(plans_.begin());
    plans_.emplace_back(std::move(key), plan);
    return plan;
}

const LoadedProgram::Nested* LoadedProgram::nested_of(const Graph& graph) const {
    for (const Nested& n : nested_)
        if (n.graph == &graph) return &n;
    return nullptr;
}

Result<std::vector<Datum>> LoadedProgram::run(const NamedData& inputs, const RunOptions& options) const {
    TRY(check_places(inputs, device_.gpu()));
    return run_bound(TRY(bind_inputs(*program_.graph, inputs)), options);
}

bool LoadedProgram::takes(const std::vector<Port>& ports, size_t count) const {
    const auto& inputs = program_.graph->inputs();
    return inputs.size() == count && ports.size() == count &&
           std::equal(ports.begin(), ports.end(), inputs.begin(),
                      [](const Port& p, const auto& v) { return p.name == v->name(); });
}

std::shared_ptr<const RunPlan> LoadedProgram::plan_met(const std::vector<Datum>& inputs) const {
    std::lock_guard lock(mutex_);
    if (!met_.plan) return nullptr;
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i].is_tensor()) return nullptr;
        const Tensor& t = inputs[i].tensor();
        if (t.gpu() != kNoGpu && t.gpu() != device_.gpu()) return nullptr;
        if (t.dtype() != met_.types[i].first || t.sizes() != met_.types[i].second) return nullptr;
    }
    return met_.plan;
}

void LoadedProgram::meet(const std::vector<Datum>& inputs, std::shared_ptr<const RunPlan> plan) const {
    std::vector<std::pair<DType, Sizes>> types;
    for (const Datum& d : inputs) {
        if (!d.is_tensor()) return;
        types.emplace_back(d.tensor().dtype(), d.tensor().sizes());
    }
    std::lock_guard lock(mutex_);
    met_ = {std::move(types), std::move(plan)};
}

Result<std::vector<Datum>> LoadedProgram::run_in_order(const std::vector<Datum>& inputs,
                                                       const RunOptions& options) const {
    const DeviceScope inside = TRY(device_.enter());
    auto plan = plan_met(inputs);
    if (!plan) {
        NamedData named;
        for (size_t i = 0; i < inputs.size(); ++i) named.emplace(program_.graph->inputs()[i]->name(), inputs[i]);
        TRY(check_places(named, device_.gpu()));
        const std::vector<Datum> bound = TRY(bind_inputs(*program_.graph, named));
        const bool as_given = std::equal(bound.begin(), bound.end(), inputs.begin(),
                                         [](const Datum& a, const Datum& b) { return a.is_tensor() && b.is_tensor(); });
        if (!as_given) return run_bound(bound, options);
        plan = TRY(plan_for(bound));
        meet(inputs, plan);
    }
    auto results = run_planned(inputs, std::move(plan), options);
    if (results.ok() || results.error().code() != Code::E0408 || device_.shares_memory()) return results;
    return with_what_fits(std::move(results.error()), inputs);
}

Result<std::vector<Datum>> LoadedProgram::run_bound(const std::vector<Datum>& bound, const RunOptions& options) const {
    const DeviceScope inside = TRY(device_.enter());
    auto results = run_planned(bound, TRY(plan_for(bound)), options);
    if (results.ok() || results.error().code() != Code::E0408 || device_.shares_memory()) return results;
    return with_what_fits(std::move(results.error()), bound);
}

Result<std::vector<Datum>> LoadedProgram::run_planned(const std::vector<Datum>& bound,
                                                      std::shared_ptr<const RunPlan> plan,
                                                      const RunOptions& options) const {
    Borrowed context(TRY(take_context()), *memory_);
    TRY(context->borrow(options.stream));
    TRY(prepare(*context, std::move(plan)));
    TRY(context->work_on_borrowed());
    Run run(*this, *context, options);
    TRY(run.begin(bound));
    const bool done = TRY(run.replay());
    for (size_t i = 0; i < program_.steps.size() && !done; ++i) {
        TRY(run.step(i));
        run.report(i, i + 1);
    }
    return run.outputs();
}

Result<int64_t> LoadedProgram::arena_bytes(const SymbolValues& symbols) const {
    SymbolValues all = symbols;
    for (const SizeSource& source : layout_.sizes)
        for (const std::string& name : free_symbols(source.size)) all.emplace(name, 1);
    auto plan = layout_.sizes.empty() ? TRY(plan_for({})) : TRY(this->plan(all));
    return aligned(plan->block_bytes) + (device_.shares_memory() ? threads_ : 1) * plan->scratch_bytes;
}

Result<int64_t> LoadedProgram::bytes_on_device(const SymbolValues& symbols) const {
    const auto plan = TRY(this->plan(symbols));
    int64_t bytes = aligned(plan->block_bytes) + plan->scratch_bytes;
    for (size_t b = 0; b < plan->bytes.size(); ++b) {
        const bool given = layout_.home[b] == Home::Input || layout_.home[b] == Home::Output;
        if (given && layout_.root[b] == static_cast<int>(b) && layout_.in_run[b])
            bytes += aligned(std::max<int64_t>(plan->bytes[b], 0)) + kBlockAlignment;
    }
    return bytes;
}

Error LoadedProgram::with_what_fits(Error error, const std::vector<Datum>& inputs) const {
    const std::optional<int64_t> room = device_.room();
    std::vector<int64_t> sizes;
    read_sizes(layout_.sizes, inputs, sizes);
    auto symbols = bind_sizes(layout_.sizes, sizes);
    if (error.code() != Code::E0408 || !error.hint().empty() || !room || !symbols.ok()) return error;
    const auto needed = bytes_on_device(*symbols);
    if (!needed.ok()) return error;
    auto fits = [&](const SymbolValues& at) {
        const auto bytes = bytes_on_device(at);
        return bytes.ok() && *bytes <= *room;
    };
    std::vector<std::string> smaller;  // of one size, the others as they are
    for (const auto& [name, size] : *symbols) {
        SymbolValues at = *symbols;
        int64_t least = 0, most = size;  // the one fits, the other does not
        while (most - least > 1) {
            at[name] = least + (most - least) / 2;
            (fits(at) ? least : most) = at[name];
        }
        if (least > 0) smaller.push_back(fmt::format("{} = {}", name, least));
    }
    std::string needs = fmt::format("a run needs {}", shown_bytes(*needed));
    if (weights_.bytes) needs += fmt::format(" besides {} of weights", shown_bytes(weights_.bytes));
    if (!smaller.empty()) return std::move(error).hint("{}; {} would fit", needs, fmt::join(smaller, ", or "));
    return std::move(error).hint("{}; use a GPU with more memory, or smaller inputs", needs);
}

}  // namespace tessera
