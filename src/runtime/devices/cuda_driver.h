// NVIDIA's driver, found when it is first needed: no header and no library of theirs is needed to build. Entry points
// are those of CUDA 12.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"

namespace tessera::cuda {

constexpr int kOutOfMemory = 2;  // an error

using Pointer = uint64_t;  // into the device's memory
using Handle = void*;      // of a context, module, function, stream, event, graph

struct LaunchAttribute {
    int id = 0;
    alignas(8) int value[16] = {};
};
struct LaunchConfig {
    unsigned grid[3], block[3], shared;
    Handle stream;
    LaunchAttribute* attributes;
    unsigned count;
};

struct KernelNode {
    Handle function;
    unsigned grid[3], block[3], shared;
    void **arguments, **extra;
    Handle kernel, context;
};

// name(arguments): each gives a number, 0 where all went well.
#define TESSERA_CUDA_ENTRIES(X)                                                                                   \
    X(cuInit, (unsigned flags))                                                                                   \
    X(cuDriverGetVersion, (int* version))                                                                         \
    X(cuDeviceGetCount, (int* count))                                                                             \
    X(cuDeviceGet, (int* device, int number))                                                                     \
    X(cuDeviceGetName, (char* name, int size, int device))                                                        \
    X(cuDeviceGetAttribute, (int* value, int attribute, int device))                                              \
    X(cuDeviceTotalMem, (size_t * bytes, int device))                                                             \
    X(cuDevicePrimaryCtxRetain, (Handle * context, int device))                                                   \
    X(cuCtxSetCurrent, (Handle context))                                                                          \
    X(cuCtxGetCurrent, (Handle * context))                                                                        \
    X(cuMemGetInfo, (size_t * free, size_t * total))                                                              \
    X(cuMemAlloc, (Pointer * made, size_t bytes))                                                                 \
    X(cuMemFree, (Pointer memory))                                                                                \
    X(cuMemHostAlloc, (void** made, size_t bytes, unsigned flags))                                                \
    X(cuMemFreeHost, (void* memory))                                                                              \
    X(cuPointerGetAttribute, (void* value, int attribute, Pointer memory))                                        \
    X(cuMemsetD8Async, (Pointer to, unsigned char value, size_t bytes, Handle stream))                            \
    X(cuMemcpyHtoDAsync, (Pointer to, const void* from, size_t bytes, Handle stream))                             \
    X(cuMemcpyDtoHAsync, (void* to, Pointer from, size_t bytes, Handle stream))                                   \
    X(cuMemcpyDtoDAsync, (Pointer to, Pointer from, size_t bytes, Handle stream))                                 \
    X(cuModuleLoadDataEx, (Handle * made, const void* image, unsigned count, int* options, void** values))        \
    X(cuModuleUnload, (Handle module))                                                                            \
    X(cuModuleGetFunction, (Handle * made, Handle module, const char* name))                                      \
    X(cuFuncGetAttribute, (int* value, int attribute, Handle function))                                           \
    X(cuFuncSetAttribute, (Handle function, int attribute, int value))                                            \
    X(cuTensorMapEncodeTiled,                                                                                     \
      (void* made, int type, unsigned rank, void* base, const uint64_t* sizes, const uint64_t* strides,           \
       const unsigned* box, const unsigned* every, int interleave, int swizzle, int promotion, int fill))         \
    X(cuTensorMapEncodeIm2col,                                                                                    \
      (void* made, int type, unsigned rank, void* base, const uint64_t* sizes, const uint64_t* strides,           \
       const int* from, const int* to, unsigned channels, unsigned places, const unsigned* every, int interleave, \
       int swizzle, int promotion, int fill))                                                                     \
    X(cuLaunchKernelEx, (const LaunchConfig* config, Handle function, void** arguments, void** extra))            \
    X(cuStreamCreate, (Handle * made, unsigned flags))                                                            \
    X(cuStreamDestroy, (Handle stream))                                                                           \
    X(cuStreamSynchronize, (Handle stream))                                                                       \
    X(cuStreamWaitEvent, (Handle stream, Handle event, unsigned flags))                                           \
    X(cuStreamBeginCapture, (Handle stream, int mode))                                                            \
    X(cuStreamEndCapture, (Handle stream, Handle * graph))                                                        \
    X(cuStreamIsCapturing, (Handle stream, int* status))                                                          \
    X(cuStreamGetCaptureInfo,                                                                                     \
      (Handle stream, int* status, uint64_t* id, Handle* graph, const Handle** last, size_t* count))              \
    X(cuStreamUpdateCaptureDependencies, (Handle stream, Handle * nodes, size_t count, unsigned flags))           \
    X(cuGraphExecKernelNodeSetParams, (Handle graph, Handle node, const KernelNode* node_now))                    \
    X(cuEventCreate, (Handle * made, unsigned flags))                                                             \
    X(cuEventDestroy, (Handle event))                                                                             \
    X(cuEventRecord, (Handle event, Handle stream))                                                               \
    X(cuEventSynchronize, (Handle event))                                                                         \
    X(cuEventElapsedTime, (float* milliseconds, Handle start, Handle end))                                        \
    X(cuGraphInstantiateWithFlags, (Handle * made, Handle graph, unsigned long long flags))                       \
    X(cuGraphLaunch, (Handle graph, Handle stream))                                                               \
    X(cuGraphExecDestroy, (Handle graph))                                                                         \
    X(cuGraphDestroy, (Handle graph))                                                                             \
    X(cuGetErrorName, (int error, const char** name))                                                             \
    X(cuGetErrorString, (int error, const char** text))

struct Driver {
#define TESSERA_CUDA_DECLARE(name, arguments) int(*name) arguments = nullptr;
    TESSERA_CUDA_ENTRIES(TESSERA_CUDA_DECLARE)
#undef TESSERA_CUDA_DECLARE
    int version = 0;  // 12040 of CUDA 12.4

    // E0701 where there is no driver, or one that is too old.
    static Result<const Driver*> load();

    // E0702 with the driver's own words; E0408 where memory ran out.
    Status check(int result, const char* doing) const;
};

}  // namespace tessera::cuda
