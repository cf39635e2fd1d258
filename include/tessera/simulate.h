// Simulation of partitioned programs on a described cluster: step time, utilization and memory of thousands of devices,
// without any of them.
#pragma once

#include "tessera/shard.h"

namespace tessera {

// A GPT: layers of attention and an MLP, with an embedding before and a head behind.
struct GptShape {
    int64_t layers = 12, hidden = 768, heads = 12, sequence = 1024, vocabulary = 50304;
    int64_t feedforward = 0;  // features of the MLP; 0: four times `hidden`
};

struct SimulateOptions {
    std::string cluster = "dgx-h100";  // a built-in name or a JSON file
    // Named axes, the last innermost: ranks next to each other are in one node. Axes that no annotation names are
    // replicas, each with a batch of its own, but for "pipeline", which is stages. Their sizes cost no time to simulate.
    std::string mesh;
    std::vector<std::pair<std::string, std::string>> annotations = {};  // as ShardOptions::annotations
    std::map<std::string, int64_t> sizes = {};                          // of the model's symbols
    bool overlap = false;          // collectives run beside computation that does not depend on them
    int64_t microbatches = 1;      // of a replica in a step
    std::string schedule = "1f1b"; // "gpipe", "1f1b" or "interleaved"
    int64_t chunks = 1;            // of layers on each stage, where the schedule is interleaved
    // A GPT's training:
    int64_t microbatch = 1;             // sequences
    std::string recompute = "none";     // "none", "selective" or "full"
    bool sequence_parallel = false;     // the sequence is divided over "model" between products
    bool shard_optimizer = false;       // over the replicas (ZeRO, stage 1)
    // A model's computation is timed on this machine, not estimated.
    bool measured = false;
    CompileOptions compile = {};        // where it is
};

struct TimelineEvent {
    std::string lane;  // "stage 3", or "stage 3 network"
    std::string name;
    std::string kind;  // "compute", "forward", "backward", "collective", "reduction", "update"
    double begin = 0, seconds = 0;
};

// A kernel or a collective of a partitioned program, once.
struct SimulatedStep {
    std::string pass;  // "layer, forward"
    std::string kind;  // "product", "kernel" or the collective's name
    std::string name;
    double flops = 0, bytes = 0, seconds = 0;
};

struct SimulatedMemory {
    double weights = 0, gradients = 0, optimizer = 0, activations = 0;  // bytes of a device
    double total() const { return weights + gradients + optimizer + activations; }
};

struct SimulatedStage {
    std::string holds;                    // "embedding, 12 layers"
    double forward = 0, backward = 0;     // seconds of a microbatch
    int64_t in_flight = 0;                // microbatches whose activations it keeps, at most
    SimulatedMemory memory;
};

struct Simulation {
    std::string cluster, device, mesh;
    int64_t devices = 0;
    double seconds = 0;  // of a step
    // Products' operations that the model needs, and those that are made (recomputation among them), over the peak.
    double utilization = 0, hardware_utilization = 0;
    double flops_per_device = 0;  // that are made, per second
    double tokens_per_second = 0;  // of a GPT
    // Seconds of a device in a step, on average over the stages.
    double compute = 0, communication = 0, bubble = 0, reduction = 0, update = 0;
    double received = 0;  // bytes of tensors that collectives of a rank are about
    double memory = 0, device_memory = 0;  // of the fullest device; that it has
    double parameters = 0;
    std::vector<SimulatedStage> stages;
    std::vector<TimelineEvent> events;
    std::vector<SimulatedStep> steps;  // of each partitioned program on one rank
    std::vector<std::string> sources;  // of the cluster's numbers

    // For chrome://tracing and Perfetto: a lane for each stage.
    std::string chrome_trace() const;
    // One file for each device, name.0.et and on, in Chakra's format of execution traces, as simulators of networks
    // read it. E0105
    Status write_chakra(const std::string& name) const;

    struct Traces;
    std::shared_ptr<const Traces> traces;
};

// E0501 for an invalid mesh, annotation, cluster or schedule; E0409 for control flow and random numbers.
Result<Simulation> simulate(const Model& model, const SimulateOptions& options);
Result<Simulation> simulate_gpt(const GptShape& shape, const SimulateOptions& options);

// The description of a cluster as JSON: this machine's processor and the network between the ranks that mpirun started,
// as they are when all of them measure. Empty on all ranks but the first. E0701 without Open MPI, E0501 for one rank.
Result<std::string> fit_cluster();

std::vector<std::string> simulated_clusters();  // built-in names

}  // namespace tessera
