// Training as users see it: steps over memory of its own, saved and resumed.
#include "tessera/training.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <mutex>

#include "api/mesh/mesh_training.h"
#include "api/training_memory.h"
#include "backends/backend.h"
#include "base/protect.h"
#include "base/random.h"
#include "graph/text/print.h"
#include "rewrite/passes/optimize.h"
#include "runtime/bind_sizes.h"
#include "train/safetensors.h"
#include "train/training_graph.h"

namespace tessera {
namespace {

constexpr double kFirstScale = 65536, kMostScale = 0x1p40;
constexpr int64_t kCleanSteps = 2000;  // before the scale doubles
constexpr const char* kFormat = "tessera.training";

// One of the step's graphs, compiled, and what it takes and gives.
struct CompiledStep {
    StepGraph step;
    std::optional<Executable> executable;
    std::vector<Datum> inputs;           // those that stay are there
    std::vector<const Tensor*> outputs;  // by output: where it is left; null: anywhere
};

Result<Tensor> as_labels(const Tensor& given, int64_t classes, int64_t ignored) {
    Tensor labels = given;
    if (given.dtype() != DType::i64 && is_int(given.dtype())) {
        labels = TRY(Tensor::zeros(DType::i64, given.sizes()));
        for (int64_t i = 0; i < given.elements(); ++i) labels.set_int(i, given.int_at(i));
    }
    if (labels.dtype() != DType::i64) return labels;  // the run says what is wrong
    const auto all = labels.as<int64_t>();
    for (size_t i = 0; i < all.size(); ++i)
        if ((all[i] < 0 || all[i] >= classes) && all[i] != ignored)
            return Error(Code::E0406, "label {} of \"target\" is {}: there are {} classes, from 0 to {}", i, all[i],
                         classes, classes - 1)
                .hint("rows to be left out have the label {} (ignore_index)", ignored);
    return labels;
}

Result<Tensor> copy_of(const Tensor& t) {
    Tensor own = TRY(Tensor::zeros(t.dtype(), t.sizes()));
    if (t.bytes()) std::memcpy(own.mutable_data(), t.data(), size_t(t.bytes()));
    return own;
}

std::string exact(double v) { return fmt::format("{:a}", v); }

}  // namespace

struct Training::State {
    explicit State(const Model& m) : model(m) {}

    Model model;
    TrainingOptions options;
    std::vector<TrainedTensor> tensors;
    size_t parameter_count = 0;
    TrainingMemory memory;
    std::unique_ptr<MeshTraining> mesh;  // instead of memory
    CompiledStep whole, accumulate, evaluate;
    int64_t classes = 0;  // of labels; 0: there are none
    std::vector<Port> ports;
    std::mutex mutex;

    // What a file keeps besides tensors.
    double rate = 0, scale = 1;
    int64_t updates = 0, skipped = 0, clean = 0, calls = 0, pending = 0;

    NamedTensorList named(size_t first, std::span<const Tensor> values) const {
        NamedTensorList list;
        for (size_t i = 0; i < values.size(); ++i) list.emplace_back(tensors[first + i].name, values[i]);
        return list;
    }
    // How many tensors users know of: narrow copies come after them.
    size_t own_count() const {
        return size_t(std::find_if(tensors.begin(), tensors.end(), [](const auto& t) { return t.copy_of; }) -
                      tensors.begin());
    }
    bool scaled() const { return whole.step.scale >= 0; }

    Status compile_step(CompiledStep& c) {
        if (c.executable || !c.inputs.empty() || !c.step.graph) return {};
        if (!mesh) c.executable = TRY(compile(Model(c.step.graph), options.compile));
        c.inputs.resize(c.step.graph->inputs().size());
        c.outputs.assign(c.step.graph->outputs().size(), nullptr);
        for (size_t i = 0; i < c.step.places.size(); ++i) {
            const TensorPlace& p = c.step.places[i];
            if (p.input >= 0) c.inputs[size_t(p.input)] = mesh ? mesh->shape_of(i) : memory.placed(i);
            if (p.output >= 0 && !mesh) c.outputs[size_t(p.output)] = &memory.placed(i);
        }
        return {};
    }

    // The batch and the numbers of this step among the inputs of a program.
    Status bind(CompiledStep& c, const NamedData& batch) {
        size_t used = 0;
        for (size_t i = 0; i < ports.size(); ++i) {
            const auto given = batch.find(ports[i].name);
            used += given != batch.end();
            const bool target = int(i) == target_port();
            const size_t at = target ? size_t(c.step.target) : i;
            if (given == batch.end()) {
                const auto& fallback = c.step.graph->inputs()[at]->tensor();
                if (!fallback) return Error(Code::E0402, "\"{}\" is not given", ports[i].name);
                c.inputs[at] = *fallback;
            } else {
                c.inputs[at] = given->second;
                if (target && classes && given->second.is_tensor() && given->second.tensor().gpu() == kNoGpu)
                    c.inputs[at] = TRY(as_labels(given->second.tensor(), classes, options.loss.ignore_index));
            }
        }
        for (const auto& [name, value] : batch)
            if (used < batch.size() &&
                std::none_of(ports.begin(), ports.end(), [&, &n = name](const Port& p) { return p.name == n; }))
                return Error(Code::E0401, "a training step has no input \"{}\"", name);
        for (const auto& [number, place] : c.step.numbers)
            c.inputs[place] = Tensor::scalar(value_of(number, options.optimizer, rate, updates + 1));
        if (c.step.scale >= 0) c.inputs[size_t(c.step.scale)] = Tensor::scalar(float(scale));
        if (c.step.keep >= 0) c.inputs[size_t(c.step.keep)] = Tensor::scalar(pending > 0);
        if (c.step.seed >= 0) c.inputs[size_t(c.step.seed)] = Tensor::scalar(int64_t(random() >> 1));
        return check_batch(c);
    }
    // An executable goes on by the sizes that are there, and a target of one row would be broadcast to all.
    static Status check_batch(const CompiledStep& c) {
        const auto& declared = c.step.graph->inputs();
        for (size_t i = 0; i < declared.size(); ++i)
            if (!c.inputs[i].is_tensor() || !declared[i]->type().is_tensor() ||
                c.inputs[i].tensor().rank() != declared[i]->type().tensor().rank())
                return {};  // the run says so
        const std::vector<SizeSource> sources = size_sources(*c.step.graph);
        std::vector<int64_t> sizes;
        read_sizes(sources, c.inputs, sizes);
        auto bound = bind_sizes(sources, sizes);
        if (bound.ok()) return {};
        return std::move(bound).error().hint("a batch has one target for each of its examples");
    }
    int target_port() const { return whole.step.target >= 0 ? int(ports.size()) - 1 : -1; }
    uint64_t random() const { return RandomStream(options.seed, "training").bits(uint64_t(calls)); }

    Result<std::vector<Datum>> run(CompiledStep& c) {
        if (mesh) return mesh->run(c.step, whole.step, c.inputs, position());
        RunOptions run;
        run.seed = random();
        run.place = [&c](size_t k, DType, const Sizes&) -> Result<std::optional<Tensor>> {
            return c.outputs[k] ? std::optional(*c.outputs[k]) : std::nullopt;
        };
        TRY(memory.before_run());
        auto results = c.executable->run_in_order(c.inputs, run);
        Status kept = memory.after_run();
        if (results.ok() && !kept.ok()) return std::move(kept.error());  // what the run says comes first
        return results;
    }

    Result<TrainingReport> step(const NamedData& batch) {
        const bool updates_now = pending + 1 >= options.accumulate;
        CompiledStep& c = updates_now ? whole : accumulate;
        TRY(compile_step(c));
        TRY(bind(c, batch));
        const std::vector<Datum> out = TRY(run(c));
        ++calls;
        TrainingReport report;
        auto number = [&](int k) { return out[size_t(k)].tensor().real_at(0); };
        report.loss = number(c.step.loss);
        if (c.step.norm >= 0) report.gradient_norm = number(c.step.norm);
        const bool finite = out[size_t(c.step.finite)].tensor().int_at(0) != 0;
        if (!finite && !scaled())
            return Error(Code::E0407, "the loss of step {} is {}", calls, std::isnan(report.loss) ? NAN : report.loss)
                .note("the parameters are as they were before this step")
                .hint("lower the learning rate, clip gradients, or look for values in the batch that are not finite");
        report.skipped = !finite;
        report.updated = finite && updates_now;
        if (finite) pending = updates_now ? 0 : pending + 1;
        updates += report.updated;
        skipped += report.skipped;
        if (scaled() && options.loss_scale == 0) follow_scale(finite);
        return report;
    }

    // Tensors with their current values: to read, or lent to a caller; of a mesh, from all ranks.
    Result<std::vector<Tensor>> current(size_t first, size_t end, bool lend) {
        if (mesh) {
            std::vector<Tensor> all = TRY(mesh->gather(first, end, true));
            for (Tensor& t : all)
                if (lend) t = TRY(copy_of(t));  // what steps read is the ranks' own
            return all;
        }
        const auto here = TRY(lend ? memory.lend(first, end) : memory.read(first, end));
        return std::vector<Tensor>(here.begin(), here.end());
    }

    void follow_scale(bool finite) {
        clean = finite ? clean + 1 : 0;
        if (!finite) scale = std::max(scale / 2, 1.0);
        if (clean == kCleanSteps) {
            scale = std::min(scale * 2, kMostScale);
            clean = 0;
        }
    }

    std::string position() const {
        std::string text;
        for (const auto& [key, value] : counts()) text += key + "=" + value + " ";
        return text;
    }
    std::map<std::string, std::string> counts() const {
        return {{"format", kFormat},
                {"optimizer", options.optimizer.kind},
                {"learning_rate", exact(rate)},
                {"loss_scale", exact(scale)},
                {"updates", std::to_string(updates)},
                {"skipped", std::to_string(skipped)},
                {"clean_steps", std::to_string(clean)},
                {"calls", std::to_string(calls)},
                {"pending", std::to_string(pending)},
                {"seed", std::to_string(options.seed)}};
    }
};

Optimizer Optimizer::sgd(double learning_rate, double momentum, bool nesterov, double weight_decay) {
    return {.kind = "sgd",
            .learning_rate = learning_rate,
            .momentum = momentum,
            .nesterov = nesterov,
            .weight_decay = weight_decay};
}
Optimizer Optimizer::adam(double learning_rate, double weight_decay) {
    return {.kind = "adam", .learning_rate = learning_rate, .weight_decay = weight_decay};
}
Optimizer Optimizer::adamw(double learning_rate, double weight_decay) {
    return {.kind = "adamw", .learning_rate = learning_rate, .weight_decay = weight_decay};
}
Optimizer Optimizer::adagrad(double learning_rate, double weight_decay) {
    return {.kind = "adagrad", .learning_rate = learning_rate, .epsilon = 1e-10, .weight_decay = weight_decay};
}
Optimizer Optimizer::lion(double learning_rate, double weight_decay) {
    return {.kind = "lion", .learning_rate = learning_rate, .beta2 = 0.99, .weight_decay = weight_decay};
}

Result<Training> Training::create(const Model& model, const TrainingOptions& options) {
    return protect("training", {.text = [&] { return model.to_text(); }}, [&]() -> Result<Training> {
        const Backend& backend = *TRY(find_backend(options.compile.target));
        const auto recognise = [](Graph& graph) { return recognise_ops(graph); };
        TrainingPlan plan = TRY(plan_training(model.graph(), options, backend.shares_memory(), recognise));
        auto state = std::make_shared<State>(model);
        State& s = *state;
        s.options = options;
        if (!s.options.compile.memory) s.options.compile.memory = make_run_memory();
        s.rate = options.optimizer.learning_rate;
        s.parameter_count = plan.parameters;
        if (!options.mesh.axes.empty()) {
            if (!backend.shares_memory())
                return Error(Code::E0501, "meshes are of CPUs, and the target is {}", options.compile.target);
            s.mesh = TRY(MeshTraining::make(options, plan.tensors, plan.parameters, s.model.graph()));
        }
        std::vector<Tensor> initial;
        std::vector<std::optional<size_t>> copies;
        for (TrainedTensor& t : plan.tensors) {
            initial.push_back(std::move(t.initial));
            copies.push_back(t.copy_of);
        }
        if (!s.mesh) s.memory = TRY(TrainingMemory::make(std::move(initial), copies, options.compile.target));
        s.tensors = std::move(plan.tensors);
        s.whole.step = std::move(plan.whole);
        s.accumulate.step = std::move(plan.accumulate);
        s.evaluate.step = std::move(plan.evaluate);
        s.classes = plan.classes;
        s.ports = model.inputs();
        if (s.whole.step.target >= 0) {
            Port port = Model(s.whole.step.graph).inputs()[size_t(s.whole.step.target)];
            port.name = "target";
            s.ports.push_back(std::move(port));
        }
        if (s.scaled()) s.scale = options.loss_scale > 0 ? options.loss_scale : kFirstScale;
        TRY(s.compile_step(s.whole));
        return Training(std::move(state));
    });
}

std::vector<Port> Training::inputs() const { return state_->ports; }

Result<TrainingReport> Training::step(const NamedData& batch) {
    const std::lock_guard lock(state_->mutex);
    return protect("training step", {.text = [&] { return state_->model.to_text(); }},
                   [&] { return state_->step(batch); });
}

Result<Training::Evaluation> Training::evaluate(const NamedData& batch) {
    const std::lock_guard lock(state_->mutex);
    return protect("evaluation", {.text = [&] { return state_->model.to_text(); }}, [&]() -> Result<Evaluation> {
        CompiledStep& c = state_->evaluate;
        TRY(state_->compile_step(c));
        TRY(state_->bind(c, batch));
        Evaluation made{.loss = 0, .outputs = TRY(state_->run(c))};
        made.loss = made.outputs[size_t(c.step.loss)].tensor().real_at(0);
        made.outputs.resize(size_t(c.step.loss));
        return made;
    });
}

double Training::learning_rate() const { return state_->rate; }
void Training::set_learning_rate(double rate) { state_->rate = rate; }
int64_t Training::updates() const { return state_->updates; }
int64_t Training::skipped() const { return state_->skipped; }
double Training::loss_scale() const { return state_->scale; }
Result<NamedTensorList> Training::parameters() const {
    const std::lock_guard lock(state_->mutex);
    return state_->named(0, TRY(state_->current(0, state_->parameter_count, true)));
}
Result<NamedTensorList> Training::state() const {
    const std::lock_guard lock(state_->mutex);
    const size_t first = state_->parameter_count;
    return state_->named(first, TRY(state_->current(first, state_->own_count(), true)));
}
const CompileReport& Training::report() const { return state_->whole.executable->report(); }
const Executable& Training::executable() const { return *state_->whole.executable; }
std::optional<TrainingMeshUse> Training::mesh_use() const { return state_->mesh ? state_->mesh->use() : std::nullopt; }
void Training::stop(const Error& error) {
    if (state_->mesh) state_->mesh->stop(error);
}

Status Training::save(const std::string& path, const std::map<std::string, std::string>& extra) const {
    const std::lock_guard lock(state_->mutex);
    State& s = *state_;
    NamedTensors all{{}, s.counts()};
    for (const auto& [key, value] : extra) all.metadata["user." + key] = value;
    const auto tensors =
        s.mesh ? TRY(s.mesh->gather(0, s.own_count(), false)) : TRY(s.current(0, s.own_count(), false));
    all.tensors = s.named(0, tensors);
    const auto write = [&] { return write_safetensors(all, path); };
    return s.mesh ? s.mesh->on_first_rank(write) : write();
}

Result<std::map<std::string, std::string>> Training::load(const std::string& path) {
    const std::lock_guard lock(state_->mutex);
    State& s = *state_;
    NamedTensors file = TRY(read_safetensors(path));
    auto misfit = [&](const std::string& what) {
        return Error(Code::E0110, "\"{}\" does not fit this training: {}", path, what)
            .hint("it must be saved with the same model, parameters and optimizer");
    };
    auto text = [&](const char* key) { return file.metadata.contains(key) ? file.metadata.at(key) : std::string(); };
    if (text("format") != kFormat) return misfit("it was not saved by one");
    if (text("optimizer") != s.options.optimizer.kind)
        return misfit(fmt::format("it is of {}, this is {}", text("optimizer"), s.options.optimizer.kind));
    std::vector<const Tensor*> found;
    for (size_t i = 0; i < s.own_count(); ++i) {
        const Tensor own = s.mesh ? s.mesh->shape_of(i) : s.memory.placed(i);
        const std::string& name = s.tensors[i].name;
        auto at =
            std::find_if(file.tensors.begin(), file.tensors.end(), [&](const auto& t) { return t.first == name; });
        if (at == file.tensors.end()) return misfit(fmt::format("it has no \"{}\"", name));
        const Tensor& t = at->second;
        if (t.dtype() != own.dtype() || t.sizes() != own.sizes())
            return misfit(fmt::format("\"{}\" is {}{} there and {}{} here", name, dtype_name(t.dtype()),
                                      to_string(t.sizes()), dtype_name(own.dtype()), to_string(own.sizes())));
        found.push_back(&t);
    }
    if (file.tensors.size() != found.size())
        return misfit(fmt::format("it has {} tensors, this has {}", file.tensors.size(), found.size()));
    std::map<std::string, int64_t> whole;
    for (const char* key : {"updates", "skipped", "clean_steps", "calls", "pending"}) {
        const std::string digits = text(key);
        const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), whole[key]);
        if (read.ec != std::errc() || digits.empty() || whole[key] < 0)
            return misfit(fmt::format("its \"{}\" is no number", key));
    }
    uint64_t seed = 0;
    const std::string digits = text("seed");
    std::from_chars(digits.data(), digits.data() + digits.size(), seed);
    if (s.mesh) {
        std::vector<Tensor> values;
        for (const Tensor* t : found) values.push_back(*t);
        TRY(s.mesh->set(values));
    }
    for (size_t i = 0; i < found.size() && !s.mesh; ++i) TRY(s.memory.set(i, *found[i]));
    s.rate = std::strtod(text("learning_rate").c_str(), nullptr);
    s.scale = std::strtod(text("loss_scale").c_str(), nullptr);
    s.updates = whole["updates"], s.skipped = whole["skipped"], s.clean = whole["clean_steps"];
    s.calls = whole["calls"], s.pending = whole["pending"], s.options.seed = seed;
    std::map<std::string, std::string> extra;
    for (const auto& [key, value] : file.metadata)
        if (key.starts_with("user.")) extra[key.substr(5)] = value;
    return extra;
}

Result<Model> Training::trained() const {
    const std::lock_guard lock(state_->mutex);
    const auto& tensors = state_->tensors;  // those of the model come first
    const auto end = std::find_if(tensors.begin(), tensors.end(), [](const auto& t) { return t.constant.empty(); });
    const std::vector<Tensor> here = TRY(state_->current(0, size_t(end - tensors.begin()), false));
    std::vector<Tensor> now;
    for (const Tensor& t : here) now.push_back(state_->mesh ? t : TRY(copy_of(t)));
    return Model(with_tensors(state_->model.graph(), state_->tensors, now));
}

}  // namespace tessera
