#include "api/mesh/mesh_training.h"

#include <algorithm>

#include "api/mesh/compiled_segments.h"
#include "api/mesh/zero.h"
#include "onnx/file.h"
#include "runtime/code_cache.h"
#include "runtime/collectives/collect.h"
#include "runtime/collectives/run_threads.h"
#include "runtime/model_key.h"
#include "shard/prepare.h"
#include "shard/report.h"

namespace tessera {

using namespace shard;

namespace {

constexpr double kSetupPatience = 600;  // seconds that ranks wait for the slowest to compile, or to write a file
constexpr std::string_view kDataAxis = "data";

Box whole_of(const Sizes& sizes) {
    Box box;
    for (int64_t n : sizes) box.push_back({0, n});
    return box;
}

int64_t most_bytes(const Placement& placement, DType dtype) {
    int64_t most = 0;
    for (const Box& box : placement) most = std::max(most, volume(box));
    return most * element_bytes(dtype);
}

std::string key_of(const StepGraph& step, const SymbolValues& sizes) {
    std::string key = fmt::format("{}", fmt::ptr(&step));
    for (const auto& [name, size] : sizes) key += fmt::format(" {}={}", name, size);
    return key;
}

}  // namespace

struct MeshTraining::Program {
    std::unique_ptr<Plan> plan;
    std::vector<LocalProgram> locals;  // by rank here
    std::vector<RunSegment> segments;
};

MeshTraining::~MeshTraining() = default;

Result<std::unique_ptr<MeshTraining>> MeshTraining::make(const TrainingOptions& options,
                                                         std::vector<TrainedTensor> tensors, size_t parameters,
                                                         const Graph& model) {
    std::unique_ptr<MeshTraining> made(new MeshTraining);
    made->options_ = options;
    made->mesh_ = TRY(Mesh::parse(options.mesh.axes));
    if (options.mesh.zero < 0 || options.mesh.zero > kMostZero)
        return Error(Code::E0501, "zero: expected a stage from 0 to {}, got {}", kMostZero, options.mesh.zero);
    made->parameters_ = parameters;
    made->model_ = &model;
    for (const TrainedTensor& t : tensors) {
        made->sizes_.push_back(t.initial.sizes());
        made->dtypes_.push_back(t.initial.dtype());
    }
    made->tensors_ = std::move(tensors);
    TRY(made->connect());
    return made;
}

Status MeshTraining::connect() {
    std::vector<std::unique_ptr<Transport>> transports;
    if (options_.mesh.mpi) {
        transports.push_back(TRY(mpi_transport(options_.mesh.patience)));
        if (transports[0]->ranks() != mesh_.ranks())
            return Error(Code::E0501, "the mesh {} has {} ranks, and {} processes were started",
                         shard::to_string(mesh_), mesh_.ranks(), transports[0]->ranks())
                .hint("start it with mpirun -n {}", mesh_.ranks());
    } else {
        transports = thread_transports(mesh_.ranks());
    }
    ranks_.resize(transports.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
        transports[r]->set_patience(options_.mesh.patience);
        ranks_[r].transport = std::move(transports[r]);
    }
    return {};
}

int64_t MeshTraining::rank() const { return ranks_[0].transport->rank(); }

Tensor MeshTraining::shape_of(size_t i) const { return Tensor::view(dtypes_[i], sizes_[i], nullptr, nullptr); }

void MeshTraining::stop(const Error& error) {
    if (options_.mesh.mpi) ranks_[0].transport->stop(error);
}

// A rank that fails tells the others, and threads can go on after that.
Status MeshTraining::on_ranks(const std::function<Status(size_t)>& f) {
    const auto told = [&](size_t r) {
        Status done = f(r);
        if (!done.ok()) ranks_[r].transport->stop(done.error());
        return done;
    };
    if (options_.mesh.mpi) return told(0);
    Status done = on_threads(ranks_.size(), told);
    if (!done.ok()) TRY(connect());
    return done;
}

// What the user annotated, the batch over the axis "data" where nothing else is said of it, and the tensors as they are
// divided already.
Result<Shardings> MeshTraining::annotated(const Graph& graph, const StepGraph& step, bool all) const {
    Shardings given = TRY(read_annotations(graph, mesh_, options_.mesh.shardings, all));
    std::vector<bool> is_batch(graph.inputs().size(), true);
    for (size_t i = 0; i < step.places.size(); ++i) {
        if (step.places[i].input < 0) continue;
        is_batch[size_t(step.places[i].input)] = false;
        if (!shardings_.empty()) given[graph.inputs()[size_t(step.places[i].input)].get()] = shardings_[i];
    }
    const auto axis = mesh_.find(kDataAxis);
    if (!axis) return given;
    std::optional<int64_t> examples;
    for (size_t i = 0; i < is_batch.size(); ++i) {
        const Value* v = graph.inputs()[i].get();
        const auto sizes = divisible_sizes(*v);
        if (!is_batch[i] || !sizes || sizes->empty()) continue;
        if (!examples) examples = (*sizes)[0];
        if (given.contains(v) || (*sizes)[0] != *examples) continue;
        Sharding s;
        s.dims.assign(sizes->size(), DimSharding{{}, true});
        s.dims[0] = {{*axis}, false};
        given.emplace(v, std::move(s));
    }
    return given;
}

// How tensors are divided, by propagation through a whole step.
Status MeshTraining::divide(const StepGraph& whole, const SymbolValues& sizes) {
    const auto graph = TRY(graph_to_shard(*whole.graph, sizes));
    const Shardings given = TRY(annotated(*graph, whole, true));
    const Propagated found = propagate(*graph, units_of(*graph), mesh_, given);
    std::vector<Sharding> shardings(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const int at = whole.places[i].input;
        const auto known = at < 0 ? found.values.end() : found.values.find(graph->inputs()[size_t(at)].get());
        if (known == found.values.end())
            shardings[i].dims.resize(sizes_[i].size());
        else
            shardings[i] = known->second;
    }
    if (options_.mesh.zero > 0) {
        const std::vector<size_t> axes = TRY(batch_axes(*graph, whole, found.values));
        for (size_t i = 0; i < tensors_.size(); ++i)
            if (zero_stage_of(tensors_[i], i < parameters_) <= options_.mesh.zero)
                divide_further(shardings[i], sizes_[i], axes, mesh_);
    }
    shardings_ = std::move(shardings);
    return take_parts();
}

Status MeshTraining::take_parts() {
    for (Rank& rank : ranks_) rank.parts.resize(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const Placement placement = place(sizes_[i], shardings_[i], mesh_);
        const bool zero = tensors_[i].constant.empty() && !given_;
        for (Rank& rank : ranks_) {
            const Box& box = placement[size_t(rank.transport->rank())];
            rank.parts[i] = zero ? TRY(Tensor::zeros(dtypes_[i], lengths(box)))
                                 : TRY(cut(tensors_[i].initial, whole_of(sizes_[i]), box));
        }
        const Tensor all = std::exchange(tensors_[i].initial, {});
        if (ranks_[0].parts[i].data() != all.data()) onnx::MappedFile::release_pages(all.data(), size_t(all.bytes()));
    }
    return {};
}

Result<MeshTraining::Program*> MeshTraining::program(const StepGraph& step, const SymbolValues& sizes) {
    auto& known = programs_[key_of(step, sizes)];
    if (known) return known.get();
    auto made = std::make_unique<Program>();
    const auto graph = TRY(graph_to_shard(*step.graph, sizes));
    PlanOptions options;
    for (const TensorPlace& p : step.places)
        if (p.input >= 0)
            options.kept.push_back({size_t(p.input), p.output < 0 ? std::nullopt : std::optional(size_t(p.output))});
    made->plan = TRY(make_plan(graph, mesh_, TRY(annotated(*graph, step, false)), options));
    CompileOptions compile = with_threads_of_rank(options_.compile, mesh_.ranks());
    compile.memory = memory_;
    SegmentCache segments;
    for (const Rank& rank : ranks_) {
        made->locals.push_back(TRY(local_program(*made->plan, rank.transport->rank())));
        SegmentCache* const shared = options_.mesh.mpi ? nullptr : &segments;
        made->segments.push_back(TRY(segments_of(made->locals.back(), compile, false, shared)));
    }
    if (options_.mesh.mpi) {  // the slowest has compiled
        ranks_[0].transport->set_patience(kSetupPatience);
        TRY(agree(*ranks_[0].transport, {}));
        ranks_[0].transport->set_patience(options_.mesh.patience);
    }
    known = std::move(made);
    return known.get();
}

Status MeshTraining::agree_once(const std::vector<Datum>& inputs, const StepGraph& step, const std::string& position) {
    if (agreed_ || !options_.mesh.mpi) return {};
    std::string annotations = fmt::format("zero {}", options_.mesh.zero), batch;
    for (const auto& [name, text] : options_.mesh.shardings) annotations += fmt::format(";{}={}", name, text);
    std::vector<bool> is_state(inputs.size());
    for (const TensorPlace& p : step.places)
        if (p.input >= 0) is_state[size_t(p.input)] = true;
    for (size_t i = 0; i < inputs.size(); ++i)
        if (!is_state[i] && inputs[i].is_tensor()) batch += fmt::format("{} ", inputs[i].tensor().content_hash());
    Transport& transport = *ranks_[0].transport;
    TRY(agree(transport, {{"build of Tessera", code_key({})},
                          {"mesh", shard::to_string(mesh_)},
                          {"model", sampled_key(*model_)},
                          {"annotations", annotations},
                          {"position in the run", position},
                          {"batch", batch}}));
    agreed_ = true;
    return {};
}

Result<std::vector<Datum>> MeshTraining::run(const StepGraph& step, const StepGraph& whole,
                                             const std::vector<Datum>& inputs, const std::string& position) {
    std::vector<std::vector<Datum>> outputs(ranks_.size());
    const auto prepare = [&]() -> Result<Program*> {
        TRY(agree_once(inputs, step, position));
        const std::vector<SizeSource> sources = size_sources(*step.graph);
        std::vector<int64_t> numbers;
        read_sizes(sources, inputs, numbers);
        const SymbolValues sizes = TRY(bind_sizes(sources, numbers));
        if (shardings_.empty()) TRY(divide(whole, sizes));
        return program(step, sizes);
    };
    auto prepared = prepare();
    if (!prepared.ok()) {
        stop(prepared.error());
        return prepared.error();
    }
    const Program& p = **prepared;
    TRY(on_ranks([&](size_t r) -> Status {
        Rank& rank = ranks_[r];
        std::vector<Datum> own = inputs;
        for (size_t i = 0; i < step.places.size(); ++i)
            if (const TensorPlace& at = step.places[i]; at.input >= 0) {
                own[size_t(at.input)] = rank.parts[i];
                // A step that fails ends the other processes: nobody reads the old value. Threads go on with it.
                if (options_.mesh.mpi && at.output >= 0) rank.parts[i] = {};
            }
        outputs[r] = TRY(run_local(*p.plan, p.locals[r], std::move(own), *rank.transport, p.segments[r]));
        return {};
    }));
    for (size_t r = 0; r < ranks_.size(); ++r)
        for (size_t i = 0; i < step.places.size(); ++i)
            if (const int at = step.places[i].output; at >= 0) {
                ranks_[r].parts[i] = outputs[r][size_t(at)].tensor();
                outputs[r][size_t(at)] = {};
            }
    return std::move(outputs[0]);
}

Result<std::vector<Tensor>> MeshTraining::gather(size_t first, size_t end, bool everywhere) {
    std::vector<Tensor> all(end - first);
    for (size_t i = first; i < end && shardings_.empty(); ++i) all[i - first] = tensors_[i].initial;
    if (shardings_.empty()) return all;
    TRY(on_ranks([&](size_t r) -> Status {
        Rank& rank = ranks_[r];
        const bool here = everywhere || rank.transport->rank() == 0;
        for (size_t i = first; i < end; ++i) {
            const Placement from = place(sizes_[i], shardings_[i], mesh_);
            Placement to = from;
            for (size_t k = 0; k < to.size(); ++k)
                if (k == 0 || (everywhere && options_.mesh.mpi)) to[k] = whole_of(sizes_[i]);
            auto moving =
                TRY(start_move(mesh_, from, to, "gather of " + tensors_[i].name, rank.parts[i], *rank.transport));
            Tensor whole = TRY(finish(moving, *rank.transport));
            if (here && r == 0) all[i - first] = std::move(whole);
        }
        return {};
    }));
    return all;
}

Status MeshTraining::set(const std::vector<Tensor>& values) {
    given_ = true;
    for (size_t i = 0; i < values.size(); ++i) tensors_[i].initial = values[i];
    return shardings_.empty() ? Status() : take_parts();
}

Status MeshTraining::on_first_rank(const std::function<Status()>& f) {
    if (!options_.mesh.mpi) return f();
    Transport& transport = *ranks_[0].transport;
    Status done = transport.rank() == 0 ? f() : Status();
    if (!done.ok()) {
        transport.stop(done.error());
        return done;
    }
    transport.set_patience(kSetupPatience);
    done = agree(transport, {});
    transport.set_patience(options_.mesh.patience);
    return done;
}

std::optional<TrainingMeshUse> MeshTraining::use() const {
    if (programs_.empty() || shardings_.empty()) return {};
    TrainingMeshUse use{.ranks = mesh_.ranks()};
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const bool weight = !tensors_[i].constant.empty();
        const int64_t part = most_bytes(place(sizes_[i], shardings_[i], mesh_), dtypes_[i]);
        const int64_t bytes = shape_of(i).bytes();
        (weight ? use.weight_bytes : use.state_bytes) += bytes;
        (weight ? use.rank_weight_bytes : use.rank_state_bytes) += part;
    }
    for (const auto& [key, program] : programs_) {
        int64_t collectives = 0, received = 0;
        for (const PlanStep& step : program->plan->steps)
            if (is_collective(*program->plan, step)) {
                ++collectives;
                received += received_bytes(*program->plan, step);
            }
        if (received < use.received_bytes) continue;
        use.collectives = collectives;
        use.received_bytes = received;
    }
    const Plan& plan = *programs_.begin()->second->plan;
    for (const auto& c : plan.graph->constants()) {  // those of the model: parameters that are not trained
        const Value* v = model_->find_value(c->name());
        const auto sizes = divisible_sizes(*c);
        if (!v || !v->is_constant() || !sizes) continue;
        use.weight_bytes += c->tensor()->bytes();
        use.rank_weight_bytes += most_bytes(place(*sizes, plan.shardings.at(c.get()), mesh_), c->tensor()->dtype());
    }
    return use;
}

}  // namespace tessera
