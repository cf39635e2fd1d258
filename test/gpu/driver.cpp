// Stands in for NVIDIA's driver where there is no GPU: memory is the process's, nothing is computed, and what is asked
// for when kernels are launched is printed, unless STAND_IN_QUIET is set. What the hardware or the driver would refuse
// is an error: arguments that do not fit, calls without a context, and what belongs to another GPU's than the one of
// the thread. It is counted, too. Its clock goes on by what is launched and copied: a launch takes a microsecond, and
// what its threads take. What the environment says:
// - STAND_IN_GPUS: how many there are (1); STAND_IN_CAPABILITIES: what they are ("9.0 8.0"; 9.0 all, where not said);
// - STAND_IN_MEMORY: bytes of each; STAND_IN_VERSION: of the driver, 12080 for CUDA 12.8;
// - STAND_IN_LACKS: an entry point that it has not;
// - STAND_IN_TILES: 0 where kernels that come with shared memory are not given tiles that are described;
// - STAND_IN_FAILS: launches fail; where it is "for good", nothing works after the first;
// - STAND_IN_FAULTS: a kernel with that in its name faults when it runs, after the call that launched it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#define SAY(...) (quiet() ? 0 : std::printf(__VA_ARGS__))

namespace {

bool quiet() {
    static const bool set = std::getenv("STAND_IN_QUIET") != nullptr;
    return set;
}

long long setting(const char* name, long long fallback) {
    const char* set = std::getenv(name);
    return set ? std::atoll(set) : fallback;
}

constexpr double kLaunch = 1e-3, kThread = 1e-7, kByte = 1e-9;  // milliseconds
constexpr int kInvalid = 1, kOutOfMemory = 2, kNoDevice = 101, kNoContext = 201, kWrongCode = 218, kWrongHandle = 400,
              kIllegalAddress = 700, kLaunchFailed = 719;  // errors of the driver's

using Number = uint64_t;

std::recursive_mutex mutex;  // over all that follows
#define ALONE const std::lock_guard alone(mutex)

double now = 0;  // milliseconds

struct Context {
    int device = 0;
    size_t used = 0;  // bytes
    int broken = 0;   // the error that all calls give from there on
};
std::vector<Context>& contexts() {
    static auto& all = *new std::vector<Context>([] {
        std::vector<Context> made(static_cast<size_t>(setting("STAND_IN_GPUS", 1)));
        for (size_t i = 0; i < made.size(); ++i) made[i].device = static_cast<int>(i);
        return made;
    }());
    return all;
}
thread_local Context* current = nullptr;

int refusals = 0;
const char* last_refusal = "";
size_t bytes_across = 0;
int refuse(int error, const char* why) {
    ++refusals;
    last_refusal = why;
    SAY("refused: %s\n", why);
    return error;
}

struct Memory {
    size_t bytes;
    Context* of;
};
std::map<Number, Memory> memories;  // of GPUs, by where they begin

// Memory of a GPU, or null where it is another's: tests give memory of their own.
const std::pair<const Number, Memory>* memory_at(Number at) {
    auto after = memories.upper_bound(at);
    if (after == memories.begin()) return nullptr;
    auto found = std::prev(after);
    return at < found->first + found->second.bytes ? &*found : nullptr;
}

// Of a kernel, the first two of its arguments: every one has two.
struct Launched {
    Number first, second;
    void* stream;
    int replayed;
    int device;
};
std::vector<Launched> launched;

struct Graph {
    Context* of = nullptr;
    double takes = 0;
    bool faults = false;
    std::vector<Launched*> nodes;  // of the one that was captured
    std::vector<Launched> own;     // of one that is launched: what they are now
};
std::set<const Launched*> live;  // nodes of graphs that are there

struct Stream {
    Context* of;
    Graph* captured;  // while it is
};
std::set<const void*> streams;  // that were made here
struct Module {
    Context* of;
};
struct Function {
    Context* of;
    std::string name;
};
struct Event {
    Context* of;
    double at;
};

// Whether calls can be made at all.
int ready() {
    if (!current) return refuse(kNoContext, "a call without a context");
    return current->broken;
}
int ready_for(const Context* of, const char* what) {
    if (int wrong = ready()) return wrong;
    return of == current ? 0 : refuse(kWrongHandle, what);
}
// Streams of others are taken to be of the thread's context, and so is the first, which is null.
Stream* own_stream(void* stream) { return streams.contains(stream) ? static_cast<Stream*>(stream) : nullptr; }
int ready_on(void* stream) {
    const Stream* own = own_stream(stream);
    return own ? ready_for(own->of, "a stream of another GPU's") : ready();
}
int ready_memory(Number at, size_t bytes) {
    const auto* known = memory_at(at);
    if (!known || bytes == 0) return 0;
    if (known->second.of != current) return refuse(kInvalid, "memory of another GPU's");
    return at + bytes <= known->first + known->second.bytes ? 0 : refuse(kInvalid, "more than was allocated");
}
#define TRY_CALL(call) \
    if (int wrong = (call)) return wrong

void spend(double milliseconds, Graph* captured) { (captured ? captured->takes : now) += milliseconds; }

Launched launch_of(void** arguments, void* stream) {
    Launched made{0, 0, stream, 0, current->device};
    std::memcpy(&made.first, arguments[0], sizeof made.first);
    std::memcpy(&made.second, arguments[1], sizeof made.second);
    return made;
}

// What a kernel does not reach: memory of another GPU's.
bool reaches(const Launched& launch) {
    for (Number at : {launch.first, launch.second})
        if (const auto* known = memory_at(at); known && known->second.of != current) return false;
    return true;
}

constexpr Number kMapMark = 0x70616d;

int nothing() { return 0; }

template <typename T>
int give(T* to, T value) {
    *to = value;
    return 0;
}

int version(int* v) { return give(v, static_cast<int>(setting("STAND_IN_VERSION", 12080))); }
int count(int* n) { return give(n, static_cast<int>(contexts().size())); }
int device(int* d, int n) { return n < static_cast<int>(contexts().size()) ? give(d, n) : refuse(kNoDevice, "a GPU"); }
int device_name(char* text, int size, int) { return std::snprintf(text, static_cast<size_t>(size), "stand-in") < 0; }
std::pair<int, int> capability(int device) {
    const char* all = std::getenv("STAND_IN_CAPABILITIES");
    int major = 9, minor = 0;
    for (int i = 0, read = 0; all && i <= device; ++i, all += read)
        if (std::sscanf(all, "%d.%d%n", &major, &minor, &read) != 2) break;
    return {major, minor};
}
int shared_bytes(int device) {  // that a block may have
    const auto [major, minor] = capability(device);
    const bool less = (major == 8 && (minor == 6 || minor == 9)) || major >= 12;
    return (less ? 99 : major == 8 ? 163 : 227) << 10;
}
int attribute(int* v, int which, int device) {
    const auto [major, minor] = capability(device);
    if (which == 97) return give(v, shared_bytes(device));
    return give(v, which == 75 ? major : which == 76 ? minor : which == 16 ? 132 : which == 38 ? 1 << 20 : 0);
}
int total_memory(size_t* bytes, int) { return give(bytes, static_cast<size_t>(setting("STAND_IN_MEMORY", 1LL << 37))); }
int retain(Context** made, int device) { return give(made, &contexts()[static_cast<size_t>(device)]); }
int set_current(Context* context) { return give(&current, context); }
int get_current(Context** context) { return give(context, current); }

size_t capacity() { return static_cast<size_t>(setting("STAND_IN_MEMORY", 1LL << 37)); }
int memory(size_t* free, size_t* total) {
    ALONE;
    TRY_CALL(ready());
    return give(free, capacity() - current->used) + give(total, capacity());
}
int allocate(Number* made, size_t bytes) {
    ALONE;
    TRY_CALL(ready());
    const size_t whole = (bytes + 255) / 256 * 256;
    if (current->used + whole > capacity()) return kOutOfMemory;
    *made = reinterpret_cast<Number>(std::aligned_alloc(256, whole));
    memories[*made] = {whole, current};
    current->used += whole;
    return 0;
}
int release(Number at) {
    ALONE;
    TRY_CALL(ready());
    auto found = memories.find(at);
    if (found == memories.end()) return refuse(kInvalid, "memory that is not there");
    if (found->second.of != current) return refuse(kInvalid, "memory of another GPU's");
    current->used -= found->second.bytes;
    memories.erase(found);
    std::free(reinterpret_cast<void*>(at));
    return 0;
}
int allocate_host(void** made, size_t bytes, unsigned) {
    ALONE;
    TRY_CALL(ready());
    return give(made, std::malloc(bytes));
}
int release_host(void* at) {
    ALONE;
    TRY_CALL(ready());
    std::free(at);
    return 0;
}
int pointer_attribute(void* to, int which, Number at) {
    ALONE;
    const auto* known = memory_at(at);
    if (!known || which != 9) return kInvalid;
    return give(static_cast<int*>(to), known->second.of->device);
}
int fill(Number to, unsigned char value, size_t bytes, void* stream) {
    ALONE;
    TRY_CALL(ready_on(stream));
    TRY_CALL(ready_memory(to, bytes));
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return 0;
}
int to_device(Number to, const void* from, size_t bytes, void* stream) {
    ALONE;
    TRY_CALL(ready_on(stream));
    TRY_CALL(ready_memory(to, bytes));
    bytes_across += bytes;
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return 0;
}
int to_host(void* to, Number from, size_t bytes, void* stream) {
    ALONE;
    TRY_CALL(ready_on(stream));
    TRY_CALL(ready_memory(from, bytes));
    bytes_across += bytes;
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return 0;
}
int on_device(Number to, Number from, size_t bytes, void* stream) {
    ALONE;
    TRY_CALL(ready_on(stream));
    TRY_CALL(ready_memory(from, bytes));
    TRY_CALL(ready_memory(to, bytes));
    const Stream* own = own_stream(stream);
    spend(kByte * static_cast<double>(bytes), own ? own->captured : nullptr);
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return 0;
}

// Code for a GPU that this one is not is refused: "sm_90a" runs on 9.0 alone, "sm_80" on it and on later ones.
int load_module(void** made, const char* text, unsigned, int*, void**) {
    ALONE;
    TRY_CALL(ready());
    const char* target = std::strstr(text, ".target sm_");
    int wanted = 0, read = 0;
    if (target && std::sscanf(target, ".target sm_%d%n", &wanted, &read) == 1) {
        const auto [major, minor] = capability(current->device);
        const int is = 10 * major + minor;
        if (target[read] == 'a' ? is != wanted : is < wanted) return refuse(kWrongCode, "code for another GPU");
    }
    return give(made, static_cast<void*>(new Module{current}));
}
int unload(Module* module) {
    ALONE;
    TRY_CALL(ready_for(module->of, "code of another GPU's"));
    delete module;
    return 0;
}
int function(Function** made, const Module* module, const char* name) {
    ALONE;
    TRY_CALL(ready_for(module->of, "code of another GPU's"));
    return give(made, new Function{current, name});  // lives on
}
int change_function(const Function* of, int which, int value) {
    ALONE;
    if (which == 8 && value > shared_bytes(of->of->device))
        return refuse(kInvalid, "more shared memory than a block has");
    return ready_for(of->of, "a kernel of another GPU's");
}

int describe_tiles(void* made, int type, unsigned rank, void* base, const Number* sizes, const Number* strides,
                   const unsigned* box, const unsigned* every, int, int swizzle, int, int) {
    bool right = reinterpret_cast<Number>(made) % 64 == 0 && reinterpret_cast<Number>(base) % 16 == 0 && rank <= 5;
    SAY("tiles of type %d, swizzle %d:", type, swizzle);
    for (unsigned d = 0; d < rank; ++d) {
        SAY(" %u of %llu", box[d], static_cast<unsigned long long>(sizes[d]));
        right &= box[d] > 0 && box[d] <= 256 && every[d] == 1 && sizes[d] > 0;
        if (d + 1 < rank) right &= strides[d] % 16 == 0;
    }
    SAY("\n");
    std::memset(made, 0, 128);
    std::memcpy(made, &kMapMark, sizeof kMapMark);
    return right ? 0 : 1;
}

int describe_places(void* made, int type, unsigned rank, void* base, const Number* sizes, const Number* strides,
                    const int* from, const int* to, unsigned channels, unsigned places, const unsigned* every, int,
                    int swizzle, int, int) {
    bool right = reinterpret_cast<Number>(made) % 64 == 0 && reinterpret_cast<Number>(base) % 16 == 0 && rank == 4;
    right &= channels <= 256 && places <= 1024 && every[0] == 1 && every[3] == 1;
    SAY("places of type %d, swizzle %d: %u by %u of %llu", type, swizzle, places, channels,
        static_cast<unsigned long long>(sizes[0]));
    for (unsigned d = 0; d < 2; ++d) {
        const auto size = static_cast<long long>(sizes[d + 1]);
        SAY(", every %u from %d to %lld", every[d + 1], from[d], size - 1 + to[d]);
        right &= from[d] >= -128 && from[d] < 128 && to[d] >= -128 && to[d] < 128 && every[d + 1] <= 8;
    }
    SAY("\n");
    for (unsigned d = 0; d + 1 < rank; ++d) right &= strides[d] % 16 == 0;
    std::memset(made, 0, 128);
    std::memcpy(made, &kMapMark, sizeof kMapMark);
    return right ? 0 : 1;
}

int launch(const Function* kernel, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
           unsigned threads_z, unsigned shared, void* stream, void** arguments, void**) {
    TRY_CALL(ready_on(stream));
    TRY_CALL(ready_for(kernel->of, "a kernel of another GPU's"));
    SAY("%s: %u x %u x %u blocks of %u x %u x %u, %u bytes\n", kernel->name.c_str(), x, y, z, threads_x, threads_y,
        threads_z, shared);
    if (const char* fails = std::getenv("STAND_IN_FAILS")) {
        if (std::strcmp(fails, "for good") == 0) return current->broken = kLaunchFailed;
        return kInvalid;
    }
    Stream* own = own_stream(stream);
    Graph* captured = own ? own->captured : nullptr;
    spend(kLaunch + kThread * x * y * z * threads_x * threads_y * threads_z, captured);
    const Launched made = launch_of(arguments, stream);
    const char* faulty = std::getenv("STAND_IN_FAULTS");
    const bool faults = (faulty && kernel->name.find(faulty) != std::string::npos) || !reaches(made);
    if (captured) {
        live.insert(captured->nodes.emplace_back(new Launched(made)));
        captured->faults |= faults;
    } else {
        launched.push_back(made);
        if (faults) current->broken = kIllegalAddress;
    }
    if (!shared || !setting("STAND_IN_TILES", 1)) return 0;
    // Two operands, the result and scratch; then their tiles.
    for (int i = 4; i < 7; ++i) {
        Number mark = 0;
        std::memcpy(&mark, arguments[i], sizeof mark);
        if (mark != kMapMark || reinterpret_cast<Number>(arguments[i]) % 64) return 1;
    }
    SAY("tiles are described where the kernel looks for them\n");
    return 0;
}

struct Config {
    unsigned grid[3], block[3], shared;
    void* stream;
    const int* attributes;  // each a number and, 8 bytes further, its value
    unsigned count;
};
int launch_by(const Config* c, const Function* kernel, void** arguments, void** extra) {
    ALONE;
    constexpr unsigned kAttributeInts = 18;
    constexpr int kTogether = 4;
    for (unsigned i = 0; i < c->count; ++i) {
        const int* attribute = c->attributes + i * kAttributeInts;
        SAY("attribute %d: %d\n", attribute[0], attribute[2]);
        if (attribute[0] == kTogether && c->grid[0] % static_cast<unsigned>(attribute[2]) != 0)
            return refuse(kInvalid, "blocks that run together, of which some are missing");
    }
    return launch(kernel, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                  c->stream, arguments, extra);
}

int make_stream(Stream** made, unsigned) {
    ALONE;
    TRY_CALL(ready());
    *made = new Stream{current, nullptr};
    streams.insert(*made);
    return 0;
}
int forget_stream(void* stream) {
    ALONE;
    TRY_CALL(ready_on(stream));
    if (streams.erase(stream) != 1) return refuse(kWrongHandle, "a stream that is not there");
    delete static_cast<Stream*>(stream);
    return 0;
}
int synchronize(void* stream) {
    ALONE;
    return ready_on(stream);
}
int make_event(Event** made, unsigned) {
    ALONE;
    TRY_CALL(ready());
    return give(made, new Event{current, 0});
}
int record(Event* event, void* stream) {
    ALONE;
    TRY_CALL(ready_on(stream));
    TRY_CALL(ready_for(event->of, "an event of another GPU's"));
    return give(&event->at, now);
}
int wait_for(void* stream, const Event*, unsigned) {  // of any GPU
    ALONE;
    return ready_on(stream);
}
int wait_here(const Event* event) {
    ALONE;
    return ready_for(event->of, "an event of another GPU's");
}
int elapsed(float* milliseconds, const Event* start, const Event* end) {
    ALONE;
    TRY_CALL(ready_for(end->of, "an event of another GPU's"));
    return give(milliseconds, static_cast<float>(end->at - start->at));
}
int forget_event(Event* made) {
    ALONE;
    TRY_CALL(ready_for(made->of, "an event of another GPU's"));
    delete made;
    return 0;
}

int begin_capture(void* stream, int) {
    ALONE;
    TRY_CALL(ready_on(stream));
    Stream* own = own_stream(stream);
    if (!own) return refuse(kInvalid, "a stream that cannot be captured");
    own->captured = new Graph();
    own->captured->of = current;
    return 0;
}
int end_capture(void* stream, Graph** graph) {
    ALONE;
    TRY_CALL(ready_on(stream));
    Stream* own = own_stream(stream);
    if (!own || !own->captured) return refuse(kInvalid, "a stream that is not captured");
    *graph = own->captured;
    own->captured = nullptr;
    return 0;
}
int capture_info(void* stream, int* status, Number* id, void** graph, const void*** last, size_t* count) {
    ALONE;
    TRY_CALL(ready_on(stream));
    const Stream* own = own_stream(stream);
    if (!own || !own->captured || own->captured->nodes.empty()) return kInvalid;
    static const void* node = nullptr;
    node = own->captured->nodes.back();
    return give(status, 1) + give(id, Number(1)) + give(graph, static_cast<void*>(own->captured)) + give(last, &node) +
           give(count, size_t(1));
}
int instantiate(Graph** made, const Graph* graph, unsigned long long) {
    ALONE;
    TRY_CALL(ready_for(graph->of, "a graph of another GPU's"));
    auto* ready = new Graph(*graph);
    for (const Launched* node : graph->nodes) ready->own.push_back(*node);
    return give(made, ready);
}
struct Parameters {
    const Function* function;
    unsigned grid[3], block[3], shared;
    void **arguments, **extra;
};
int change(Graph* graph, const Launched* node, const Parameters* now_given) {
    ALONE;
    TRY_CALL(ready_for(graph->of, "a graph of another GPU's"));
    TRY_CALL(ready_for(now_given->function->of, "a kernel of another GPU's"));
    if (!live.contains(node)) return refuse(kInvalid, "a node that is not there");
    for (size_t i = 0; i < graph->nodes.size(); ++i)
        if (graph->nodes[i] == node) return graph->own[i] = launch_of(now_given->arguments, nullptr), 0;
    return refuse(kInvalid, "a node of another graph");
}
int follow(void* stream, Launched** nodes, size_t count, unsigned flags) {
    ALONE;
    TRY_CALL(ready_on(stream));
    for (size_t i = 0; i < count; ++i)
        if (!live.contains(nodes[i])) return refuse(kInvalid, "a node that is not there");
    SAY("after %zu\n", count);
    const Stream* own = own_stream(stream);
    return own && own->captured && flags == 1 ? 0 : refuse(kInvalid, "a stream that is not captured");
}
int replay(const Graph* graph, void* stream) {
    ALONE;
    TRY_CALL(ready_on(stream));
    TRY_CALL(ready_for(graph->of, "a graph of another GPU's"));
    spend(graph->takes, nullptr);
    bool faults = graph->faults;
    for (const Launched& node : graph->own) {
        launched.push_back({node.first, node.second, stream, 1, current->device});
        faults |= !reaches(node);
    }
    if (faults) current->broken = kIllegalAddress;
    return 0;
}
int forget_captured(Graph* made) {
    ALONE;
    TRY_CALL(ready_for(made->of, "a graph of another GPU's"));
    for (const Launched* node : made->nodes) {
        live.erase(node);
        delete node;
    }
    delete made;
    return 0;
}
int forget_graph(Graph* made) {
    ALONE;
    TRY_CALL(ready_for(made->of, "a graph of another GPU's"));
    delete made;
    return 0;
}
int text_of(int error, const char** text) {
    return give(text, error == kOutOfMemory      ? "out of memory"
                      : error == kIllegalAddress ? "an illegal memory access was encountered"
                                                 : "refused by the stand-in");
}
int name_of(int error, const char** text) {
    return give(text, error == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
                      : error == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                                 : "CUDA_ERROR");
}

}  // namespace

// For tests. How many launches there were, and as many of the last as there is room for.
extern "C" int stand_in_launches(Launched* into, int room) {
    ALONE;
    const int count = static_cast<int>(launched.size());
    for (int i = 0; i < room && i < count; ++i) into[i] = launched[static_cast<size_t>(count - 1 - i)];
    return count;
}
// How many calls were refused, and what the last was about.
extern "C" int stand_in_refusals(const char** why) {
    ALONE;
    *why = last_refusal;
    return refusals;
}
// That were copied between the process and a GPU.
extern "C" size_t stand_in_bytes_across() { return bytes_across; }
// The thread's GPU; -1 where it has none.
extern "C" int stand_in_current() { return current ? current->device : -1; }
extern "C" void stand_in_enter(int device) {
    current = device < 0 ? nullptr : &contexts()[static_cast<size_t>(device)];
}
extern "C" void* stand_in_stream(int device) {
    ALONE;
    auto* made = new Stream{&contexts()[static_cast<size_t>(device)], nullptr};
    streams.insert(made);
    return made;
}
extern "C" Number stand_in_memory(int device, size_t bytes) {
    ALONE;
    Context* before = current;
    stand_in_enter(device);
    Number made = 0;
    allocate(&made, bytes);
    current = before;
    return made;
}

extern "C" int cuGetProcAddress_v2(const char* name, void** found, int, uint64_t, int*) {
    static const std::map<std::string, void*> kEntries{
        {"cuDriverGetVersion", reinterpret_cast<void*>(version)},
        {"cuDeviceGetCount", reinterpret_cast<void*>(count)},
        {"cuDeviceGet", reinterpret_cast<void*>(device)},
        {"cuDeviceGetName", reinterpret_cast<void*>(device_name)},
        {"cuDeviceGetAttribute", reinterpret_cast<void*>(attribute)},
        {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(retain)},
        {"cuDeviceTotalMem", reinterpret_cast<void*>(total_memory)},
        {"cuCtxSetCurrent", reinterpret_cast<void*>(set_current)},
        {"cuCtxGetCurrent", reinterpret_cast<void*>(get_current)},
        {"cuPointerGetAttribute", reinterpret_cast<void*>(pointer_attribute)},
        {"cuModuleUnload", reinterpret_cast<void*>(unload)},
        {"cuFuncSetAttribute", reinterpret_cast<void*>(change_function)},
        {"cuStreamDestroy", reinterpret_cast<void*>(forget_stream)},
        {"cuStreamWaitEvent", reinterpret_cast<void*>(wait_for)},
        {"cuEventSynchronize", reinterpret_cast<void*>(wait_here)},
        {"cuMemGetInfo", reinterpret_cast<void*>(memory)},
        {"cuMemAlloc", reinterpret_cast<void*>(allocate)},
        {"cuMemFree", reinterpret_cast<void*>(release)},
        {"cuMemHostAlloc", reinterpret_cast<void*>(allocate_host)},
        {"cuMemFreeHost", reinterpret_cast<void*>(release_host)},
        {"cuMemsetD8Async", reinterpret_cast<void*>(fill)},
        {"cuMemcpyHtoDAsync", reinterpret_cast<void*>(to_device)},
        {"cuMemcpyDtoHAsync", reinterpret_cast<void*>(to_host)},
        {"cuMemcpyDtoDAsync", reinterpret_cast<void*>(on_device)},
        {"cuModuleLoadDataEx", reinterpret_cast<void*>(load_module)},
        {"cuModuleGetFunction", reinterpret_cast<void*>(function)},
        {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(describe_tiles)},
        {"cuTensorMapEncodeIm2col", reinterpret_cast<void*>(describe_places)},
        {"cuLaunchKernelEx", reinterpret_cast<void*>(launch_by)},
        {"cuStreamCreate", reinterpret_cast<void*>(make_stream)},
        {"cuStreamSynchronize", reinterpret_cast<void*>(synchronize)},
        {"cuEventCreate", reinterpret_cast<void*>(make_event)},
        {"cuEventRecord", reinterpret_cast<void*>(record)},
        {"cuEventDestroy", reinterpret_cast<void*>(forget_event)},
        {"cuStreamBeginCapture", reinterpret_cast<void*>(begin_capture)},
        {"cuGraphLaunch", reinterpret_cast<void*>(replay)},
        {"cuGraphDestroy", reinterpret_cast<void*>(forget_captured)},
        {"cuStreamUpdateCaptureDependencies", reinterpret_cast<void*>(follow)},
        {"cuGraphExecDestroy", reinterpret_cast<void*>(forget_graph)},
        {"cuStreamGetCaptureInfo", reinterpret_cast<void*>(capture_info)},
        {"cuGraphExecKernelNodeSetParams", reinterpret_cast<void*>(change)},
        {"cuEventElapsedTime", reinterpret_cast<void*>(elapsed)},
        {"cuStreamEndCapture", reinterpret_cast<void*>(end_capture)},
        {"cuGraphInstantiateWithFlags", reinterpret_cast<void*>(instantiate)},
        {"cuGetErrorName", reinterpret_cast<void*>(name_of)},
        {"cuGetErrorString", reinterpret_cast<void*>(text_of)},
    };
    const char* lacks = std::getenv("STAND_IN_LACKS");
    if (lacks && std::strcmp(lacks, name) == 0) return kInvalid;
    auto entry = kEntries.find(name);
    *found = entry == kEntries.end() ? reinterpret_cast<void*>(nothing) : entry->second;
    return 0;
}
