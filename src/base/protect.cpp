#include "base/protect.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

namespace tessera {
namespace {

constexpr uintmax_t kMostKept = uintmax_t{256} << 20;  // bytes of a model that are copied

namespace fs = std::filesystem;

bool write_file(const fs::path& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    return file.good();
}

// The model's file in `folder`, or where it is; empty where it cannot be had.
std::string keep_model(const Reproducer& reproducer, const fs::path& folder) {
    std::error_code failed;
    if (!reproducer.text) {
        const fs::path file = reproducer.file;
        if (fs::file_size(file, failed) > kMostKept || failed) return reproducer.file;
        return fs::copy_file(file, folder / file.filename(), failed) && !failed ? file.filename().string()
                                                                                : reproducer.file;
    }
    try {  // what made a fault may make another
        return write_file(folder / reproducer.name, reproducer.text()) ? reproducer.name : "";
    } catch (const std::exception&) {
        return "";
    }
}

std::string keep(const std::string& what, const std::string& pass, const Reproducer& reproducer) {
    static std::atomic<int> number{0};
    std::error_code failed;
    const fs::path temporary = fs::temp_directory_path(failed);
    if (failed) return {};
    const fs::path folder = temporary / fmt::format("tessera-fault-{}-{}", getpid(), ++number);
    if (!fs::create_directory(folder, failed) || failed) return {};
    const std::string model = keep_model(reproducer, folder);
    const std::string text = fmt::format("{}\nwhile: {}\nmodel: {}\nversion: {}\n", what, pass,
                                         model.empty() ? "could not be kept" : model, version());
    return write_file(folder / "message.txt", text) ? folder.string() : std::string();
}

}  // namespace

Error fault_error(const std::string& what, const std::string& pass, const Reproducer& reproducer) {
    Error error(Code::E0801, "{} ({})", what, pass);
    const std::string folder = keep(what, pass, reproducer);
    if (!folder.empty())
        return std::move(error)
            .note("reproducer: {}", folder)
            .hint("this is a bug in Tessera, not in your input; please report it with the reproducer");
    return std::move(error).hint("this is a bug in Tessera, not in your input; please report it with the model");
}

Error memory_error(const std::string& pass) { return Error(Code::E0408, "out of memory ({})", pass); }

}  // namespace tessera
