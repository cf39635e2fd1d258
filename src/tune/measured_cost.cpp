#include "tune/measured_cost.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>

#include "backends/backend.h"
#include "base/cancel_scope.h"
#include "base/clock.h"
#include "base/in_parallel.h"
#include "base/usable_cores.h"
#include "llvm/compile_kernels.h"
#include "rewrite/edit.h"
#include "rewrite/passes/optimize.h"
#include "runtime/code_cache.h"
#include "runtime/target_key.h"
#include "tune/cancel_at.h"
#include "tune/standalone.h"

namespace tessera {
namespace {

constexpr double kClearlyWorse = 1.3;  // than another node of the class
constexpr double kTooLarge = 10;       // times the estimate, for what the device has no memory for, or refuses
constexpr double kPatience = 4;        // seconds for each second of processor time, where others use the machine
constexpr size_t kBatch = 8;           // kernels for each core that code is generated for at once
constexpr size_t kDeviceBatch = 2;     // of a GPU's, which its driver assembles too
constexpr size_t kKernels = 2;         // that a node is made of, about
constexpr int kLowered = 8;            // nodes that are lowered at once: each may need memory for its weights
constexpr double kNotMeasured =
    1.6;  // times the least estimate of a class: on a GPU, whose convolutions have good ones
// Of what a GPU reaches at best. What is not measured is scaled by what is.
constexpr double kOfFlops = 0.5, kOfMapFlops = 0.125, kOfBandwidth = 0.75, kOfLaunch = 0.4;

double number(const Expr& e) { return double(e.as_int().value_or(1)); }

}  // namespace

// Machine code of kernels, by key.
struct MeasuredCost::Code {
    std::map<std::string, size_t> place;
    std::shared_ptr<CompiledModule> module;
};

// Counts the time for as long as it lives.
class MeasuredCost::Spending {
  public:
    explicit Spending(MeasuredCost& cost) : cost_(cost) {}
    ~Spending() {
        cost_.spent_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
        cost_.processor_ += processor_seconds() - processor_;
    }

  private:
    MeasuredCost& cost_;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    double processor_ = processor_seconds();
};

Speeds speeds_of(const Device& device) {
    if (device.shares_memory()) return {};
    auto machine = describe_target(device.target());
    if (!machine.ok()) return {};
    return {kOfFlops * machine->flops, kOfMapFlops * machine->flops, kOfBandwidth * machine->bandwidth,
            kOfLaunch * machine->launch, *machine};
}

MeasuredCost::MeasuredCost(const MeasureOptions& options, Device& device, LowerOptions lower)
    : options_(options),
      device_(device),
      lower_(std::move(lower)),
      speeds_(speeds_of(device)),
      most_bytes_(options.most_bytes.value_or(most_timed_bytes(device))),
      estimate_(estimated_cost(speeds_, options.fused)) {}

Result<std::unique_ptr<MeasuredCost>> MeasuredCost::open(const MeasureOptions& given) {
    MeasureOptions options = given;
    Device& device = *TRY(device_for(options.target));
    if (!device.shares_memory()) options.target = device.target();
    const CodeCache cache = TRY(CodeCache::open(options.cache));
    LowerOptions lower;
    const Backend& backend = *TRY(find_backend(options.target));
    lower.machine = TRY(backend.machine(options.target));
    lower.scheduling = &backend.scheduling();
    lower.threads = 1;
    lower.strict = options.precision == Precision::Strict;
    lower.fast = options.precision == Precision::Fast;
    std::unique_ptr<MeasuredCost> made(new MeasuredCost(options, device, std::move(lower)));
    made->timer_ = TRY(KernelTimer::make(device));
    if (!cache.enabled()) return made;
    made->file_ = (cache.folder() / fmt::format("costs-{}.txt", code_key(made->key_parts()))).string();
    std::ifstream in(made->file_);
    for (std::string line; std::getline(in, line);) {
        size_t tab = line.find('\t');
        char* end = nullptr;
        double seconds = std::strtod(line.c_str(), &end);
        if (tab != std::string::npos && end == line.c_str() + tab && seconds > 0)
            made->known_[line.substr(tab + 1)] = seconds;
    }
    return made;
}

MeasuredCost::~MeasuredCost() { save(); }

std::vector<std::string> MeasuredCost::key_parts() const {
    std::vector<std::string> parts = machine_parts(codegen());
    parts.push_back(fmt::format("{} {} {}", device_.name(), device_.target(), device_.version()));
    parts.push_back(fmt::format("costs {} {}", name_of(options_.precision), options_.fused ? "fused" : "alone"));
    return parts;
}

void MeasuredCost::save() {
    if (file_.empty() || fresh_.empty()) return;
    std::ofstream out(file_, std::ios::app);
    for (const std::string& key : fresh_) out << fmt::format("{:.9e}\t{}\n", known_[key], key);
    fresh_.clear();
}

void MeasuredCost::remember(const std::string& key, double seconds) {
    known_[key] = seconds;
    if (!keep_ || !failed_.ok()) return;  // the device may take another time what it refused
    fresh_.push_back(key);
    recent_.insert(key);
}

void MeasuredCost::forget(const Parts& parts) {
    for (const Part& part : parts.kernels)
        if (!recent_.contains(part.key)) known_.erase(part.key);
}

bool MeasuredCost::over(const std::optional<Deadline>& until) const {
    if (options_.cancel && *options_.cancel) return true;
    if (until) return until->passed();
    if (!device_.shares_memory()) return spent_ > options_.budget;
    return processor_ > options_.budget || spent_ > kPatience * options_.budget;
}

void MeasuredCost::stop_at(const Deadline& nodes, const Deadline& groups) {
    nodes_until_ = nodes;
    groups_until_ = groups;
}

void MeasuredCost::allow(const Deadline& nodes, const Deadline& groups) {
    stop_at(nodes, groups);
    again_ = true;
    recent_.clear();
}

double MeasuredCost::scaled(double estimate) const {
    const double estimated = of_bytes_.estimated + of_operations_.estimated;
    return estimated > 0 ? estimate * (of_bytes_.clocked + of_operations_.clocked) / estimated : estimate;
}

double MeasuredCost::scaled(const Part& part) const {
    const Sum& like = part.of_bytes ? of_bytes_ : of_operations_;
    return like.estimated > 0 ? part.guess * like.clocked / like.estimated : scaled(part.guess);
}

bool MeasuredCost::keeps_estimate(const Node& node, double estimate) const {
    if (estimate < options_.least || has_nested(node)) return true;
    const Work work = work_of(node);
    return options_.fused && (work == Work::View || work == Work::Map);
}

std::optional<MeasuredCost::Parts> MeasuredCost::parts_of(const Graph& graph, bool with_neighbours) const {
    std::shared_ptr<Graph> ready = graph.clone();
    if (!optimize(*ready, {.precision = options_.precision, .last_phase = Phase::Rewrite}).ok()) return {};
    auto program = from_graph(ready, lower_);
    if (!program.ok()) return {};
    auto neighbour = [](const Node* n) { return n->name() == kNeighbour; };
    Parts parts;
    for (const Step& step : program->steps) {
        if (std::holds_alternative<HostStep>(step) || std::holds_alternative<ControlStep>(step)) {
            const std::lock_guard<std::mutex> one(estimating_);
            parts.rest += estimate_->node(*node_of(step));
            continue;
        }
        if (!std::holds_alternative<KernelStep>(step)) continue;
        const auto& kernel = std::get<KernelStep>(step);
        if (with_neighbours && !kernel.nodes.empty() &&
            std::all_of(kernel.nodes.begin(), kernel.nodes.end(), neighbour))
            continue;
        const double operations = number(kernel.flops) / speeds_.flops, bytes = number(kernel.bytes) / speeds_.bytes;
        std::optional<KernelCall> call = call_of(*program, kernel);
        const bool too_large = call && bytes_of(*call) > most_bytes_;
        if (call && (too_large || !can_compile(call->kernel, lower_.machine.blocks))) call.reset();
        std::string key = call ? kernel_key(*call) : "";
        const double guess = (std::max(operations, bytes) + speeds_.launch) * (too_large ? kTooLarge : 1);
        parts.kernels.push_back({std::move(key), std::move(call), guess, bytes > operations});
    }
    return parts;
}

std::optional<MeasuredCost::Parts> MeasuredCost::parts_of(const Node& node) const {
    std::shared_ptr<Graph> alone = standalone(node, options_.fused);
    return alone ? parts_of(*alone, options_.fused) : std::nullopt;
}

CodegenOptions MeasuredCost::codegen() const {
    CodegenOptions codegen{.target = options_.target};
    codegen.flush_subnormals = options_.precision != Precision::Strict;
    return codegen;
}

MeasuredCost::Code MeasuredCost::generate(const std::vector<const Parts*>& all,
                                          const std::optional<Deadline>& until) const {
    Code code;
    std::vector<Kernel> kernels;
    for (const Parts* parts : all)
        for (const Part& part : parts->kernels)
            if (part.call && !known_.contains(part.key) && code.place.emplace(part.key, kernels.size()).second) {
                kernels.push_back(part.call->kernel);
                kernels.back().name = fmt::format("k{}", kernels.size());
            }
    if (kernels.empty()) return code;
    const CancelAt cancel(until.value_or(Deadline()), options_.cancel);
    const CancelScope scope(cancel.flag());
    auto module = compile_kernels(kernels, codegen());
    if (module.ok()) module = device_.load(std::move(*module));
    if (module.ok()) code.module = std::move(*module);
    return code;
}

double MeasuredCost::clock(const Parts& parts, const Code& code, double hopeless,
                           const std::optional<Deadline>& until) {
    double sum = parts.rest;
    keep_ = true;
    for (const Part& part : parts.kernels) {
        auto known = known_.find(part.key);
        if (known != known_.end()) {
            if (refused_.contains(part.key)) keep_ = false;
            sum += known->second;
            continue;
        }
        std::optional<double> seconds;
        auto at = code.place.find(part.key);
        if (part.call && code.module && at != code.place.end() && failed_.ok() && !(until && until->passed())) {
            auto timed =
                timer_->seconds(code.module->kernels()[at->second], *part.call, {options_.seconds, hopeless - sum});
            if (timed.ok()) {
                seconds = *timed;
            } else if (failed_ = timer_->device_works(); failed_.ok()) {
                refused_.insert(part.key);
                keep_ = false;
                sum += known_[part.key] = kTooLarge * scaled(part);
                continue;
            }
        }
        sum += seconds ? *seconds : scaled(part);
        if (!seconds) continue;
        ++measured_;
        Sum& all = part.of_bytes ? of_bytes_ : of_operations_;
        all.clocked += *seconds;
        all.estimated += part.guess;
        remember(part.key, *seconds);
    }
    return sum;
}

double MeasuredCost::node(const Node& node) {
    const double estimate = estimate_->node(node);
    if (keeps_estimate(node, estimate)) return estimate;
    std::string key = cost_key(node);
    auto it = known_.find(key);
    if (it != known_.end()) return it->second;
    if (over(nodes_until_)) return scaled(estimate);
    Spending spending(*this);
    std::optional<Parts> parts = parts_of(node);
    if (!parts) return known_[key] = estimate;
    const double seconds = clock(*parts, generate({&*parts}, nodes_until_), 1e9);
    if (nodes_until_ && nodes_until_->passed()) return known_[key] = seconds;  // some of it may be an estimate
    remember(key, seconds);
    return seconds;
}

void MeasuredCost::expect(const std::vector<std::vector<const Node*>>& classes) {
    struct Choice {
        const Node* node;
        std::string key;
        double estimate;
        bool again = false;  // though it is known
        std::optional<Parts> parts = {};
    };
    struct Stake {
        std::vector<Choice> choices;
        double estimate = 0;
    };
    auto cheapest_known = [&](std::vector<Choice>& choices) {
        Choice* best = nullptr;
        for (Choice& c : choices)
            if (known_.contains(c.key) && (!best || known_[c.key] < known_[best->key])) best = &c;
        return best;
    };
    std::vector<Choice> left_out;
    auto leave_out_slow = [&](std::vector<Choice>& choices) {
        if (device_.shares_memory()) return;
        double least = 1e9;
        for (const Choice& c : choices) least = std::min(least, c.estimate);
        auto slow = [&](const Choice& c) { return c.estimate > kNotMeasured * least && !known_.contains(c.key); };
        std::copy_if(choices.begin(), choices.end(), std::back_inserter(left_out), slow);
        std::erase_if(choices, slow);
    };
    std::map<std::string, Stake> stakes;  // by the texts of the nodes: classes that are alike are one
    for (const auto& nodes : classes) {
        Stake stake;
        std::string text;
        bool fresh = false;
        for (const Node* n : nodes) {
            const double estimate = estimate_->node(*n);
            if (keeps_estimate(*n, estimate)) continue;
            stake.choices.push_back({n, cost_key(*n), estimate});
            stake.estimate = std::max(stake.estimate, estimate);
            fresh |= !known_.contains(stake.choices.back().key);
            text += stake.choices.back().key + '\n';
        }
        // What others are compared with should be of the same hour.
        leave_out_slow(stake.choices);
        if (Choice* best = cheapest_known(stake.choices); best && again_ && !recent_.contains(best->key))
            fresh = best->again = true;
        if (!fresh) continue;
        auto [it, first] = stakes.try_emplace(std::move(text), std::move(stake));
        if (!first) it->second.estimate += stake.estimate;
    }
    std::vector<Stake*> order;
    size_t total = 0, done = 0;
    for (auto& [text, stake] : stakes) {
        order.push_back(&stake);
        total += stake.choices.size();
    }
    std::stable_sort(order.begin(), order.end(), [](Stake* a, Stake* b) { return a->estimate > b->estimate; });
    const size_t batch = (device_.shares_memory() ? kBatch : kDeviceBatch) * size_t(usable_cores());
    for (size_t next = 0; next < order.size() && !over(nodes_until_);) {
        Spending spending(*this);
        std::vector<Choice*> fresh;
        size_t end = next;
        for (; end < order.size() && kKernels * fresh.size() < batch; ++end)
            for (Choice& choice : order[end]->choices) {
                if (options_.progress) options_.progress("measure", done++, total);
                if (!known_.contains(choice.key) || choice.again) fresh.push_back(&choice);
            }
        in_parallel(fresh.size(), std::min(kLowered, usable_cores()), [&](size_t i) {
            if (!over(nodes_until_)) fresh[i]->parts = parts_of(*fresh[i]->node);
        });
        std::vector<const Parts*> lowered;
        for (Choice* choice : fresh) {
            if (!choice->parts) continue;
            if (choice->again) forget(*choice->parts);
            lowered.push_back(&*choice->parts);
        }
        const Code code = generate(lowered, nodes_until_);
        for (; next < end; ++next) {
            double best = 1e9;
            for (Choice& choice : order[next]->choices) {
                const bool late = nodes_until_ && nodes_until_->passed();
                if ((choice.again || !known_.contains(choice.key)) && choice.parts && !late)
                    remember(choice.key, clock(*choice.parts, code, kClearlyWorse * best));
                if (auto it = known_.find(choice.key); it != known_.end()) best = std::min(best, it->second);
                choice.parts.reset();
            }
        }
    }
    for (const Choice& c : left_out) known_.try_emplace(c.key, scaled(c.estimate));
}

std::optional<double> MeasuredCost::groups(const Graph& graph) {
    if (!options_.fused) return {};
    Spending spending(*this);
    std::unique_ptr<Graph> copy = graph.clone();
    stand_in_weights(*copy);
    std::optional<Parts> parts = parts_of(*copy, false);
    if (!parts) return {};
    return clock(*parts, over(groups_until_) ? Code{} : generate({&*parts}, groups_until_), 1e9, groups_until_);
}

}  // namespace tessera
