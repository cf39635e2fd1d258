#include "runtime/run.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernel/from_graph/run_contents.h"

namespace tessera {
namespace {

NodeEvaluator::Find finder(const std::vector<std::pair<const Value*, Datum>>& values) {
    return [&values](const Value* v) -> const Datum* {
        for (const auto& [value, d] : values)
            if (value == v) return &d;
        return nullptr;
    };
}

constexpr size_t kMostNamed = 8;  // of what an error lists

std::string listed(const std::vector<std::string>& names) {
    if (names.size() <= kMostNamed) return fmt::format("{}", fmt::join(names, ", "));
    return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kMostNamed, ", "),
                       names.size() - kMostNamed);
}

std::vector<std::string> node_names(const KernelStep& step) {
    std::vector<std::string> names;
    for (const Node* node : step.nodes) names.push_back(fmt::format("{} \"{}\"", node->op().name, shown(*node)));
    return names;
}

}  // namespace

Result<Datum> detached(Datum d, const std::shared_ptr<const void>& mark) {
    if (d.is_tensor()) {
        const Tensor& t = d.tensor();
        if (t.owner() != mark) return d;
        Tensor copy = TRY(Tensor::zeros(t.dtype(), t.sizes()));
        if (t.bytes()) std::memcpy(copy.mutable_data(), t.data(), static_cast<size_t>(t.bytes()));
        return Datum(std::move(copy));
    }
    std::vector<Datum> items;
    for (const Datum& item : d.items()) items.push_back(TRY(detached(item, mark)));
    if (d.is_sequence()) return Datum::sequence(std::move(items));
    return items.empty() ? Datum::none() : Datum::some(std::move(items[0]));
}

Run::Run(const LoadedProgram& loaded, RunContext& context, const RunOptions& options)
    : loaded_(loaded),
      program_(loaded.program_),
      layout_(loaded.layout_),
      context_(context),
      options_(options),
      left_(options.place || stays() ? program_.outputs.size() : 0) {}

Run::~Run() {
    if (!goes_on_) (void)context_.stream->synchronize();  // outputs() has asked whether all went well
}

RunOptions Run::inner_options() {
    RunOptions inner = options_;
    if (options_.progress) inner.progress = [this](std::string_view, size_t, size_t) { report(current_, current_); };
    inner.place = {};
    inner.stream = {};
    return inner;
}

Status Run::bind_input(size_t i, const Datum& input) {
    const int buffer = program_.inputs[i];
    if (buffer < 0) return {};
    const auto root = static_cast<size_t>(layout_.root[static_cast<size_t>(buffer)]);
    if (!layout_.in_run[root] || layout_.home[root] != Home::Input) return {};
    if (input.is_tensor() && input.tensor().gpu() != kNoGpu) {
        context_.point(root, TRY(readable(root, input.tensor())));
        return {};
    }
    context_.data[root] = input;
    if (!layout_.in_kernel[root]) return {};
    context_.pointers[root] = TRY(readable(root, input.tensor()));
    return {};
}

void Run::note_given(const Datum& input, int root) {
    if (!input.is_tensor()) {
        for (const Datum& item : input.items()) note_given(item, -1);
        return;
    }
    const auto* data = static_cast<const char*>(input.tensor().data());
    given_.push_back({data, data + input.tensor().bytes(), root});
}

Status Run::begin(const std::vector<Datum>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
        const int buffer = program_.inputs[i];
        if (options_.place) note_given(inputs[i], buffer < 0 ? -1 : layout_.root[static_cast<size_t>(buffer)]);
        TRY(bind_input(i, inputs[i]));
    }
    order_given();
    for (int buffer : program_.outputs) {
        const auto b = static_cast<size_t>(buffer);
        const auto root = static_cast<size_t>(layout_.root[b]);
        if (layout_.home[b] == Home::Output && context_.plan->bytes[root] >= 0 && !context_.pointers[root])
            TRY(allocate(static_cast<int>(root)));
    }
    if (staged_ && stays()) copied_ = TRY(context_.stream->record());
    return {};
}

Result<void*> Run::readable(size_t root, const Tensor& t) {
    const bool here = t.gpu() == context_.device.gpu();
    if (here && (t.gpu() == kNoGpu ? usable(t) : usable_on_gpu(t))) return read_only(t.data());
    staged_ |= !context_.device.shares_memory() && t.gpu() == kNoGpu;
    auto copy = context_.stage(root, t);
    if (!copy.ok()) return needed_for(std::move(copy.error()), "a copy of \"{}\"", program_.buffers[root].name);
    return copy;
}

Result<std::optional<Sizes>> Run::sizes_of(size_t buffer) const {
    const RunPlan& plan = *context_.plan;
    if (plan.bytes[buffer] >= 0) return std::optional(plan.sizes[buffer]);
    return buffer_sizes(program_.buffers[buffer], context_.symbols);
}

Status Run::allocate(int buffer) {
    const auto root = static_cast<size_t>(layout_.root[static_cast<size_t>(buffer)]);
    const ProgramBuffer& b = program_.buffers[root];
    auto sizes = TRY(sizes_of(root));
    CHECK(sizes, "the size of \"{}\" is not known where it is needed", b.name);
    const int64_t bytes = TRY(buffer_bytes(b, *sizes));
    if (const Tensor* place = layout_.home[root] == Home::Output ? TRY(output_place(root, bytes)) : nullptr) {
        void* memory = read_only(place->data());
        if (context_.device.shares_memory())
            context_.data[root] = Datum(Tensor::view(b.dtype, std::move(*sizes), memory, place->owner()));
        context_.point(root, memory);
        return {};
    }
    if (layout_.home[root] == Home::Output && context_.device.shares_memory()) {
        auto memory = TRY(loaded_.outputs_->take(bytes));
        context_.pointers[root] = memory.get();
        context_.data[root] = Datum(Tensor::view(b.dtype, std::move(*sizes), memory.get(), memory));
        return {};
    }
    auto placed = context_.place(root, bytes);
    if (!placed.ok()) return needed_for(std::move(placed.error()), "\"{}\", which is computed", b.name);
    context_.pointers[root] = *placed;
    return {};
}

Status Run::step(size_t i) {
    if (options_.cancel && options_.cancel->load(std::memory_order_relaxed))
        return Error(Code::E0410, "the run was cancelled");
    current_ = i;
    return std::visit([&](const auto& step) { return run(step, i); }, program_.steps[i]);
}

void Run::report(size_t i, size_t done) {
    if (!options_.progress) return;
    const Node* node = node_of(program_.steps[i]);
    const std::string& label = node ? node->name() : std::get<KernelStep>(program_.steps[i]).label;
    options_.progress(label, done, program_.steps.size());
}

Result<bool> Run::replay() {
    if (!context_.own_stream->captures()) return false;
    Replay& replay = *context_.replay;
    one_by_one_ = !std::exchange(replay.ran, true) || options_.progress;
    if (one_by_one_) return false;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
        if (layout_.checks_ahead[i]) continue;
        if (!std::holds_alternative<KernelStep>(program_.steps[i]) || !context_.plan->steps[i].bound) return false;
    }
    for (size_t i : layout_.ahead) TRY(step(i));
    if (!replay.recording || !rebind().ok()) {
        replay.recording.reset();
        if (!capture(true).ok()) TRY(capture(false));  // not every driver has all that the first needs
        remember_places();
    }
    TRY(context_.stream->replay(*replay.recording));
    return true;
}

// By the context's own stream: not every other can be captured.
Status Run::capture(bool side_by_side) {
    Stream* const on = std::exchange(context_.stream, context_.own_stream.get());
    Status taken = context_.stream->begin_capture();
    if (taken.ok()) {
        taken = capture_steps(side_by_side);
        auto recording = context_.stream->end_capture();
        if (taken.ok() && !recording.ok()) taken = std::move(recording.error());
        if (taken.ok()) context_.replay->recording = std::move(*recording);
    }
    context_.stream = on;
    return taken;
}

Status Run::capture_steps(bool side_by_side) {
    const RunPlan& plan = *context_.plan;
    std::vector<size_t>& first = context_.replay->launches;
    first.clear();
    std::vector<std::vector<size_t>> before;
    if (side_by_side) before = steps_before(program_, layout_, plan);
    auto ends = [&](const std::vector<size_t>& steps) {
        std::vector<size_t> launches;
        for (size_t j : steps) launches.push_back(first[j] + *last_launch(plan.steps[j]));
        return launches;
    };
    size_t launches = 0;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
        first.push_back(launches);
        launches += plan.steps[i].launches.size();
        if (layout_.checks_ahead[i]) continue;
        if (side_by_side && last_launch(plan.steps[i])) TRY(context_.stream->follow(ends(before[i])));
        TRY(step(i));
    }
    return side_by_side ? context_.stream->follow(ends(last_steps(plan, before))) : Status();
}

void Run::remember_places() {
    Replay& replay = *context_.replay;
    replay.pointers = context_.pointers;
    replay.uses.clear();
    for (size_t i = 0; i < program_.steps.size(); ++i) {
        const auto* kernel = std::get_if<KernelStep>(&program_.steps[i]);
        if (!kernel) continue;
        for (int arg : kernel->args) {
            const auto root = static_cast<size_t>(layout_.root[static_cast<size_t>(arg)]);
            const Home home = layout_.home[root];
            if (home == Home::Input || home == Home::Output) replay.uses.emplace_back(root, i);
        }
    }
}

Status Run::rebind() {
    Replay& replay = *context_.replay;
    std::vector<size_t> steps;
    for (const auto& [root, step] : replay.uses)
        if (replay.pointers[root] != context_.pointers[root]) steps.push_back(step);
    if (steps.empty()) return {};
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    for (size_t i : steps) {
        const auto& step = std::get<KernelStep>(program_.steps[i]);
        const BoundStep& bound = context_.plan->steps[i];
        for (size_t k = 0; k < step.args.size(); ++k)
            context_.args[k] = context_.pointers[static_cast<size_t>(layout_.root[static_cast<size_t>(step.args[k])])];
        const LaunchArguments arguments{{context_.args.data(), step.args.size()}, bound.symbols};
        for (size_t j = 0; j < bound.launches.size(); ++j)
            TRY(context_.own_stream->update(*replay.recording, replay.launches[i] + j, bound.launches[j], arguments));
    }
    for (const auto& [root, step] : replay.uses) replay.pointers[root] = context_.pointers[root];
    return {};
}

Status Run::run(const KernelStep& step, size_t i) {
    const BoundStep* bound = &context_.plan->steps[i];
    if (!bound->bound) bound = TRY(bind_late(step, i));
    const KernelAccess& access = layout_.access[step.kernel];
    for (size_t k = 0; k < step.args.size(); ++k) {
        const auto root = static_cast<size_t>(layout_.root[static_cast<size_t>(step.args[k])]);
        if (!context_.pointers[root] && access.uses(k)) TRY(allocate(static_cast<int>(root)));
        context_.args[k] = context_.pointers[root];
    }
    const LaunchArguments arguments{{context_.args.data(), step.args.size()}, bound->symbols};
    for (const Launch& launch : bound->launches)
        if (Status done = context_.stream->launch(launch, arguments); !done.ok())
            return at_step(std::move(done.error()), i);
    return one_by_one_ ? finish(i) : Status();
}

// Where a buffer is, which has memory from here on.
Result<void*> Run::memory_of(int buffer) {
    const auto root = static_cast<size_t>(layout_.root[static_cast<size_t>(buffer)]);
    if (!context_.pointers[root] && program_.buffers[root].device == 0) TRY(allocate(static_cast<int>(root)));
    return context_.pointers[root];
}

// Kernels are done when their launch returns, so that copies to a device have nothing to wait for.
Status Run::run(const CopyStep& step, size_t) {
    const int to = program_.buffers[static_cast<size_t>(step.to)].device;
    const int from = program_.buffers[static_cast<size_t>(step.from)].device;
    const int64_t bytes = context_.plan->bytes[static_cast<size_t>(step.from)];
    void *const target = TRY(memory_of(step.to)), *const source = TRY(memory_of(step.from));
    Stream& stream = context_.stream_on(static_cast<size_t>(std::max(to, from)) - 1);
    if (to > 0) return stream.copy_to_device(target, source, bytes);
    TRY(stream.copy_to_host(target, source, bytes));
    return stream.synchronize();
}

Status Run::run(const DeviceStep& step, size_t i) {
    const std::vector<int> buffers = moved_by(program_.steps[i]);
    for (size_t k = 0; k < buffers.size(); ++k) context_.args[k] = TRY(memory_of(buffers[k]));
    const Launch launch{.handle = loaded_.code_.at(step.code.get()).get()};
    return context_.stream_on(static_cast<size_t>(step.device) - 1)
        .launch(launch, {{context_.args.data(), buffers.size()}, {}});
}

Result<const BoundStep*> Run::bind_late(const KernelStep& step, size_t i) {
    BoundStep& late = context_.late[i];
    const bool known = step_symbols(program_, step, context_.symbols, context_.values);
    CHECK(known, "a size of {} is not known where it is needed", step.label);
    if (!late.bound || late.symbols != context_.values) {
        late = TRY(bind_step(program_, step, *loaded_.module_, context_.symbols));
        TRY(context_.stream->reserve(most_local_bytes(late.launches)));
    }
    return &late;
}

Result<Datum> Run::datum(int buffer) const {
    const auto b = static_cast<size_t>(buffer), root = static_cast<size_t>(layout_.root[b]);
    const ProgramBuffer& own = program_.buffers[b];
    const bool on_host = !lies_on_device(root);
    if (context_.data[root] && root == b) return *context_.data[root];
    if (on_host && root == b && own.tensor) return Datum(*own.tensor);
    auto sizes = TRY(sizes_of(b));
    CHECK(sizes, "the size of \"{}\" is not known where it is needed", own.name);
    if (context_.data[root]) return Datum(context_.data[root]->tensor().reshaped(*sizes));
    if (on_host && program_.buffers[root].tensor) return Datum(program_.buffers[root].tensor->reshaped(*sizes));
    const bool empty = std::find(sizes->begin(), sizes->end(), 0) != sizes->end();
    if (!context_.pointers[root] && empty) return Datum(TRY(Tensor::zeros(own.dtype, std::move(*sizes))));
    CHECK(context_.pointers[root], "\"{}\" is used before it is computed", own.name);
    if (!context_.device.shares_memory()) {
        const int64_t bytes = TRY(buffer_bytes(own, *sizes));
        auto memory = TRY(loaded_.outputs_->take(bytes));
        TRY(context_.stream->copy_to_host(memory.get(), context_.pointers[root], bytes));
        TRY(context_.stream->synchronize());
        return Datum(Tensor::view(own.dtype, std::move(*sizes), memory.get(), memory));
    }
    return Datum(Tensor::view(own.dtype, std::move(*sizes), context_.pointers[root], context_.mark));
}

Status Run::run(const FoundStep& step, size_t) {
    TRY(context_.stream->synchronize());
    const int64_t found = TRY(datum(step.count)).tensor().int_at(0);
    for (size_t k = 0; k < step.dims.size(); ++k) {
        if (step.dims[k] < 0) continue;
        const Value& v = *step.node->output(k);
        Sizes sizes;
        for (const Dim& d : v.type().tensor().shape)
            sizes.push_back(int64_t(sizes.size()) == step.dims[k] ? found
                                                                  : evaluate_int(d, context_.symbols).value_or(-1));
        TRY(define_sizes(v, sizes));
    }
    return {};
}

NodeEvaluator& Run::evaluator() {
    if (!evaluator_) {
        evaluation_.max_work = options_.max_work;
        evaluation_.seed = options_.seed;
        evaluation_.cancel = options_.cancel;
        if (options_.progress)
            evaluation_.progress = [this](const Node&, size_t, size_t) { report(current_, current_); };
        evaluator_.emplace(evaluation_, [this](const Graph& g, const std::vector<Datum>& in, const auto& outer) {
            return nested(g, in, outer);
        });
    }
    return *evaluator_;
}

Result<Run::Values> Run::values_of(const Node& node, const std::vector<int>& inputs, size_t i) const {
    TRY(context_.stream->synchronize());
    Values values;
    for (size_t k = 0; k < std::min(inputs.size(), node.inputs().size()); ++k)
        if (inputs[k] >= 0) values.emplace_back(node.input(k), TRY(datum(inputs[k])));
    for (const auto& [value, buffer] : layout_.captures[i]) values.emplace_back(value, TRY(datum(buffer)));
    return values;
}

// Where the device has seen that no index is outside, only sizes are left to check.
Status Run::run(const CheckStep& step, size_t i) {
    const size_t given = step.node->inputs().size();
    if (step.inputs.size() > given && step.inputs[given] >= 0) {
        TRY(context_.stream->synchronize());
        const Values none;
        if (TRY(datum(step.inputs[given])).tensor().int_at(0) <= 0)
            return evaluator().check(*step.node, finder(none), context_.symbols);
    }
    const Values values = TRY(values_of(*step.node, step.inputs, i));
    return evaluator().check(*step.node, finder(values), context_.symbols);
}

Status Run::run(const InferStep& step, size_t i) {
    const Values values = TRY(values_of(*step.node, step.inputs, i));
    const NodeEvaluator::Find find = finder(values);
    for (size_t k : step.contents)
        define_contents(*step.node->input(k), find(step.node->input(k))->tensor(), context_.symbols);
    const std::vector<Type> types = TRY(evaluator().infer(*step.node, find, context_.symbols));
    for (size_t k = 0; k < types.size(); ++k) {
        auto sizes = types[k].is_tensor() ? types[k].tensor().shape.sizes() : std::nullopt;
        if (sizes) TRY(define_sizes(*step.node->output(k), *sizes));
    }
    for (const std::string& name : step.sizes)
        CHECK(context_.symbols.contains(name), "{} does not define {}", step.node->where(), name);
    return {};
}

Status Run::run(const ControlStep& step, size_t i) {
    const Values values = TRY(values_of(*step.node, step.inputs, i));
    auto results = TRY(run_control(step, values));
    if (!results) results = TRY(evaluator().run(*step.node, finder(values)));
    for (size_t k = 0; k < step.outputs.size(); ++k)
        if (step.outputs[k] >= 0) TRY(keep(step.outputs[k], std::move((*results)[k])));
    return {};
}

Status Run::run(const HostStep& step, size_t i) {
    const Values values = TRY(values_of(*step.node, step.inputs, i));
    std::vector<Datum> results = TRY(evaluator().run(*step.node, finder(values)));
    for (size_t k = 0; k < step.outputs.size(); ++k)
        if (step.outputs[k] >= 0) TRY(keep(step.outputs[k], std::move(results[k])));
    return {};
}

std::optional<std::vector<Datum>> Run::nested(const Graph& graph, const std::vector<Datum>& inputs,
                                              const NodeEvaluator::Find& outer) {
    for (const LoadedProgram::Nested& n : loaded_.nested_) {
        if (n.graph != &graph) continue;
        const auto& names = n.loaded->program_.graph->inputs();
        if (names.size() != inputs.size() + n.captured.size()) return {};
        NamedData given;
        for (size_t i = 0; i < inputs.size(); ++i) given.emplace(names[i]->name(), inputs[i]);
        for (size_t i = 0; i < n.captured.size(); ++i) {
            const Datum* d = outer(n.captured[i]);
            if (!d) return {};
            given.emplace(names[inputs.size() + i]->name(), *d);
        }
        auto results = n.loaded->run(given, inner_options());
        return results.ok() ? std::optional(std::move(*results)) : std::nullopt;
    }
    return {};
}

Status Run::keep(int buffer, Datum result) {
    const auto b = static_cast<size_t>(buffer), root = static_cast<size_t>(layout_.root[b]);
    Datum own = TRY(detached(std::move(result), context_.mark));
    if (own.is_tensor()) {
        const Tensor& t = own.tensor();
        if (const Value* v = program_.buffers[b].value) TRY(define_sizes(*v, t.sizes()));
        if (layout_.in_kernel[root]) context_.pointers[root] = TRY(readable(root, t));
    }
    context_.data[root] = std::move(own);
    return {};
}

Status Run::define_sizes(const Value& value, const Sizes& sizes) {
    if (!value.type().is_tensor() || !value.type().tensor().shape.ranked()) return {};
    const Shape& shape = value.type().tensor().shape;
    const auto rank = static_cast<int64_t>(sizes.size());
    if (shape.rank() != rank)
        return Error(Code::E0411, "\"{}\" has {} dimensions, but {} in the model", value.name(), rank, shape.rank());
    for (int64_t d = 0; d < rank; ++d) {
        const int64_t size = sizes[static_cast<size_t>(d)];
        if (shape[d].is(ExprKind::Var)) context_.symbols.try_emplace(shape[d].node().name, size);
        auto expected = evaluate_int(shape[d], context_.symbols);
        if (expected && *expected != size)
            return Error(Code::E0411, "\"{}\" has {} elements in dimension {}, but {} in the model ({})", value.name(),
                         size, d, *expected, to_string(shape[d]));
    }
    return {};
}

Error Run::at_step(Error error, size_t i) const {
    const auto* step = std::get_if<KernelStep>(&program_.steps[i]);
    if (!step || error.code() != Code::E0702) return error;
    error.at(fmt::format("kernel {}, which computes {}", program_.kernels[step->kernel].name, step->label));
    const std::vector<std::string> names = node_names(*step);
    if (names.empty()) return error;
    return std::move(error).note("the kernel computes {}", listed(names));
}

Status Run::finish(size_t i) {
    Status done = context_.stream->synchronize();
    if (done.ok()) return done;
    return at_step(std::move(done.error()), i);
}

Status Run::finish_all() {
    Status done = context_.stream->synchronize();
    if (done.ok() || done.error().code() != Code::E0702) return done;
    std::vector<std::string> labels;
    size_t last = 0;
    for (size_t i = 0; i < program_.steps.size(); ++i)
        if (const auto* step = std::get_if<KernelStep>(&program_.steps[i])) {
            labels.push_back(step->label);
            last = i;
        }
    if (labels.size() == 1) return at_step(std::move(done.error()), last);
    return std::move(done.error())
        .note("one of these {} kernels failed, which ran asynchronously: {}", labels.size(), listed(labels))
        .hint("in a new process, a run with progress synchronizes after each kernel and names the one that fails");
}

}  // namespace tessera
