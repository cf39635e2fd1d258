/* The C interface: load, compile and run models from C, or from any language that calls C functions. It is stable:
 * functions are added, and those that exist keep their meaning. Link with -ltessera_c; C99 or C++.
 *
 *     tessera_model* model = NULL;
 *     tessera_executable* executable = NULL;
 *     tessera_error* error = tessera_model_load("model.onnx", &model);
 *     if (!error) error = tessera_compile(model, NULL, &executable);
 *     if (error) { fputs(tessera_error_text(error), stderr); tessera_error_free(error); }
 *
 * A function that can fail returns an error, or NULL for success. It writes its results through pointers, and sets them
 * to NULL after an error. The caller owns errors and results, and frees each with its _free function, which accepts
 * NULL. Every other pointer that a function returns is owned by the function's argument, and valid until that is freed.
 * Models and executables are thread-safe. */
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
    TESSERA_STRING = 8, /* the type of a port only: string tensors cannot be passed */
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

/* The size of an element in memory, in bytes; 0 for strings and for values that are not an element type. */
size_t tessera_dtype_bytes(tessera_dtype dtype);

const char* tessera_version(void);   /* the version of the loaded library: "0.1.0" */
int32_t tessera_c_api_version(void); /* its TESSERA_C_API_VERSION */

/* ---- errors */

const char* tessera_error_code(const tessera_error* error);    /* "E0101": docs/errors.md explains each */
const char* tessera_error_message(const tessera_error* error); /* one line */
const char* tessera_error_text(const tessera_error* error);    /* the message with code, location, note and hint */
void tessera_error_free(tessera_error* error);

/* ---- models */

tessera_error* tessera_model_load(const char* path, tessera_model** model);
/* Loads an ONNX file from memory. The bytes may be freed after the call. */
tessera_error* tessera_model_from_onnx(const void* bytes, size_t size, tessera_model** model);
void tessera_model_free(tessera_model* model);

/* ---- compiling */

typedef struct tessera_compile_options {
    size_t size;           /* sizeof this struct; tessera_compile_options_init sets it, and the defaults below */
    const char* target;    /* "host", "cuda", ... */
    const char* precision; /* "default", "strict" or "fast" */
    const char* tier;      /* "full", "fast" or "auto" */
    const char* cache;     /* folder of the code cache; NULL: the user's default; "": no cache */
    int32_t threads;       /* maximum for a run; 0: one for each core */
    const volatile int32_t* cancel; /* set it to nonzero from another thread to stop with E0410; may be NULL */
} tessera_compile_options;

void tessera_compile_options_init(tessera_compile_options* options);

/* Options may be NULL for the defaults. The model may be freed after the call. */
tessera_error* tessera_compile(const tessera_model* model, const tessera_compile_options* options,
                               tessera_executable** executable);
/* Saves to one file and loads from it. The file is for this processor and this build of Tessera; on others, loading
 * recompiles the model, if its file is found. */
tessera_error* tessera_executable_save(const tessera_executable* executable, const char* path);
tessera_error* tessera_executable_load(const char* path, tessera_executable** executable);
void tessera_executable_free(tessera_executable* executable);

/* ---- inputs and outputs */

typedef struct tessera_port {
    const char* name;
    const char* type;        /* "f32[N,3,224,224]" */
    tessera_dtype dtype;     /* 0: not a tensor */
    int32_t rank;            /* -1: unknown */
    const int64_t* sizes;    /* -1: symbolic */
    const char* const* dims; /* the same as text: "N", "224" */
    int32_t has_default;     /* 1: may be omitted in a run */
} tessera_port;

size_t tessera_input_count(const tessera_executable* executable);
size_t tessera_output_count(const tessera_executable* executable);
const tessera_port* tessera_input(const tessera_executable* executable, size_t index); /* NULL: out of range */
const tessera_port* tessera_output(const tessera_executable* executable, size_t index);

/* ---- running */

/* Contiguous elements in row-major order. */
typedef struct tessera_tensor {
    tessera_dtype dtype;
    int32_t rank;
    const int64_t* sizes; /* may be NULL for rank 0 */
    void* data;           /* inputs are not modified; NULL omits an input that has a default */
} tessera_tensor;

/* Takes one tensor for each input, in order. Their memory is only used during the call. */
tessera_error* tessera_run(const tessera_executable* executable, const tessera_tensor* inputs, size_t count,
                           tessera_results** results);
size_t tessera_results_count(const tessera_results* results);
const tessera_tensor* tessera_result(const tessera_results* results, size_t index); /* NULL: out of range */
void tessera_results_free(tessera_results* results);

/* The same, but writes the outputs to memory of the caller, one tensor for each output. E0403 or E0405 if an element
 * type or a size does not match. */
tessera_error* tessera_run_into(const tessera_executable* executable, const tessera_tensor* inputs, size_t count,
                                const tessera_tensor* outputs, size_t output_count);

#ifdef __cplusplus
}
#endif

#endif
