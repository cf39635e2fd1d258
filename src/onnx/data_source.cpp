#include "onnx/data_source.h"

#include <algorithm>
#include <charconv>

namespace tessera::onnx {
namespace fs = std::filesystem;
namespace {

Error outside(std::string_view location, std::string_view how) {
    return Error(Code::E0106, "external data \"{}\" {}", location, how)
        .hint("put the file beside the model (a copy, not a link) and name it by a relative path");
}

bool is_inside(const fs::path& folder, const fs::path& file) {
    auto [in_folder, in_file] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
    return in_folder == folder.end() && in_file != file.end();
}

Result<uint64_t> parse_size(const StringPair& entry) {
    uint64_t value = 0;
    const char* end = entry.value.data() + entry.value.size();
    auto [stop, status] = std::from_chars(entry.value.data(), end, value);
    if (status != std::errc() || stop != end)
        return Error(Code::E0206, "external data: {} \"{}\" is not a number of bytes", entry.key, entry.value);
    return value;
}

}  // namespace

DataSource DataSource::beside(const Model& model) {
    if (model.path.empty()) return DataSource();
    fs::path folder = model.path.parent_path();
    return DataSource(folder.empty() ? fs::path(".") : folder);
}

Result<std::shared_ptr<const MappedFile>> DataSource::open(std::string_view location) const {
    if (!has_folder_)
        return Error(Code::E0107, "external data \"{}\": the model came from memory, so it has no folder", location)
            .hint("read the model from its file");
    if (location.empty() || location.find('\0') != location.npos) return outside(location, "is not a file name");
    std::lock_guard lock(cache_->mutex);
    if (auto known = cache_->files.find(location); known != cache_->files.end()) return known->second;

    fs::path relative(location);
    if (relative.is_absolute()) return outside(location, "is an absolute path");
    fs::path plain = relative.lexically_normal();
    if (!plain.empty() && *plain.begin() == "..") return outside(location, "leads out of the model's folder");

    std::error_code failed;
    fs::path folder = fs::canonical(folder_, failed);
    if (failed)
        return Error(Code::E0107, "cannot open the model's folder \"{}\": {}", folder_.string(), failed.message());
    fs::path file = fs::canonical(folder / relative, failed);
    if (failed)
        return Error(Code::E0107, "external data \"{}\" cannot be opened: {}", location, failed.message())
            .hint("it belongs beside the model, in \"{}\"", folder_.string());
    if (!is_inside(folder, file)) return outside(location, "leads out of the model's folder through a link");

    auto mapped = MappedFile::open(file);
    if (!mapped.ok()) return Error(Code::E0107, "external data: {}", mapped.error().message());
    cache_->files.emplace(location, *mapped);
    return *mapped;
}

Result<Bytes> external_bytes(const Tensor& tensor, const DataSource& source, uint64_t expected) {
    std::string_view location;
    uint64_t offset = 0;
    std::optional<uint64_t> length;
    for (const StringPair& entry : tensor.external_data) {
        if (entry.key == "location") location = entry.value;
        if (entry.key == "offset") offset = TRY(parse_size(entry));
        if (entry.key == "length") length = TRY(parse_size(entry));
    }
    auto file = TRY(source.open(location));
    std::string_view bytes = file->bytes();
    if (offset > bytes.size())
        return Error(Code::E0107, "external data \"{}\" has {} bytes, the tensor starts at byte {}", location,
                     bytes.size(), offset)
            .hint("the data file is not the one this model was saved with, or it is cut short");
    uint64_t left = bytes.size() - offset;
    uint64_t size = length.value_or(std::min(expected, left));
    if (size > left)
        return Error(Code::E0107, "external data \"{}\" has {} bytes, the tensor takes {} from byte {}", location,
                     bytes.size(), size, offset)
            .hint("the data file is not the one this model was saved with, or it is cut short");
    return Bytes(bytes.substr(offset, size), file);
}

}  // namespace tessera::onnx
