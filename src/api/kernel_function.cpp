// Kernels by hand, as the public API has them: a schedule by name of primitive, and a function over somebody's arrays.
#include "tessera/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "backends/backend.h"
#include "base/protect.h"
#include "base/usable_cores.h"
#include "kernel/ir/check_bounds.h"
#include "runtime/devices/bind_launches.h"
#include "runtime/devices/cpu_device.h"

namespace tessera {

struct KernelSchedule::State {
    Schedule schedule;
    std::vector<Buffer> parameters = schedule.compute().buffers;  // as callers see them: steps may merge dimensions
};

struct KernelFunction::State {
    Lowered lowered;
    std::vector<Kernel> kernels;  // the kernel, then what prepares for it
    std::shared_ptr<CompiledModule> module;
    std::vector<Buffer> parameters;
    std::vector<KernelArgument> arguments;
    std::vector<size_t> slots;       // of the arguments
    std::map<size_t, Tensor> known;  // by slot
    bool prepared = false;           // once, when it was built

    Device& device = cpu_device();
    // Of one call at a time.
    std::mutex busy;
    std::vector<Arena> blocks;  // by slot: what is prepared, and intermediates
    std::unique_ptr<Stream> stream;

    Status bind(const std::vector<ArrayRef>& given, SymbolValues& symbols) const;
    Status place(const std::vector<int>& owned, const SymbolValues& symbols, std::vector<void*>& pointers);
    Status launch(size_t kernel, const std::vector<void*>& pointers, const SymbolValues& symbols);
    Status prepare(const std::vector<void*>& pointers);
};

namespace {

Result<Compute> checked_compute(std::string_view text) {
    Compute compute = TRY(parse_compute(text, "compute"));
    TRY(verify(compute));
    TRY(check_bounds(compute));
    return compute;
}

// A layout must have room for every element.
Status check_layouts(const Schedule& schedule) {
    for (size_t s = 0; s < schedule.plans().size(); ++s) {
        const std::optional<IndexMap>& layout = schedule.plans()[s].layout;
        if (!layout) continue;
        const Stage& stage = schedule.compute().stages[s];
        Bindings axes;
        for (size_t i = 0; i < layout->vars.size(); ++i)
            axes.insert_or_assign(layout->vars[i].node().name,
                                  index_var(layout->vars[i].node().name, stage.axes[i].extent.as_int()));
        const std::vector<std::string>& known = schedule.compute().symbols;
        for (size_t i = 0; i < layout->indices.size(); ++i) {
            const Expr& size = layout->shape[i];
            for (const std::string& name : free_symbols(size))
                if (std::find(known.begin(), known.end(), name) == known.end())
                    return Error(Code::E0602,
                                 "the layout of {} has a size {} that is neither constant nor a size of the kernel",
                                 stage.name, name);
            if (leaves(substitute(layout->indices[i], axes), size))
                return Error(Code::E0602, "the layout of {} is too small: index {} of {}", stage.name,
                             to_string(layout->indices[i]), to_string(size));
        }
    }
    return {};
}

Result<int64_t> value_of(const Expr& size, const SymbolValues& symbols) {
    std::optional<int64_t> value = evaluate_int(size, symbols);
    if (!value) return Error(Code::E0405, "no argument's shape determines the size {}", to_string(size));
    return *value;
}

Result<int64_t> bytes_of(const Buffer& buffer, const SymbolValues& symbols) {
    Sizes sizes;
    for (const Expr& size : buffer.shape) sizes.push_back(TRY(value_of(size, symbols)));
    if (!buffer.strides.empty() && !sizes.empty()) {
        int64_t stride = TRY(value_of(buffer.strides[0], symbols));  // the first is the largest
        sizes = {sizes[0], stride};
    }
    return TRY(element_count(sizes)) * static_cast<int64_t>(dtype_bytes(buffer.dtype));
}

// Sizes that stand alone in a shape are what the array has there.
void bind_names(const Buffer& buffer, const Sizes& sizes, SymbolValues& symbols) {
    for (size_t i = 0; i < sizes.size() && i < buffer.shape.size(); ++i)
        if (buffer.shape[i].is(ExprKind::Var)) symbols.emplace(buffer.shape[i].node().name, sizes[i]);
}

Status check_array(const Buffer& buffer, DType dtype, const Sizes& sizes, const SymbolValues& symbols) {
    if (dtype != buffer.dtype)
        return Error(Code::E0403, "{} takes elements of type {}, not {}", buffer.name, dtype_name(buffer.dtype),
                     dtype_name(dtype));
    if (sizes.size() != buffer.shape.size())
        return Error(Code::E0404, "{} has {} dimensions, not {}", buffer.name, buffer.shape.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
        int64_t wanted = TRY(value_of(buffer.shape[i], symbols));
        if (sizes[i] != wanted)
            return Error(Code::E0405, "dimension {} of {} is {}, not {}", i, buffer.name, wanted, sizes[i]);
    }
    return {};
}

struct Span {
    const char* begin;
    int64_t bytes;
    bool written;
    const std::string* name;
    bool meets(const Span& other) const { return begin < other.begin + other.bytes && other.begin < begin + bytes; }
};

// Generated code counts on what is written being apart from all else.
Status check_apart(const std::vector<Span>& spans) {
    for (size_t i = 0; i < spans.size(); ++i)
        for (size_t k = 0; k < i; ++k)
            if ((spans[i].written || spans[k].written) && spans[i].meets(spans[k]))
                return Error(Code::E0407, "{} and {} overlap in memory", *spans[k].name, *spans[i].name)
                    .hint("an output must not overlap other arguments");
    return {};
}

}  // namespace

Status KernelFunction::State::bind(const std::vector<ArrayRef>& given, SymbolValues& symbols) const {
    if (given.size() != slots.size()) {
        std::string names;
        for (const KernelArgument& a : arguments) names += (names.empty() ? "" : ", ") + a.name;
        return Error(Code::E0402, "it takes {} arguments, not {}", slots.size(), given.size())
            .hint("they are: {}", names);
    }
    for (const auto& [slot, tensor] : known) bind_names(parameters[slot], tensor.sizes(), symbols);
    for (size_t i = 0; i < slots.size(); ++i) bind_names(parameters[slots[i]], given[i].sizes, symbols);
    std::vector<Span> spans;
    for (const auto& [slot, tensor] : known) {
        TRY(check_array(parameters[slot], tensor.dtype(), tensor.sizes(), symbols));
        spans.push_back({static_cast<const char*>(tensor.data()), tensor.bytes(), false, &parameters[slot].name});
    }
    for (size_t i = 0; i < slots.size(); ++i) {
        TRY(check_array(parameters[slots[i]], given[i].dtype, given[i].sizes, symbols));
        int64_t bytes = TRY(bytes_of(parameters[slots[i]], symbols));
        spans.push_back({static_cast<const char*>(given[i].data), bytes, arguments[i].written, &arguments[i].name});
    }
    return check_apart(spans);
}

Status KernelFunction::State::place(const std::vector<int>& owned, const SymbolValues& symbols,
                                    std::vector<void*>& pointers) {
    for (int s : owned) {
        const auto slot = static_cast<size_t>(s);
        int64_t bytes = TRY(bytes_of(lowered.kernel.buffers[slot], symbols));
        TRY(blocks[slot].reserve(bytes));
        pointers[slot] = blocks[slot].data();
    }
    return {};
}

Status KernelFunction::State::launch(size_t kernel, const std::vector<void*>& pointers, const SymbolValues& symbols) {
    std::vector<int64_t> sizes;
    for (const std::string& name : kernels[kernel].symbols) sizes.push_back(TRY(value_of(symbol(name), symbols)));
    const std::vector<Launch> launches = TRY(bind_launches(module->kernels()[kernel], symbols));
    TRY(stream->reserve(most_local_bytes(launches)));
    for (const Launch& launch : launches) TRY(stream->launch(launch, {pointers, sizes}));
    return stream->synchronize();
}

Status KernelFunction::State::prepare(const std::vector<void*>& pointers) {
    std::vector<void*> args;
    for (int slot : lowered.prepare_args) args.push_back(pointers[static_cast<size_t>(slot)]);
    return launch(1, args, {});
}

const std::vector<KernelArgument>& KernelFunction::arguments() const { return state_->arguments; }

Status KernelFunction::run(const std::vector<ArrayRef>& given) const {
    State& s = *state_;
    SymbolValues symbols;
    TRY(s.bind(given, symbols));
    std::lock_guard lock(s.busy);
    std::vector<void*> pointers(s.lowered.kernel.params);
    for (const auto& [slot, tensor] : s.known) pointers[slot] = read_only(tensor.data());
    for (size_t i = 0; i < given.size(); ++i) pointers[s.slots[i]] = given[i].data;
    TRY(s.place(s.lowered.prepared, symbols, pointers));
    TRY(s.place(s.lowered.scratch, symbols, pointers));
    if (s.lowered.prepare.body && !s.prepared) TRY(s.prepare(pointers));
    return s.launch(0, pointers, symbols);
}

Result<std::string> KernelFunction::emit(std::string_view what) const {
    if (what == "llvm") return emit_llvm(state_->kernels, {});
    if (what == "asm") return emit_assembly(state_->kernels, {});
    if (what != "kernel") return Error(Code::E0501, "a kernel has no stage \"{}\"", what).hint("kernel, llvm or asm");
    std::string text;
    for (const Kernel& kernel : state_->kernels) text += to_string(kernel);
    return text;
}

Result<KernelSchedule> KernelSchedule::parse(std::string_view compute) {
    Compute checked = TRY(checked_compute(compute));
    return KernelSchedule(std::make_shared<State>(State{Schedule(std::move(checked))}));
}

Result<KernelSchedule> KernelSchedule::automatic(std::string_view compute, int threads) {
    return protect("schedule", {.name = "compute.tsc", .text = [&] { return std::string(compute); }},
                   [&]() -> Result<KernelSchedule> {
                       Compute checked = TRY(checked_compute(compute));
                       const Backend& backend = *backends().front();
                       ScheduleOptions options;
                       options.machine = TRY(backend.machine(backend.usual_target()));
                       options.threads = threads > 0 ? threads : usable_cores();
                       std::vector<Buffer> parameters = checked.buffers;
                       Schedule chosen = TRY(backend.scheduling().schedule(checked, options));
                       return KernelSchedule(std::make_shared<State>(State{std::move(chosen), std::move(parameters)}));
                   });
}

Result<KernelSchedule> KernelSchedule::replay(std::string_view compute, std::string_view trace) {
    return protect(
        "schedule", {.name = "compute.tsc", .text = [&] { return std::string(compute); }},
        [&]() -> Result<KernelSchedule> {
            Compute checked = TRY(checked_compute(compute));
            std::vector<TraceStep> steps = TRY(Schedule::parse_trace(trace));
            std::vector<Buffer> parameters = checked.buffers;
            Schedule replayed = TRY(Schedule::replay(std::move(checked), steps));
            TRY(check_layouts(replayed));
            return KernelSchedule(std::make_shared<State>(State{std::move(replayed), std::move(parameters)}));
        });
}

Result<std::vector<std::string>> KernelSchedule::apply(const std::string& primitive,
                                                       const std::vector<std::string>& args) {
    return protect("schedule", {.name = "kernel.txt", .text = [&] { return compute() + trace(); }},
                   [&]() -> Result<std::vector<std::string>> {
                       auto next = std::make_shared<State>(*state_);
                       std::vector<std::string> made = TRY(next->schedule.apply(primitive, args));
                       TRY(check_layouts(next->schedule));
                       state_ = std::move(next);
                       return made;
                   });
}

std::string KernelSchedule::compute() const { return to_string(state_->schedule.compute()); }

std::string KernelSchedule::trace() const { return state_->schedule.print_trace(); }

std::vector<std::string> KernelSchedule::stages() const {
    std::vector<std::string> names;
    for (const Stage& stage : state_->schedule.compute().stages) names.push_back(stage.name);
    return names;
}

Result<std::vector<std::pair<std::string, std::string>>> KernelSchedule::loops(std::string_view stage) const {
    std::vector<std::string> names = stages();
    if (std::find(names.begin(), names.end(), stage) == names.end())
        return Error(Code::E0602, "there is no stage {}", stage).hint("the stages are: {}", fmt::join(names, ", "));
    std::vector<std::pair<std::string, std::string>> loops;
    for (const Loop& loop : state_->schedule.loops(stage))
        loops.emplace_back(loop.name, to_string(state_->schedule.extent(loop)));
    return loops;
}

Result<std::string> KernelSchedule::lower() const {
    return protect("lower", {.name = "kernel.txt", .text = [&] { return compute() + trace(); }},
                   [&]() -> Result<std::string> {
                       Lowered lowered = TRY(tessera::lower(state_->schedule));
                       return to_string(lowered.kernel);
                   });
}

Result<KernelFunction> KernelSchedule::build(int threads, const std::map<std::string, Tensor>& known) const {
    return protect(
        "build", {.name = "kernel.txt", .text = [&] { return compute() + trace(); }}, [&]() -> Result<KernelFunction> {
            const Compute& compute = state_->schedule.compute();
            auto made = std::make_shared<KernelFunction::State>();
            KernelFunction::State& s = *made;
            s.lowered = TRY(tessera::lower(state_->schedule));
            s.stream = TRY(s.device.make_stream(threads));
            s.parameters = state_->parameters;
            s.blocks.assign(s.lowered.kernel.params, Arena(s.device));
            for (size_t slot = 0; slot < compute.params; ++slot) {
                const Buffer& buffer = s.parameters[slot];
                if (!buffer.strides.empty())
                    return Error(Code::E0601, "{} has strides, but arguments must be dense", buffer.name);
                if (auto given = known.find(buffer.name); given != known.end()) {
                    if (slot >= compute.known.size() || !compute.known[slot])
                        return Error(Code::E0401, "{} is not declared as known", buffer.name)
                            .hint("declare it: known {}", buffer.name);
                    s.known.emplace(slot, given->second);
                    continue;
                }
                KernelArgument argument{.name = buffer.name, .dtype = buffer.dtype, .shape = {}};
                for (const Expr& size : buffer.shape) argument.shape.push_back(to_string(size));
                for (const Stage& stage : compute.stages) argument.written |= stage.buffer == static_cast<int>(slot);
                s.arguments.push_back(std::move(argument));
                s.slots.push_back(slot);
            }
            if (s.known.size() != known.size())
                for (const auto& [name, tensor] : known)
                    if (std::none_of(s.known.begin(), s.known.end(),
                                     [&](const auto& k) { return s.parameters[k.first].name == name; }))
                        return Error(Code::E0401, "there is no parameter {}", name);
            s.kernels = {s.lowered.kernel};
            if (s.lowered.prepare.body) s.kernels.push_back(s.lowered.prepare);
            s.module = TRY(compile_kernels(s.kernels, {}));
            if (!s.lowered.prepare.body) return KernelFunction(std::move(made));

            std::vector<void*> pointers(s.lowered.kernel.params);
            SymbolValues symbols;
            for (const auto& [slot, tensor] : s.known) {
                bind_names(s.parameters[slot], tensor.sizes(), symbols);
                TRY(check_array(s.parameters[slot], tensor.dtype(), tensor.sizes(), symbols));
                pointers[slot] = read_only(tensor.data());
            }
            TRY(s.place(s.lowered.prepared, symbols, pointers));
            s.prepared = std::none_of(s.lowered.prepare_args.begin(), s.lowered.prepare_args.end(),
                                      [&](int slot) { return pointers[static_cast<size_t>(slot)] == nullptr; });
            if (s.prepared) TRY(s.prepare(pointers));
            return KernelFunction(std::move(made));
        });
}

Result<std::map<std::string, int64_t>> describe_processor(std::string_view target) {
    Machine m = TRY(describe_target(target));
    return std::map<std::string, int64_t>{{"vector_bytes", m.vector_bytes},
                                          {"vector_registers", m.vector_registers},
                                          {"fma_pipes", m.fma_pipes},
                                          {"fma_latency", m.fma_latency},
                                          {"lane_multiply", m.lane_multiply},
                                          {"load_broadcast", m.load_broadcast},
                                          {"masked", m.masked},
                                          {"l1_bytes", m.l1_bytes},
                                          {"l2_bytes", m.l2_bytes},
                                          {"l3_bytes", m.l3_bytes},
                                          {"cores", m.cores}};
}

}  // namespace tessera
