// The C interface over the C++ one. No exception leaves it.
#include "tessera/c_api.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "base/error.h"
#include "onnx/dtypes.h"
#include "tessera/tessera.h"

using tessera::Code;
using tessera::Datum;
using tessera::DType;
using tessera::Error;
using tessera::Executable;
using tessera::Model;
using tessera::Port;
using tessera::Result;
using tessera::Status;
using tessera::Tensor;

struct tessera_error {
    std::string code, message, text;
};
struct tessera_model {
    Model model;
};

namespace {

// A port as C sees it, and what its pointers point to.
struct CPort {
    explicit CPort(Port of) : port(std::move(of)) {
        for (const std::string& d : port.dims) dims.push_back(d.c_str());
        view.name = port.name.c_str();
        view.type = port.type.c_str();
        view.dtype = port.dtype ? tessera::onnx::dtype_to_onnx(*port.dtype) : 0;
        view.rank = port.ranked ? static_cast<int32_t>(port.sizes.size()) : -1;
        view.sizes = port.sizes.data();
        view.dims = dims.data();
        view.has_default = port.has_default;
    }
    CPort(const CPort&) = delete;
    CPort& operator=(const CPort&) = delete;

    const Port port;
    std::vector<const char*> dims;
    tessera_port view{};
};

using CPorts = std::vector<std::unique_ptr<CPort>>;

CPorts ports_of(std::vector<Port> ports) {
    CPorts out;
    for (Port& p : ports) out.push_back(std::make_unique<CPort>(std::move(p)));
    return out;
}

}  // namespace

struct tessera_executable {
    explicit tessera_executable(Executable of)
        : executable(std::move(of)), inputs(ports_of(executable.inputs())), outputs(ports_of(executable.outputs())) {}

    Executable executable;
    CPorts inputs, outputs;
};

struct tessera_results {
    explicit tessera_results(std::vector<Datum> of) : values(std::move(of)) {
        for (const Datum& v : values) {
            const Tensor& t = v.tensor();
            views.push_back({tessera::onnx::dtype_to_onnx(t.dtype()), static_cast<int32_t>(t.rank()), t.sizes().data(),
                             const_cast<void*>(t.data())});
        }
    }

    std::vector<Datum> values;
    std::vector<tessera_tensor> views;
};

namespace {

tessera_error* out_of_memory() {
    static tessera_error error{"E0408", "out of memory", "error E0408: out of memory"};
    return &error;
}

tessera_error* made_error(const Error& e) {
    return new tessera_error{std::string(tessera::code_name(e.code())), e.message(), e.to_string()};
}

// f's error, or null.
template <typename F>
tessera_error* guarded(F&& f) {
    try {
        const Status done = f();
        return done.ok() ? nullptr : made_error(done.error());
    } catch (const std::bad_alloc&) {
        return out_of_memory();
    } catch (const std::exception& e) {
        try {
            return made_error(Error(Code::E0801, "{}", e.what()));
        } catch (...) {
            return out_of_memory();
        }
    }
}

Status no_null(const void* pointer, const char* what) {
    if (pointer) return {};
    return Error(Code::E0501, "{} is NULL", what);
}

Result<Tensor> view_of(const tessera_tensor& given, const char* what, size_t index) {
    const auto dtype = tessera::onnx::dtype_from_onnx(given.dtype);
    if (!dtype)
        return Error(Code::E0501, "{} {}: {} is not an element type", what, index, given.dtype)
            .hint("tessera/c_api.h lists them");
    if (*dtype == DType::string)
        return Error(Code::E0501, "{} {}: string tensors cannot be passed", what, index)
            .hint("use the C++ or the Python interface");
    if (given.rank < 0 || static_cast<size_t>(given.rank) > tessera::kMaxRank)
        return Error(Code::E0501, "{} {}: expected a rank from 0 to {}, got {}", what, index, tessera::kMaxRank,
                     given.rank);
    if (given.rank > 0 && !given.sizes)
        return Error(Code::E0501, "{} {}: sizes is NULL, and the rank is {}", what, index, given.rank);
    tessera::Sizes sizes(given.sizes, given.sizes + given.rank);
    const auto elements = tessera::element_count(sizes);
    if (!elements.ok()) return Error(elements.error().code(), "{} {}: {}", what, index, elements.error().message());
    if (*elements > 0 && !given.data) return Error(Code::E0501, "{} {} has no data", what, index);
    return Tensor::view(*dtype, std::move(sizes), given.data, nullptr);
}

// Values for inputs in order; or by name, where one with a default is left out.
Result<std::vector<Datum>> run(const tessera_executable& e, const tessera_tensor* inputs, size_t count,
                               const tessera::RunOptions& options) {
    if (count != e.inputs.size())
        return Error(Code::E0402, "{} given, the model has {}",
                     count == 1 ? "1 input is" : fmt::format("{} inputs are", count), e.inputs.size());
    if (count > 0) TRY(no_null(inputs, "inputs"));
    std::vector<Datum> values;
    tessera::NamedData named;
    bool left_out = false;
    for (size_t i = 0; i < count; ++i) {
        if (!inputs[i].data && e.inputs[i]->port.has_default) {
            left_out = true;
            continue;
        }
        values.emplace_back(TRY(view_of(inputs[i], "input", i)));
        named.emplace(e.inputs[i]->port.name, values.back());
    }
    return left_out ? e.executable.run(named, options) : e.executable.run_in_order(values, options);
}

Status only_tensors(const std::vector<Datum>& values) {
    for (size_t i = 0; i < values.size(); ++i)
        if (!values[i].is_tensor() || values[i].tensor().dtype() == DType::string)
            return Error(Code::E0501, "output {} is not a numeric tensor", i)
                .hint("use the C++ or the Python interface");
    return {};
}

// A flag of C's, looked at while something runs, as one of C++'s.
class WatchedFlag {
  public:
    explicit WatchedFlag(const volatile int32_t* flag) {
        if (flag) watcher_ = std::thread([this, flag] { watch(flag); });
    }
    ~WatchedFlag() {
        if (!watcher_.joinable()) return;
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        wake_.notify_all();
        watcher_.join();
    }
    const std::atomic<bool>* flag() const { return watcher_.joinable() ? &set_ : nullptr; }

  private:
    void watch(const volatile int32_t* flag) {
        constexpr auto kLook = std::chrono::milliseconds(20);
        std::unique_lock lock(mutex_);
        while (!done_ && !set_) {
            set_ = *flag != 0;
            wake_.wait_for(lock, kLook);
        }
    }

    std::atomic<bool> set_ = false;
    bool done_ = false;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::thread watcher_;
};

Result<tessera::CompileOptions> options_from(const tessera_compile_options* given) {
    tessera::CompileOptions o;
    if (!given) return o;
    tessera_compile_options all;
    tessera_compile_options_init(&all);
    if (given->size < sizeof(size_t) || given->size > 64 * sizeof all)
        return Error(Code::E0501, "the options were not initialized by tessera_compile_options_init");
    std::memcpy(&all, given, std::min(given->size, sizeof all));  // an older caller has fewer
    if (all.target) o.target = all.target;
    if (all.precision) o.precision = all.precision;
    if (all.tier) o.tier = all.tier;
    if (all.cache) o.cache = all.cache;
    if (all.threads < 0) return Error(Code::E0501, "threads: expected a number of at least 0, got {}", all.threads);
    o.threads = all.threads;
    return o;
}

const tessera_port* port_at(const CPorts& ports, size_t index) {
    return index < ports.size() ? &ports[index]->view : nullptr;
}

}  // namespace

extern "C" {

size_t tessera_dtype_bytes(tessera_dtype dtype) {
    const auto known = tessera::onnx::dtype_from_onnx(dtype);
    return known ? tessera::dtype_bytes(*known) : 0;
}

const char* tessera_version(void) {
    static const std::string version(tessera::version());
    return version.c_str();
}
int32_t tessera_c_api_version(void) { return TESSERA_C_API_VERSION; }

const char* tessera_error_code(const tessera_error* error) { return error ? error->code.c_str() : ""; }
const char* tessera_error_message(const tessera_error* error) { return error ? error->message.c_str() : ""; }
const char* tessera_error_text(const tessera_error* error) { return error ? error->text.c_str() : ""; }
void tessera_error_free(tessera_error* error) {
    if (error != out_of_memory()) delete error;
}

tessera_error* tessera_model_load(const char* path, tessera_model** model) {
    if (model) *model = nullptr;
    return guarded([&]() -> Status {
        TRY(no_null(path, "path"));
        TRY(no_null(model, "model"));
        *model = new tessera_model{TRY(Model::load(path))};
        return {};
    });
}

tessera_error* tessera_model_from_onnx(const void* bytes, size_t size, tessera_model** model) {
    if (model) *model = nullptr;
    return guarded([&]() -> Status {
        TRY(no_null(bytes, "bytes"));
        TRY(no_null(model, "model"));
        *model = new tessera_model{TRY(Model::from_onnx({static_cast<const char*>(bytes), size}))};
        return {};
    });
}

void tessera_model_free(tessera_model* model) { delete model; }

void tessera_compile_options_init(tessera_compile_options* options) {
    if (options) *options = {sizeof *options, "host", "default", "full", nullptr, 0, nullptr};
}

tessera_error* tessera_compile(const tessera_model* model, const tessera_compile_options* options,
                               tessera_executable** executable) {
    if (executable) *executable = nullptr;
    return guarded([&]() -> Status {
        TRY(no_null(model, "model"));
        TRY(no_null(executable, "executable"));
        tessera::CompileOptions chosen = TRY(options_from(options));
        const bool has_cancel = options && options->size >= sizeof(tessera_compile_options);
        const WatchedFlag cancel(has_cancel ? options->cancel : nullptr);
        chosen.cancel = cancel.flag();
        *executable = new tessera_executable(TRY(tessera::compile(model->model, chosen)));
        return {};
    });
}

tessera_error* tessera_executable_save(const tessera_executable* executable, const char* path) {
    return guarded([&]() -> Status {
        TRY(no_null(executable, "executable"));
        TRY(no_null(path, "path"));
        return executable->executable.save(path);
    });
}

tessera_error* tessera_executable_load(const char* path, tessera_executable** executable) {
    if (executable) *executable = nullptr;
    return guarded([&]() -> Status {
        TRY(no_null(path, "path"));
        TRY(no_null(executable, "executable"));
        *executable = new tessera_executable(TRY(Executable::load(path)));
        return {};
    });
}

void tessera_executable_free(tessera_executable* executable) { delete executable; }

size_t tessera_input_count(const tessera_executable* executable) { return executable ? executable->inputs.size() : 0; }
size_t tessera_output_count(const tessera_executable* executable) {
    return executable ? executable->outputs.size() : 0;
}
const tessera_port* tessera_input(const tessera_executable* executable, size_t index) {
    return executable ? port_at(executable->inputs, index) : nullptr;
}
const tessera_port* tessera_output(const tessera_executable* executable, size_t index) {
    return executable ? port_at(executable->outputs, index) : nullptr;
}

tessera_error* tessera_run(const tessera_executable* executable, const tessera_tensor* inputs, size_t count,
                           tessera_results** results) {
    if (results) *results = nullptr;
    return guarded([&]() -> Status {
        TRY(no_null(executable, "executable"));
        TRY(no_null(results, "results"));
        std::vector<Datum> values = TRY(run(*executable, inputs, count, {}));
        TRY(only_tensors(values));
        *results = new tessera_results(std::move(values));
        return {};
    });
}

size_t tessera_results_count(const tessera_results* results) { return results ? results->views.size() : 0; }
const tessera_tensor* tessera_result(const tessera_results* results, size_t index) {
    return results && index < results->views.size() ? &results->views[index] : nullptr;
}
void tessera_results_free(tessera_results* results) { delete results; }

tessera_error* tessera_run_into(const tessera_executable* executable, const tessera_tensor* inputs, size_t count,
                                const tessera_tensor* outputs, size_t output_count) {
    return guarded([&]() -> Status {
        TRY(no_null(executable, "executable"));
        if (output_count != executable->outputs.size())
            return Error(Code::E0402, "memory for {} outputs is given, the model has {}", output_count,
                         executable->outputs.size());
        if (output_count > 0) TRY(no_null(outputs, "outputs"));
        tessera::RunOptions options;
        options.place = [&](size_t output, DType, const tessera::Sizes&) -> Result<std::optional<Tensor>> {
            return std::optional<Tensor>(TRY(view_of(outputs[output], "output", output)));
        };
        TRY(only_tensors(TRY(run(*executable, inputs, count, options))));
        return {};
    });
}

}  // extern "C"
