// tessera train: trains a model on arrays, with a checkpoint that an interrupted run goes on from.
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/output_file.h"
#include "help.h"
#include "loss_curve.h"
#include "shard_flags.h"
#include "training_data.h"

namespace tessera::cli {
namespace {

std::string loss_text(double loss) {
    return std::abs(loss) < 1e6 ? fmt::format("{:.4f}", loss) : fmt::format("{:.4g}", loss);
}

constexpr const char* kTrainExamples =
    "Examples:\n"
    "  tessera train model.onnx --data x.npy,labels.npy --epochs 3 --lr 3e-4 --out trained.onnx\n"
    "  tessera train model.onnx --data x.npy,labels.npy --checkpoint run.safetensors --resume\n"
    "      resumes an interrupted run; the losses are bitwise the same\n"
    "  tessera train model.onnx --data x.npy,y.npy --loss mse --optimizer sgd --momentum 0.9\n"
    "  mpirun -n 4 tessera train model.onnx --data x.npy,labels.npy --mesh data=4 --zero 3 --out trained.onnx\n";

struct EpochResult {
    double loss = 0;
    std::optional<double> evaluated, accuracy;
};

struct Train {
    std::string path, data, evaluate, out, checkpoint, svg, schedule = "constant", cache;
    TrainingOptions options;
    ShardFlags shards;
    std::optional<double> rate, momentum, weight_decay;
    int64_t epochs = 1, batch = 32, save_every = 0, warmup = 0;
    bool resume = false, no_shuffle = false, no_cache = false, json = false, nesterov = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()();

  private:
    Status choose_options();
    Status choose_mesh();
    bool first() const { return !options.mesh.mpi || rank_of_mpirun().value_or(0) == 0; }  // the only one that prints
    Status run(Training& training, const TrainingData& given, const std::optional<TrainingData>& held_out);
    double rate_at(int64_t update, int64_t updates) const;
    Result<EpochResult> evaluated(Training& training, const TrainingData& held_out) const;
    Status train(Training& training, const TrainingData& given, const std::optional<TrainingData>& held_out);
    Status save(const Training& training) const;
    Status restore(Training& training);
    Status show(const Training& training, double seconds) const;

    // Where the run is; a checkpoint keeps it.
    int64_t epoch_ = 0, next_ = 0, steps_ = 0;
    double epoch_loss_ = 0;
    LossCurve curve_;
    std::vector<EpochResult> results_;
    int64_t parameter_count_ = 0;
};

Status Train::choose_options() {
    Optimizer& o = options.optimizer;
    const Optimizer known[] = {Optimizer::sgd(1e-2), Optimizer::adam(), Optimizer::adamw(), Optimizer::adagrad(),
                               Optimizer::lion()};
    const std::string kind = o.kind;
    for (const Optimizer& k : known)
        if (k.kind == kind) o = k;
    o.learning_rate = rate.value_or(o.learning_rate);
    o.weight_decay = weight_decay.value_or(o.weight_decay);
    if ((momentum || nesterov) && kind != "sgd")
        return Error(Code::E0501, "--momentum and --nesterov are options of --optimizer sgd");
    o.momentum = momentum.value_or(0);
    o.nesterov = nesterov;
    if (resume && checkpoint.empty())
        return Error(Code::E0501, "--resume needs --checkpoint FILE, the file to resume from");
    if (out.empty() && checkpoint.empty())
        return Error(Code::E0501, "the run would save no result")
            .hint("name a file for the trained model with --out, or one with --checkpoint");
    if (!out.empty()) TRY(check_model_suffix(out));
    TRY(choose_mesh());
    if (no_cache)
        options.compile.cache = "";
    else if (!cache.empty())
        options.compile.cache = cache;
    return {};
}

Status Train::choose_mesh() {
    if (!shards.given() && (!shards.annotations.empty() || options.mesh.zero > 0))
        return Error(Code::E0501, "--shard and --zero divide tensors over a mesh, and there is none")
            .hint("add --mesh AXIS=SIZE");
    options.mesh.axes = shards.mesh;
    options.mesh.shardings = TRY(shards.chosen({})).annotations;
    options.mesh.mpi = shards.given() && rank_of_mpirun().has_value();
    return {};
}

double Train::rate_at(int64_t update, int64_t updates) const {
    const double peak = options.optimizer.learning_rate;
    if (update < warmup) return peak * double(update + 1) / double(warmup);
    if (schedule == "constant") return peak;
    const double done = double(update - warmup) / double(std::max<int64_t>(1, updates - warmup));
    return schedule == "linear" ? peak * (1 - done) : peak * 0.5 * (1 + std::cos(M_PI * done));
}

// How many rows have their largest logit at the label; nothing where the output is no matrix of logits.
std::optional<int64_t> right_rows(const Tensor& logits, const Tensor& labels) {
    if (logits.rank() != 2 || labels.elements() != logits.size(0)) return {};
    int64_t right = 0;
    for (int64_t i = 0; i < logits.size(0); ++i) {
        int64_t best = 0;
        for (int64_t c = 1; c < logits.size(1); ++c)
            if (logits.real_at(i * logits.size(1) + c) > logits.real_at(i * logits.size(1) + best)) best = c;
        right += best == labels.int_at(i);
    }
    return right;
}

Result<EpochResult> Train::evaluated(Training& training, const TrainingData& held_out) const {
    double loss = 0, right = 0;
    int64_t rows = 0;
    bool labels = options.loss.kind == "cross_entropy";
    const auto order = held_out.order({}, 0);
    for (int64_t k = 0; k < held_out.batches(batch); ++k) {
        NamedData given = TRY(held_out.batch(order, k, batch));
        const auto count = given.begin()->second.tensor().size(0);
        const auto found = TRY(training.evaluate(given));
        loss += found.loss * double(count);
        rows += count;
        auto hits = labels ? right_rows(found.outputs[0].tensor(), given.at("target").tensor()) : std::nullopt;
        labels = labels && hits;
        right += double(hits.value_or(0));
    }
    EpochResult result;
    result.evaluated = loss / double(rows);
    if (labels) result.accuracy = right / double(rows);
    return result;
}

Status Train::save(const Training& training) const {
    if (checkpoint.empty()) return {};
    std::string results;
    for (const EpochResult& r : results_)
        results += fmt::format("{:a} {:a} {:a} ", r.loss, r.evaluated.value_or(NAN), r.accuracy.value_or(NAN));
    return training.save(checkpoint, {{"epoch", std::to_string(epoch_)},
                                      {"next_batch", std::to_string(next_)},
                                      {"steps", std::to_string(steps_)},
                                      {"epoch_loss", fmt::format("{:a}", epoch_loss_)},
                                      {"curve", curve_.text()},
                                      {"epochs", results},
                                      {"batch", std::to_string(batch)}});
}

Status Train::restore(Training& training) {
    if (!resume || !std::filesystem::exists(checkpoint)) return {};
    auto extra = TRY(training.load(checkpoint));
    auto number = [&](const char* key, int64_t& into) {
        const std::string& t = extra[key];
        return std::from_chars(t.data(), t.data() + t.size(), into).ec == std::errc() && into >= 0;
    };
    int64_t size = 0;
    if (!number("epoch", epoch_) || !number("next_batch", next_) || !number("steps", steps_) ||
        !number("batch", size) || !curve_.read(extra["curve"]))
        return Error(Code::E0110, "\"{}\" was not saved by tessera train", checkpoint);
    if (size != batch)
        return Error(Code::E0501, "\"{}\" was saved with --batch {}, but this run has --batch {}", checkpoint, size,
                     batch);
    epoch_loss_ = std::strtod(extra["epoch_loss"].c_str(), nullptr);
    const char* at = extra["epochs"].c_str();
    auto next = [&at] {
        char* end = nullptr;
        const double v = std::strtod(at, &end);
        at = end;
        return v;
    };
    auto given = [](double v) { return std::isnan(v) ? std::nullopt : std::optional(v); };
    for (int64_t e = 0; e < epoch_; ++e) {
        EpochResult r{.loss = next()};
        r.evaluated = given(next());
        r.accuracy = given(next());
        results_.push_back(r);
    }
    return {};
}

Status Train::train(Training& training, const TrainingData& given, const std::optional<TrainingData>& held_out) {
    const int64_t per_epoch = given.batches(batch), updates = epochs * per_epoch / options.accumulate;
    for (; epoch_ < epochs; ++epoch_) {
        const auto order = given.order(no_shuffle ? std::nullopt : std::optional(options.seed), epoch_);
        auto line = std::make_unique<Progress>(first() ? progress : Progress::Mode::Never,
                                               "train");  // gone before a line is printed
        for (; next_ < per_epoch;) {
            if (interrupted()) {
                if (!options.mesh.mpi) TRY(save(training));  // which the other ranks would have to do as well
                return Error(Code::E0410, "interrupted in epoch {}, after step {}", epoch_ + 1, steps_)
                    .hint("{}", checkpoint.empty() ? "with --checkpoint, an interrupted run can be resumed"
                                                   : "--resume continues from here");
            }
            training.set_learning_rate(rate_at(training.updates(), updates));
            const TrainingReport report = TRY(training.step(TRY(given.batch(order, next_, batch))));
            if (!report.skipped) {
                curve_.add(report.loss);
                epoch_loss_ += report.loss;
            }
            ++next_;
            ++steps_;
            line->update(fmt::format("epoch {}/{}  loss {}", epoch_ + 1, epochs, loss_text(report.loss)),
                         size_t(epoch_ * per_epoch + next_), size_t(epochs * per_epoch));
            if (save_every > 0 && steps_ % save_every == 0) TRY(save(training));
        }
        line.reset();
        EpochResult result = held_out ? TRY(evaluated(training, *held_out)) : EpochResult();
        result.loss = epoch_loss_ / double(per_epoch);
        results_.push_back(result);
        std::string text = fmt::format("epoch {}/{}  loss {}", epoch_ + 1, epochs, loss_text(result.loss));
        if (result.evaluated) text += fmt::format("  held out {}", loss_text(*result.evaluated));
        if (result.accuracy) text += fmt::format("  accuracy {:.2f} %", 100 * *result.accuracy);
        if (!json && first()) fmt::print("{}\n", text);
        epoch_loss_ = 0;
        next_ = 0;
        if (epoch_ + 1 < epochs) {
            ++epoch_;
            TRY(save(training));
            --epoch_;
        }
    }
    return save(training);
}

Status Train::show(const Training& training, double seconds) const {
    const auto use = training.mesh_use();
    if (json) {
        Json j{{"model", path},
               {"parameters", parameter_count_},
               {"steps", steps_},
               {"updates", training.updates()},
               {"skipped", training.skipped()},
               {"seconds", seconds},
               {"epochs", Json::array()}};
        for (const EpochResult& r : results_) {
            Json e{{"loss", r.loss}};
            if (r.evaluated) e["held_out_loss"] = *r.evaluated;
            if (r.accuracy) e["accuracy"] = *r.accuracy;
            j["epochs"].push_back(std::move(e));
        }
        if (use)
            j["mesh"] = {{"axes", options.mesh.axes},         {"ranks", use->ranks},
                         {"weight_bytes", use->weight_bytes}, {"rank_weight_bytes", use->rank_weight_bytes},
                         {"state_bytes", use->state_bytes},   {"rank_state_bytes", use->rank_state_bytes},
                         {"collectives", use->collectives},   {"received_bytes", use->received_bytes}};
        j["losses"] = {{"steps_per_point", curve_.steps_per_point()}, {"points", curve_.points()}};
        for (auto [key, file] : {std::pair{"out", &out}, {"checkpoint", &checkpoint}, {"svg", &svg}})
            if (!file->empty()) j[key] = *file;
        print_json(j);
        return {};
    }
    constexpr size_t kPlotColumns = 72, kPlotRows = 8;
    fmt::print("{}", curve_.plot(kPlotColumns, kPlotRows));
    fmt::print("{} parameters, {} in {}", human_count(double(parameter_count_)), plural(double(steps_), "step"),
               human_seconds(seconds));
    if (training.skipped()) fmt::print(", {} skipped", training.skipped());
    fmt::print("\n");
    if (use)
        fmt::print(
            "mesh {}: a rank keeps {} of {} of weights and {} of {} of optimizer state, and receives {} in {} of a "
            "step\n",
            options.mesh.axes, human_bytes(double(use->rank_weight_bytes)), human_bytes(double(use->weight_bytes)),
            human_bytes(double(use->rank_state_bytes)), human_bytes(double(use->state_bytes)),
            human_bytes(double(use->received_bytes)), plural(double(use->collectives), "collective"));
    if (!out.empty()) fmt::print("written to {}\n", out);
    return {};
}

Status Train::operator()() {
    TRY(choose_options());
    Model model = TRY(load_model(path));
    Training training = TRY(Training::create(model, options));
    const TrainingData given = TRY(TrainingData::read(data, training.inputs()));
    TRY(given.check_batch(batch));
    std::optional<TrainingData> held_out;
    if (!evaluate.empty()) held_out = TRY(TrainingData::read(evaluate, training.inputs()));
    if (held_out) TRY(held_out->check_batch(batch));
    for (const auto& [name, tensor] : TRY(training.parameters())) parameter_count_ += tensor.elements();
    Status done = run(training, given, held_out);
    if (!done.ok()) training.stop(done.error());
    return done;
}

Status Train::run(Training& training, const TrainingData& given, const std::optional<TrainingData>& held_out) {
    TRY(restore(training));
    Stopwatch watch;
    TRY(train(training, given, held_out));
    const double seconds = watch.seconds();
    if (!out.empty()) {
        const Model trained = TRY(training.trained());
        if (first()) TRY(trained.save(out));
    }
    if (!first()) return {};
    if (!svg.empty()) TRY(write_file(svg, curve_.svg()));
    return show(training, seconds);
}

}  // namespace

void add_train(CLI::App& app, Chosen& chosen) {
    auto run = std::make_shared<Train>();
    CLI::App* c = app.add_subcommand("train", "Train a model on arrays");
    c->add_option("model", run->path, "ONNX file, or Tessera's text form")->option_text("FILE")->required();
    c->add_option(
         "--data", run->data,
         "Arrays for the model's inputs and the target, in order, or NAME=FILE; the first dimension counts examples")
        ->option_text("X.npy,Y.npy")
        ->required();
    c->add_option("--evaluate", run->evaluate, "Held-out examples, evaluated after each epoch")
        ->option_text("X.npy,Y.npy");
    c->add_option("--epochs", run->epochs, "Passes over the data (1)")->option_text("N")->check(at_least(1));
    c->add_option("--batch", run->batch, "Examples per step (32)")->option_text("N")->check(at_least(1));
    c->add_option(
         "--loss", run->options.loss.kind,
         "cross_entropy (logits and integer labels), mse, l1, bce_with_logits, or output: the model's own scalar")
        ->option_text("LOSS");
    c->add_option("--ignore-index", run->options.loss.ignore_index, "Label that cross_entropy ignores (-100)")
        ->option_text("N");
    c->add_option("--class-axis", run->options.loss.class_axis, "Class dimension of the logits (1)")->option_text("N");
    c->add_option("--label-smoothing", run->options.loss.label_smoothing,
                  "Smoothing of the labels of cross_entropy (0)")
        ->option_text("S");
    run->options.optimizer.kind = "adamw";
    c->add_option("--optimizer", run->options.optimizer.kind, "sgd, adam, adamw, adagrad or lion (adamw)")
        ->option_text("NAME");
    c->add_option("--lr", run->rate, "Learning rate (the optimizer's default)")->option_text("RATE");
    c->add_option("--schedule", run->schedule, "Learning-rate schedule: constant, linear or cosine, to zero at the end")
        ->option_text("NAME")
        ->check(CLI::IsMember({"constant", "linear", "cosine"}));
    c->add_option("--warmup", run->warmup, "Updates over which the learning rate rises from zero (0)")
        ->option_text("N")
        ->check(at_least(0));
    c->add_option("--momentum", run->momentum, "Momentum of sgd (0)")->option_text("M");
    c->add_flag("--nesterov", run->nesterov, "Use Nesterov momentum");
    c->add_option("--weight-decay", run->weight_decay, "Weight decay (adamw: 0.01, others: 0)")->option_text("W");
    c->add_option("--clip-norm", run->options.clip_norm, "Maximum global gradient norm")->option_text("NORM");
    c->add_option("--accumulate", run->options.accumulate,
                  "Number of steps whose gradients are averaged for one update (1)")
        ->option_text("N")
        ->check(at_least(1));
    c->add_option("--parameters", run->options.parameters, "Patterns of initializers to train (all float ones)")
        ->option_text("PATTERN ...")
        ->allow_extra_args(false);
    c->add_option("--frozen", run->options.frozen, "Patterns of initializers to freeze")
        ->option_text("PATTERN ...")
        ->allow_extra_args(false);
    c->add_option("--precision", run->options.precision,
                  "Element type of products: f32, bf16 or f16 (f32); parameters are not converted")
        ->option_text("TYPE");
    c->add_option("--seed", run->options.seed, "Seed for the order of examples and for dropout (0)")->option_text("N");
    c->add_flag("--no-shuffle", run->no_shuffle, "Use the examples in the order of the files");
    c->add_option("--checkpoint", run->checkpoint, "Save the run to this file after each epoch (safetensors)")
        ->option_text("FILE");
    c->add_option("--save-every", run->save_every, "Also save after every N steps")
        ->option_text("N")
        ->check(at_least(1));
    c->add_flag("--resume", run->resume, "Resume from the checkpoint if it exists");
    c->add_option("--out,-o", run->out, "Write the trained model to this file")->option_text("FILE");
    c->add_option("--svg", run->svg, "Write a plot of the losses (SVG)")->option_text("FILE");
    c->add_option("--threads", run->options.compile.threads, "Maximum number of threads (one for each core)")
        ->option_text("N")
        ->check(between(1, 4096));
    c->add_option("--target", run->options.compile.target, "Device to train on, such as cuda (host)")
        ->option_text("TARGET");
    run->shards.add_options(*c, "--shard");
    c->add_option(
         "--zero", run->options.mesh.zero,
         "Divide over the ranks of the batch: 1 optimizer state, 2 also accumulated gradients, 3 also parameters")
        ->option_text("STAGE")
        ->check(between(0, 3));
    c->add_option("--patience", run->options.mesh.patience, "Seconds to wait for another rank in a collective (6)")
        ->option_text("SECONDS")
        ->check(CLI::PositiveNumber);
    c->add_option("--cache-dir", run->cache, "Folder of the code cache")->option_text("DIR");
    c->add_flag("--no-cache", run->no_cache, "Disable the code cache");
    add_strict_option(*c);
    c->add_flag("--json", run->json, "Print JSON");
    add_progress_option(*c, run->progress);
    c->footer(fmt::format("{}\n{}", kTrainExamples, kExitStatus));
    c->callback([run, &chosen] { chosen = [run] { return report((*run)(), run->json); }; });
}

}  // namespace tessera::cli
