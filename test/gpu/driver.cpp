// Stands in for NVIDIA's driver where there is no GPU: memory is the process's, nothing is computed, and what is asked
// for when kernels are launched is printed, unless STAND_IN_QUIET is set. Arguments that the hardware would refuse are
// errors. Where STAND_IN_FAILS is set, launches fail; where it is "for good", nothing works after the first. Its clock
// goes on by what is launched and copied: a launch takes a microsecond, and what its threads take. stand_in_launches
// gives what was launched last.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#define SAY(...) (quiet() ? 0 : std::printf(__VA_ARGS__))

namespace {

bool quiet() {
    static const bool set = std::getenv("STAND_IN_QUIET") != nullptr;
    return set;
}

constexpr double kLaunch = 1e-3, kThread = 1e-7, kByte = 1e-9;  // milliseconds
double now = 0;                                                 // the same

using Number = uint64_t;

// Of a kernel, the first two of its arguments: every one has two.
struct Launched {
    Number first, second;
    void* stream;
    int replayed;
};
std::vector<Launched> launched;

struct Graph {
    double takes = 0;
    std::vector<Launched*> nodes;  // of the one that was captured
    std::vector<Launched> own;     // of one that is launched: what they are now
};
std::set<const Launched*> live;  // nodes of graphs that are there
Graph* captured = nullptr;       // while it is

void spend(double milliseconds) { (captured ? captured->takes : now) += milliseconds; }

Launched launch_of(void** arguments, void* stream) {
    Launched made{0, 0, stream, 0};
    std::memcpy(&made.first, arguments[0], sizeof made.first);
    std::memcpy(&made.second, arguments[1], sizeof made.second);
    return made;
}

constexpr Number kMapMark = 0x70616d;

constexpr int kInvalid = 1, kLaunchFailed = 719;  // errors of the driver's
bool broken = false;
int result() { return broken ? kLaunchFailed : 0; }

int nothing() { return 0; }

template <typename T>
int give(T* to, T value) {
    *to = value;
    return 0;
}

int version(int* v) { return give(v, 12080); }
int count(int* n) { return give(n, 1); }
int device(int* d, int n) { return give(d, n); }
int device_name(char* text, int size, int) { return std::snprintf(text, static_cast<size_t>(size), "stand-in") < 0; }
int attribute(int* v, int which, int) {
    return give(v, which == 75 ? 9 : which == 16 ? 132 : which == 38 ? 1 << 20 : 0);
}
int handle(void** made) { return give(made, reinterpret_cast<void*>(1)); }
int memory(size_t* free, size_t* total) { return give(free, size_t(1) << 37) + give(total, size_t(1) << 37); }
int allocate(Number* made, size_t bytes) {
    return give(made, reinterpret_cast<Number>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)));
}
int release(Number at) {
    std::free(reinterpret_cast<void*>(at));
    return 0;
}
int allocate_host(void** made, size_t bytes, unsigned) { return give(made, std::malloc(bytes)); }
int release_host(void* at) {
    std::free(at);
    return 0;
}
int fill(Number to, unsigned char value, size_t bytes, void*) {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return 0;
}
int to_device(Number to, const void* from, size_t bytes, void*) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return 0;
}
int to_host(void* to, Number from, size_t bytes, void*) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return 0;
}
int on_device(Number to, Number from, size_t bytes, void*) {
    if (broken) return result();
    spend(kByte * static_cast<double>(bytes));
    return to_device(to, reinterpret_cast<const void*>(from), bytes, nullptr);
}
int function(void** made, void*, const char* name) { return give(made, static_cast<void*>(strdup(name))); }

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

int launch(void* kernel, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y, unsigned threads_z,
           unsigned shared, void* stream, void** arguments, void**) {
    SAY("%s: %u x %u x %u blocks of %u x %u x %u, %u bytes\n", static_cast<const char*>(kernel), x, y, z, threads_x,
        threads_y, threads_z, shared);
    if (const char* fails = std::getenv("STAND_IN_FAILS")) {
        broken = std::strcmp(fails, "for good") == 0;
        return broken ? result() : kInvalid;
    }
    spend(kLaunch + kThread * x * y * z * threads_x * threads_y * threads_z);
    if (captured)
        live.insert(captured->nodes.emplace_back(new Launched(launch_of(arguments, stream))));
    else
        launched.push_back(launch_of(arguments, stream));
    if (!shared) return 0;
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
int launch_by(const Config* c, void* kernel, void** arguments, void** extra) {
    if (c->count) SAY("attribute %d: %d\n", c->attributes[0], c->attributes[2]);
    return launch(kernel, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                  c->stream, arguments, extra);
}

int make_event(void** made, unsigned) { return give(made, static_cast<void*>(new double(0))); }
int record(double* event, void*) { return give(event, now); }
int elapsed(float* milliseconds, const double* start, const double* end) {
    return give(milliseconds, static_cast<float>(*end - *start));
}
int begin_capture(void*, int) { return give(&captured, new Graph()); }
int end_capture(void*, void** graph) {
    *graph = captured;
    captured = nullptr;
    return 0;
}
int capture_info(void*, int* status, Number* id, void** graph, const void*** last, size_t* count) {
    if (!captured || captured->nodes.empty()) return kInvalid;
    static const void* node = nullptr;
    node = captured->nodes.back();
    return give(status, 1) + give(id, Number(1)) + give(graph, static_cast<void*>(captured)) + give(last, &node) +
           give(count, size_t(1));
}
int instantiate(void** made, const Graph* graph, unsigned long long) {
    auto* ready = new Graph(*graph);
    for (const Launched* node : graph->nodes) ready->own.push_back(*node);
    return give(made, static_cast<void*>(ready));
}
struct Parameters {
    void* function;
    unsigned grid[3], block[3], shared;
    void **arguments, **extra;
};
int change(Graph* graph, const Launched* node, const Parameters* now_given) {
    if (!live.contains(node)) return kInvalid;
    for (size_t i = 0; i < graph->nodes.size(); ++i)
        if (graph->nodes[i] == node) return graph->own[i] = launch_of(now_given->arguments, nullptr), 0;
    return kInvalid;
}
int follow(void*, Launched** nodes, size_t count, unsigned flags) {
    for (size_t i = 0; i < count; ++i)
        if (!live.contains(nodes[i])) return kInvalid;
    SAY("after %zu\n", count);
    return captured && flags == 1 ? 0 : kInvalid;
}
int replay(const Graph* graph, void* stream) {
    spend(graph->takes);
    for (const Launched& node : graph->own) launched.push_back({node.first, node.second, stream, 1});
    return 0;
}
int forget_captured(Graph* made) {
    for (const Launched* node : made->nodes) {
        live.erase(node);
        delete node;
    }
    delete made;
    return 0;
}
int forget_graph(Graph* made) {
    delete made;
    return 0;
}
int forget(double* made) {
    delete made;
    return 0;
}
int text_of(int, const char** text) { return give(text, "refused by the stand-in"); }

}  // namespace

// How many there were, and as many of the last as there is room for.
extern "C" int stand_in_launches(Launched* into, int room) {
    const int count = static_cast<int>(launched.size());
    for (int i = 0; i < room && i < count; ++i) into[i] = launched[static_cast<size_t>(count - 1 - i)];
    return count;
}

extern "C" int cuGetProcAddress_v2(const char* name, void** found, int, uint64_t, int*) {
    static const std::map<std::string, void*> kEntries{
        {"cuDriverGetVersion", reinterpret_cast<void*>(version)},
        {"cuDeviceGetCount", reinterpret_cast<void*>(count)},
        {"cuDeviceGet", reinterpret_cast<void*>(device)},
        {"cuDeviceGetName", reinterpret_cast<void*>(device_name)},
        {"cuDeviceGetAttribute", reinterpret_cast<void*>(attribute)},
        {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(handle)},
        {"cuMemGetInfo", reinterpret_cast<void*>(memory)},
        {"cuMemAlloc", reinterpret_cast<void*>(allocate)},
        {"cuMemFree", reinterpret_cast<void*>(release)},
        {"cuMemHostAlloc", reinterpret_cast<void*>(allocate_host)},
        {"cuMemFreeHost", reinterpret_cast<void*>(release_host)},
        {"cuMemsetD8Async", reinterpret_cast<void*>(fill)},
        {"cuMemcpyHtoDAsync", reinterpret_cast<void*>(to_device)},
        {"cuMemcpyDtoHAsync", reinterpret_cast<void*>(to_host)},
        {"cuMemcpyDtoDAsync", reinterpret_cast<void*>(on_device)},
        {"cuModuleLoadDataEx", reinterpret_cast<void*>(handle)},
        {"cuModuleGetFunction", reinterpret_cast<void*>(function)},
        {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(describe_tiles)},
        {"cuTensorMapEncodeIm2col", reinterpret_cast<void*>(describe_places)},
        {"cuLaunchKernelEx", reinterpret_cast<void*>(launch_by)},
        {"cuStreamCreate", reinterpret_cast<void*>(handle)},
        {"cuStreamSynchronize", reinterpret_cast<void*>(result)},
        {"cuEventCreate", reinterpret_cast<void*>(make_event)},
        {"cuEventRecord", reinterpret_cast<void*>(record)},
        {"cuEventDestroy", reinterpret_cast<void*>(forget)},
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
        {"cuGetErrorName", reinterpret_cast<void*>(text_of)},
        {"cuGetErrorString", reinterpret_cast<void*>(text_of)},
    };
    auto entry = kEntries.find(name);
    *found = entry == kEntries.end() ? reinterpret_cast<void*>(nothing) : entry->second;
    return 0;
}
