/* Loads, compiles and runs a model, handles errors, and runs from eight threads. usage: program MODEL.tsr
 * The model is y = x + x over f32[N,4]. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera/c_api.h"

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);            \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static void ok(tessera_error* error, int line) {
    if (!error) return;
    fprintf(stderr, "line %d: %s\n", line, tessera_error_text(error));
    exit(1);
}
#define OK(call) ok(call, __LINE__)

enum { kColumns = 4, kThreads = 8, kRuns = 50 };

static tessera_tensor floats(int64_t* sizes, float* data) {
    tessera_tensor t;
    t.dtype = TESSERA_F32;
    t.rank = 2;
    t.sizes = sizes;
    t.data = data;
    return t;
}

static void run_once(const tessera_executable* executable, int64_t rows, float first) {
    int64_t sizes[2];
    float x[16 * kColumns], y[16 * kColumns];
    tessera_results* results = NULL;
    const tessera_tensor* result;
    tessera_tensor input, output;
    int64_t i;
    sizes[0] = rows;
    sizes[1] = kColumns;
    for (i = 0; i < rows * kColumns; ++i) x[i] = first + (float)i;
    input = floats(sizes, x);
    OK(tessera_run(executable, &input, 1, &results));
    CHECK(tessera_results_count(results) == 1);
    CHECK(tessera_result(results, 1) == NULL);
    result = tessera_result(results, 0);
    CHECK(result->dtype == TESSERA_F32 && result->rank == 2 && result->sizes[0] == rows && result->sizes[1] == kColumns);
    for (i = 0; i < rows * kColumns; ++i) CHECK(((const float*)result->data)[i] == 2 * x[i]);
    tessera_results_free(results);
    output = floats(sizes, y);
    OK(tessera_run_into(executable, &input, 1, &output, 1));
    for (i = 0; i < rows * kColumns; ++i) CHECK(y[i] == 2 * x[i]);
}

struct job {
    const tessera_executable* executable;
    int number;
};

static void* run_many(void* given) {
    const struct job* job = (const struct job*)given;
    int i;
    for (i = 0; i < kRuns; ++i) run_once(job->executable, 1 + (job->number + i) % 16, (float)job->number);
    return NULL;
}

static void expect(tessera_error* error, const char* code, int line) {
    if (!error || strcmp(tessera_error_code(error), code) != 0 || !*tessera_error_message(error) ||
        !strstr(tessera_error_text(error), code)) {
        fprintf(stderr, "line %d: expected %s, got %s\n", line, code, tessera_error_text(error));
        exit(1);
    }
    tessera_error_free(error);
}
#define EXPECT(call, code) expect(call, code, __LINE__)

/* Memory that does not fit an output: the error names the output as the model does. */
static void run_into_little(const tessera_executable* executable) {
    int64_t sizes[2] = {2, kColumns}, fewer[2] = {1, kColumns};
    float x[2 * kColumns] = {0}, y[kColumns];
    tessera_tensor input = floats(sizes, x), output = floats(fewer, y);
    tessera_error* error = tessera_run_into(executable, &input, 1, &output, 1);
    CHECK(error && strstr(tessera_error_message(error), "output \"y\"") != NULL);
    EXPECT(error, "E0405");
}

int main(int argc, char** argv) {
    tessera_model* model = NULL;
    tessera_executable *executable = NULL, *loaded = NULL, *none = NULL;
    tessera_compile_options options;
    tessera_results* results = NULL;
    const tessera_port* port;
    pthread_t threads[kThreads];
    struct job jobs[kThreads];
    int64_t sizes[2] = {1, 3};
    float few[3] = {1, 2, 3};
    tessera_tensor wrong;
    volatile int32_t cancel = 1;
    int i;

    CHECK(argc == 3);
    CHECK(tessera_c_api_version() == TESSERA_C_API_VERSION && *tessera_version());
    CHECK(tessera_dtype_bytes(TESSERA_BF16) == 2 && tessera_dtype_bytes(0) == 0);

    EXPECT(tessera_model_load("/does/not/exist.onnx", &model), "E0101");
    CHECK(model == NULL);
    EXPECT(tessera_model_from_onnx("no", 2, &model), "E0103");
    EXPECT(tessera_model_load(NULL, &model), "E0501");
    OK(tessera_model_load(argv[1], &model));

    tessera_compile_options_init(&options);
    options.cache = "";
    options.cancel = &cancel;
    EXPECT(tessera_compile(model, &options, &executable), "E0410");
    CHECK(executable == NULL);
    options.cancel = NULL;
    options.tier = "quick";
    EXPECT(tessera_compile(model, &options, &executable), "E0501");
    options.tier = "full";
    OK(tessera_compile(model, &options, &executable));
    tessera_model_free(model);

    CHECK(tessera_input_count(executable) == 1 && tessera_output_count(executable) == 1);
    port = tessera_input(executable, 0);
    CHECK(strcmp(port->name, "x") == 0 && strcmp(port->type, "f32[N,4]") == 0 && port->dtype == TESSERA_F32);
    CHECK(port->rank == 2 && port->sizes[0] == -1 && port->sizes[1] == 4 && strcmp(port->dims[0], "N") == 0);
    CHECK(!port->has_default && tessera_input(executable, 1) == NULL);
    CHECK(strcmp(tessera_output(executable, 0)->name, "y") == 0);

    wrong = floats(sizes, few);
    EXPECT(tessera_run(executable, &wrong, 1, &results), "E0405");
    CHECK(results == NULL);
    EXPECT(tessera_run(executable, &wrong, 0, &results), "E0402");
    sizes[1] = -4;
    EXPECT(tessera_run(executable, &wrong, 1, &results), "E0108");
    sizes[1] = 4;
    wrong.dtype = TESSERA_I32;
    EXPECT(tessera_run(executable, &wrong, 1, &results), "E0403");
    wrong.dtype = 99;
    EXPECT(tessera_run(executable, &wrong, 1, &results), "E0501");

    run_once(executable, 3, 1);
    run_into_little(executable);
    for (i = 0; i < kThreads; ++i) {
        jobs[i].executable = executable;
        jobs[i].number = i;
        CHECK(pthread_create(&threads[i], NULL, run_many, &jobs[i]) == 0);
    }
    for (i = 0; i < kThreads; ++i) CHECK(pthread_join(threads[i], NULL) == 0);

    OK(tessera_executable_save(executable, argv[2]));
    tessera_executable_free(executable);
    OK(tessera_executable_load(argv[2], &loaded));
    run_once(loaded, 2, 5);
    run_into_little(loaded);
    tessera_executable_free(loaded);
    EXPECT(tessera_executable_load(argv[1], &none), "E0605");

    tessera_model_free(NULL);
    tessera_executable_free(NULL);
    tessera_results_free(NULL);
    tessera_error_free(NULL);
    puts("done");
    return 0;
}
