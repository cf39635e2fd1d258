#include "api/bundle_text.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"

namespace tessera {
namespace {

constexpr std::string_view kHeader = R"(/* @MODEL@, compiled by Tessera for @TARGET@. */
#ifndef @BIG@_H
#define @BIG@_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define @BIG@_BUNDLE_VERSION @VERSION@
#define @BIG@_ID UINT64_C(@ID@)   /* the same in this header, the code and the weights file */
#define @BIG@_WEIGHT_BYTES @WEIGHTS@    /* without the file's header */
#define @BIG@_ARENA_BYTES @ARENA@      /* memory that one run works in, of any alignment */
#define @BIG@_THREADS @THREADS@           /* the most that @NAME@_run_parallel may use */
#define @BIG@_INPUTS @INPUTS@
#define @BIG@_OUTPUTS @OUTPUTS@

@PORTS@
/* 0: done; 1: a pointer is null; 2: an index in an input is out of range. Runs at the same time need an arena each. */
int @NAME@_run(const void* const* inputs, void* const* outputs, const void* weights, void* arena);

/* The same on several threads. parallel_for calls body for ranges that together are [0, extent), each once, and returns when
 * all are done; thread is below @BIG@_THREADS and no other call in progress has the same. */
typedef void (*@NAME@_body)(void* data, int64_t begin, int64_t end, int thread);
typedef void (*@NAME@_parallel_for)(void* context, int64_t extent, @NAME@_body body, void* data);
int @NAME@_run_parallel(const void* const* inputs, void* const* outputs, const void* weights, void* arena,
                        @NAME@_parallel_for parallel_for, void* context);

uint64_t @NAME@_id(void);

#define @BIG@_WEIGHTS_HEADER 64 /* bytes before the weights in their file: magic, version, id, size, checksum */

/* Whether the bytes of a weights file belong to this header and this code, and are whole: null, or what is wrong. */
static inline const char* @NAME@_check_weights(const void* file, size_t size) {
    const unsigned char* bytes = (const unsigned char*)file;
    uint64_t fields[3], sum = 0, word;
    uint32_t version;
    size_t at;
    if (@NAME@_id() != @BIG@_ID) return "the code is not of the same bundle as the header";
    if (size < @BIG@_WEIGHTS_HEADER || memcmp(bytes, "@MAGIC@", 8) != 0) return "this is not a weights file of a bundle";
    memcpy(&version, bytes + 8, sizeof version);
    memcpy(fields, bytes + 16, sizeof fields);
    if (version != @BIG@_BUNDLE_VERSION) return "the weights file is of another version of bundles";
    if (fields[0] != @BIG@_ID) return "the weights file is of another model, or another build of it";
    if (fields[1] != @BIG@_WEIGHT_BYTES || size != @BIG@_WEIGHTS_HEADER + (size_t)@BIG@_WEIGHT_BYTES)
        return "the weights file is cut short, or too long";
    for (at = @BIG@_WEIGHTS_HEADER; at < size; at += 8) {
        memcpy(&word, bytes + at, 8);
        sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 32;
    }
    return sum == fields[2] ? NULL : "the weights file is damaged";
}

/* The weights in a file that was checked. */
static inline const void* @NAME@_weights(const void* file) { return (const char*)file + @BIG@_WEIGHTS_HEADER; }

#ifdef __cplusplus
}
#endif
#endif
)";

constexpr std::string_view kExample =
    R"(/* Runs @NAME@ once: ./example [-w WEIGHTS] [INPUT...] reads raw inputs in the model's order (zeros where none is given) and
 * writes each output to output_0.bin, output_1.bin, ... */
#include "@NAME@.h"

#include <stdio.h>
#include <stdlib.h>

static void* read_file(const char* path, size_t* size) {
    FILE* file = fopen(path, "rb");
    void* bytes = NULL;
    long end;
    if (file && fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        *size = (size_t)end;
        bytes = malloc(*size ? *size : 1);
        if (bytes && fread(bytes, 1, *size, file) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    if (file) fclose(file);
    if (!bytes) fprintf(stderr, "%s: cannot be read\n", path);
    return bytes;
}

int main(int argc, char** argv) {
    const char* weights_path = "@NAME@.weights";
    const char* wrong;
    const void* inputs[@BIG@_INPUTS + 1] = {NULL};
    void* outputs[@BIG@_OUTPUTS + 1] = {NULL};
    size_t size = 0;
    int first = 1, i, status;
    void *file, *arena;
    if (argc > 2 && strcmp(argv[1], "-w") == 0) {
        weights_path = argv[2];
        first = 3;
    }
    file = read_file(weights_path, &size);
    if (!file) return 1;
    wrong = @NAME@_check_weights(file, size);
    if (wrong) {
        fprintf(stderr, "%s: %s\n", weights_path, wrong);
        return 1;
    }
    for (i = 0; i < @BIG@_INPUTS; ++i) {
        if (first + i < argc) {
            inputs[i] = read_file(argv[first + i], &size);
            if (inputs[i] && size != @NAME@_inputs[i].bytes) {
                fprintf(stderr, "%s: %s takes %zu bytes, the file has %zu\n", argv[first + i], @NAME@_inputs[i].name,
                        @NAME@_inputs[i].bytes, size);
                return 1;
            }
        } else {
            inputs[i] = calloc(@NAME@_inputs[i].bytes + 1, 1);
        }
        if (!inputs[i]) return 1;
    }
    for (i = 0; i < @BIG@_OUTPUTS; ++i)
        if (!(outputs[i] = calloc(@NAME@_outputs[i].bytes + 1, 1))) return 1;
    arena = malloc(@BIG@_ARENA_BYTES);
    if (!arena) return 1;
    status = @NAME@_run(inputs, outputs, @NAME@_weights(file), arena);
    if (status != 0) {
        fprintf(stderr, "@NAME@_run: %s\n", status == 2 ? "an index in an input is out of range" : "a pointer is null");
        return 1;
    }
    for (i = 0; i < @BIG@_OUTPUTS; ++i) {
        char path[32];
        FILE* out;
        snprintf(path, sizeof path, "output_%d.bin", i);
        out = fopen(path, "wb");
        if (!out || fwrite(outputs[i], 1, @NAME@_outputs[i].bytes, out) != @NAME@_outputs[i].bytes || fclose(out) != 0) {
            fprintf(stderr, "%s: cannot be written\n", path);
            return 1;
        }
        printf("%s: %s %s written to %s\n", @NAME@_outputs[i].name, @NAME@_outputs[i].dtype, @NAME@_outputs[i].shape, path);
    }
    return 0;
}
)";

constexpr std::string_view kMakefile = R"(# cc alone: no Tessera, no C++.
example: example.c @NAME@.h @CODE@
	$(CC) -O2 -o $@ example.c @CODE@ -lm@RPATH@
@LIBRARY@
clean:
	rm -f example output_*.bin
.PHONY: clean
)";

std::string filled(std::string_view text, const std::vector<std::pair<std::string, std::string>>& values) {
    std::string out;
    while (!text.empty()) {
        const size_t at = text.find('@');
        out += text.substr(0, at);
        if (at == std::string_view::npos) break;
        const size_t end = text.find('@', at + 1);
        const std::string_view name = text.substr(at + 1, end - at - 1);
        const auto found = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == name; });
        out += found == values.end() ? "@" : found->second;
        text.remove_prefix(found == values.end() ? at + 1 : end + 1);
    }
    return out;
}

std::string upper(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
}

// A string literal of C.
std::string c_string(std::string_view text) {
    std::string out = "\"";
    for (char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            (out += '\\') += c;
        else if (byte < 0x20 || byte == 0x7f || c == '?')
            out += fmt::format("\\{:03o}", byte);
        else
            out += c;
    }
    return out + "\"";
}

// Text inside a comment of C.
std::string commented(std::string_view text) {
    std::string out;
    for (char c : text)
        out += static_cast<unsigned char>(c) < 0x20 || (c == '/' && (out.ends_with('*') || out.empty())) ? ' ' : c;
    return out;
}

int64_t bytes_of(const Port& port) {
    int64_t n = static_cast<int64_t>(dtype_bytes(*port.dtype));
    for (int64_t size : port.sizes) n *= size;
    return n;
}

std::string ports_text(const BundleText& b) {
    const std::string big = upper(b.name);
    std::string out = fmt::format(
        "typedef struct {{\n    const char *name, *dtype, *shape;\n    size_t bytes;\n}} {}_port;\n\n", b.name);
    for (const auto& [what, ports] : {std::pair{"inputs", &b.inputs}, {"outputs", &b.outputs}}) {
        std::string rows;
        for (size_t i = 0; i < ports->size(); ++i) {
            const Port& p = (*ports)[i];
            out += fmt::format("/* {} {}: {}, {} of {} */\n", what == std::string_view("inputs") ? "input" : "output",
                               i, commented(p.name), c_type(*p.dtype), commented(p.type));
            rows += fmt::format("    {{{}, {}, {}, {}}},\n", c_string(p.name), c_string(dtype_name(*p.dtype)),
                                c_string(fmt::format("[{}]", fmt::join(p.sizes, ","))), bytes_of(p));
        }
        if (rows.empty()) rows = "    {\"\", \"\", \"\", 0},\n";
        out += fmt::format("static const {}_port {}_{}[] = {{\n{}}};\n\n", b.name, b.name, what, rows);
    }
    return out;
}

std::vector<std::pair<std::string, std::string>> values_of(const BundleText& b) {
    const bool shared = b.code_file.ends_with(".so");
    return {{"NAME", b.name},
            {"BIG", upper(b.name)},
            {"MODEL", commented(b.model)},
            {"TARGET", b.target},
            {"VERSION", std::to_string(kBundleVersion)},
            {"ID", fmt::format("0x{:016x}", b.id)},
            {"WEIGHTS", std::to_string(b.weight_bytes)},
            {"ARENA", std::to_string(b.arena_bytes)},
            {"THREADS", std::to_string(b.threads)},
            {"INPUTS", std::to_string(b.inputs.size())},
            {"OUTPUTS", std::to_string(b.outputs.size())},
            {"MAGIC", std::string(kWeightsMagic)},
            {"PORTS", ports_text(b)},
            {"CODE", b.code_file},
            {"LIBRARY", shared ? "" : fmt::format("\nlib{0}.so: {0}.o\n\t$(CC) -shared -o $@ $< -lm\n", b.name)},
            {"RPATH", shared ? " -Wl,-rpath,'$$ORIGIN'" : ""}};
}

}  // namespace

std::string c_type(DType dtype) {
    switch (dtype) {
        case DType::f32: return "float";
        case DType::f64: return "double";
        case DType::f16:
        case DType::bf16: return "uint16_t";
        case DType::boolean: return "uint8_t";
        case DType::string: return {};
        default: break;
    }
    if (!is_int(dtype)) return {};
    return fmt::format("{}int{}_t", is_signed_int(dtype) ? "" : "u", 8 * dtype_bytes(dtype));
}

std::string bundle_header(const BundleText& bundle) { return filled(kHeader, values_of(bundle)); }
std::string bundle_example(const BundleText& bundle) { return filled(kExample, values_of(bundle)); }
std::string bundle_makefile(const BundleText& bundle) { return filled(kMakefile, values_of(bundle)); }

uint64_t bundle_checksum(std::string_view words, uint64_t sum) {
    for (size_t at = 0; at < words.size(); at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, words.data() + at, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
        sum ^= sum >> 32;
    }
    return sum;
}

}  // namespace tessera
