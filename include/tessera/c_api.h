/* The C interface: load, compile and run models from C, or from any language that calls C functions. It is stable:
 * functions are added, and those that exist keep their meaning. Link with -ltessera_c; C99 or C++.
 *
 *     tessera_model* model = NULL;
 *     tessera_executable* executable = NULL;
 *     tessera_error* error = tessera_model_load("model.onnx", &model);
 *     if (!error) error = tessera_compile(model, NULL, &executable);
 *     if (error) { fputs(tessera_error_text(error), stderr); tessera_error_free(error); }
 *
 * A function that can fail returns an error, or NULL for success; its results are written through pointers, and are NULL
 * after an error. What a function returns belongs to the object it was asked of, unless a matching _free takes it. All
 * _free functions accept NULL. Different threads may use the same model or executable at the same time. */
#ifndef TESSERA_C_API_H
#define TESSERA_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised by one when functions are added. */
#define TESSERA_C_API_VERSION 1

typedef struct tessera_error tessera_error;
typedef struct tessera_model tessera_model;
typedef struct tessera_executable tessera_executable;
typedef struct tessera_results tessera_results;

/* Element types, by ONNX's numbers. Elements of 4 and 2 bits take one byte each. */
typedef int32_t tessera_dtype;
enum {
    TESSERA_F32 = 1,
    TESSERA_U8 = 2,
    TESSERA_I8 = 3,
    TESSERA_U16 = 4,
    TESSERA_I16 = 5,
    TESSERA_I32 = 6,
    TESSERA_I64 = 7,
    TESSERA_STRING = 8, /* of a port; tensors of strings cannot be passed */
    TESSERA_BOOL = 9,
    TESSERA_F16 = 10,
    TESSERA_F64 = 11,
    TESSERA_U32 = 12,
    TESSERA_U64 = 13,
    TESSERA_C64 = 14,
    TESSERA_C128 = 15,
    TESSERA_BF16 = 16,
    TESSERA_F8E4M3FN = 17,
    TESSERA_F8E4M3FNUZ = 18,
    TESSERA_F8E5M2 = 19,
    TESSERA_F8E5M2FNUZ = 20,
    TESSERA_U4 = 21,
    TESSERA_I4 = 22,
    TESSERA_F4E2M1 = 23,
    TESSERA_F8E8M0 = 24,
    TESSERA_U2 = 25,
    TESSERA_I2 = 26
};

/* Bytes of one element in memory; 0 for strings and for numbers that are no element type. */
size_t tessera_dtype_bytes(tessera_dtype dtype);

const char* tessera_version(void);     /* of the library: "0.1.0" */
int32_t tessera_c_api_version(void);   /* TESSERA_C_API_VERSION of the library that runs */

/* ---- errors */

const char* tessera_error_code(const tessera_error* error);    /* "E0101": docs/errors.md explains each */
const char* tessera_error_message(const tessera_error* error); /* one line */
const char* tessera_error_text(const tessera_error* error);    /* with code, location, note and hint */
void tessera_error_free(tessera_error* error);

/* ---- models */

tessera_error* tessera_model_load(const char* path, tessera_model** model);
/* An ONNX file in memory, which is not needed after the call. */
tessera_error* tessera_model_from_onnx(const void* bytes, size_t size, tessera_model** model);
void tessera_model_free(tessera_model* model);

/* ---- compiling */

typedef struct tessera_compile_options {
    size_t size;           /* of this struct; tessera_compile_options_init sets it, and all others to their defaults */
    const char* target;    /* "host", "cuda", ... */
    const char* precision; /* "default", "strict" or "fast" */
    const char* tier;      /* "full", "fast" or "auto" */
    const char* cache;     /* folder of the code cache; NULL: the user's; "": none */
    int32_t threads;       /* maximum for a run; 0: one for each core */
    const volatile int32_t* cancel; /* another thread sets it to another number than 0 to stop with E0410; or NULL */
} tessera_compile_options;

void tessera_compile_options_init(tessera_compile_options* options);

/* The model may be freed afterwards. NULL options: the defaults. */
tessera_error* tessera_compile(const tessera_model* model, const tessera_compile_options* options,
                               tessera_executable** executable);
/* One file for this processor and this build of Tessera, and back. A file for another one is recompiled if the model
 * it was made from is found. */
tessera_error* tessera_executable_save(const tessera_executable* executable, const char* path);
tessera_error* tessera_executable_load(const char* path, tessera_executable** executable);
void tessera_executable_free(tessera_executable* executable);

/* ---- inputs and outputs */

typedef struct tessera_port {
    const char* name;
    const char* type;        /* "f32[N,3,224,224]" */
    tessera_dtype dtype;     /* 0: not a tensor */
    int32_t rank;            /* -1: not known */
    const int64_t* sizes;    /* -1: symbolic */
    const char* const* dims; /* the same as text: "N", "224" */
    int32_t has_default;     /* 1: may be left out of a run */
} tessera_port;

size_t tessera_input_count(const tessera_executable* executable);
size_t tessera_output_count(const tessera_executable* executable);
const tessera_port* tessera_input(const tessera_executable* executable, size_t index);   /* NULL: there is none */
const tessera_port* tessera_output(const tessera_executable* executable, size_t index);

/* ---- running */

/* Contiguous elements in row-major order. */
typedef struct tessera_tensor {
    tessera_dtype dtype;
    int32_t rank;
    const int64_t* sizes; /* may be NULL for rank 0 */
    void* data;           /* not written through where it is an input; NULL for an input with a default: left out */
} tessera_tensor;

/* One tensor for each input, in order. Their memory is only needed during the call. */
tessera_error* tessera_run(const tessera_executable* executable, const tessera_tensor* inputs, size_t count,
                           tessera_results** results);
size_t tessera_results_count(const tessera_results* results);
const tessera_tensor* tessera_result(const tessera_results* results, size_t index); /* NULL: there is none */
void tessera_results_free(tessera_results* results);

/* The same into memory of the caller's, one tensor for each output: E0403 or E0405 where type or sizes differ. */
tessera_error* tessera_run_into(const tessera_executable* executable, const tessera_tensor* inputs, size_t count,
                                const tessera_tensor* outputs, size_t output_count);

#ifdef __cplusplus
}
#endif

#endif
