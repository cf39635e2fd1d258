#include "train/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/output_file.h"
#include "onnx/file.h"

namespace tessera {
namespace {

using HeaderJson = nlohmann::ordered_json;
constexpr const char* kMetadata = "__metadata__";
constexpr size_t kLengthBytes = 8, kAlignment = 64, kMostHeaderBytes = 100 << 20;

struct StoredType {
    const char* name;
    DType dtype;
};
constexpr StoredType kStoredTypes[] = {
    {"F64", DType::f64},      {"F32", DType::f32},          {"F16", DType::f16},       {"BF16", DType::bf16},
    {"I64", DType::i64},      {"I32", DType::i32},          {"I16", DType::i16},       {"I8", DType::i8},
    {"U64", DType::u64},      {"U32", DType::u32},          {"U16", DType::u16},       {"U8", DType::u8},
    {"BOOL", DType::boolean}, {"F8_E4M3", DType::f8e4m3fn}, {"F8_E5M2", DType::f8e5m2}};

template <typename... Args>
Error malformed(const std::filesystem::path& path, fmt::format_string<Args...> what, Args&&... args) {
    return Error(Code::E0110, "\"{}\" is not a safetensors file: {}", path.string(),
                 fmt::format(what, std::forward<Args>(args)...));
}

Result<Tensor> stored_tensor(const std::filesystem::path& path, const std::string& name, const HeaderJson& entry,
                             std::string_view data, const std::shared_ptr<const void>& owner) {
    const auto type = entry.find("dtype"), shape = entry.find("shape"), offsets = entry.find("data_offsets");
    if (type == entry.end() || !type->is_string() || shape == entry.end() || !shape->is_array() ||
        offsets == entry.end() || !offsets->is_array() || offsets->size() != 2)
        return malformed(path, "tensor \"{}\" has no dtype, shape or data_offsets", name);
    const auto known = std::find_if(std::begin(kStoredTypes), std::end(kStoredTypes),
                                    [&](const StoredType& t) { return type->get_ref<const std::string&>() == t.name; });
    if (known == std::end(kStoredTypes))
        return malformed(path, "tensor \"{}\" has the element type {}", name, type->get_ref<const std::string&>());
    Sizes sizes;
    for (const auto& d : *shape) {
        if (!d.is_number_unsigned() || sizes.size() == kMaxRank) return malformed(path, "the shape of \"{}\"", name);
        sizes.push_back(static_cast<int64_t>(std::min<uint64_t>(d.get<uint64_t>(), INT64_MAX)));
    }
    if (!(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned())
        return malformed(path, "the place of \"{}\"", name);
    const auto begin = (*offsets)[0].get<uint64_t>(), end = (*offsets)[1].get<uint64_t>();
    int64_t bytes = 0;
    if (begin > end || end > data.size() ||
        __builtin_mul_overflow(TRY(element_count(sizes)), int64_t(dtype_bytes(known->dtype)), &bytes) ||
        uint64_t(bytes) != end - begin)
        return malformed(path, "tensor \"{}\" is {}{} and has bytes {} to {} of {}", name, dtype_name(known->dtype),
                         to_string(sizes), begin, end, data.size());
    const char* from = data.data() + begin;
    if (reinterpret_cast<uintptr_t>(from) % dtype_bytes(known->dtype) == 0)
        return Tensor::view(known->dtype, std::move(sizes), from, owner);
    Tensor copy = TRY(Tensor::zeros(known->dtype, std::move(sizes)));
    if (bytes) std::memcpy(copy.mutable_data(), from, size_t(bytes));
    return copy;
}

}  // namespace

Result<NamedTensors> read_safetensors(const std::filesystem::path& path) {
    auto file = TRY(onnx::MappedFile::open(path));
    const std::string_view bytes = file->bytes();
    uint64_t length = 0;
    if (bytes.size() < kLengthBytes) return malformed(path, "it has {} bytes", bytes.size());
    for (size_t i = 0; i < kLengthBytes; ++i) length |= uint64_t(static_cast<unsigned char>(bytes[i])) << 8 * i;
    if (length > kMostHeaderBytes || length > bytes.size() - kLengthBytes)
        return malformed(path, "its header is to have {} bytes, the file has {}", length, bytes.size());
    std::string_view text = bytes.substr(kLengthBytes, length), data = bytes.substr(kLengthBytes + length);
    const HeaderJson header = HeaderJson::parse(text.begin(), text.end(), nullptr, false);
    if (!header.is_object()) return malformed(path, "its header is no JSON object");
    NamedTensors found;
    std::set<std::string> names;
    for (const auto& [name, entry] : header.items()) {
        if (!names.insert(name).second) return malformed(path, "\"{}\" is there twice", name);
        if (!entry.is_object()) return malformed(path, "\"{}\" is no JSON object", name);
        if (name != kMetadata) {
            found.tensors.emplace_back(name, TRY(stored_tensor(path, name, entry, data, file)));
            continue;
        }
        for (const auto& [key, value] : entry.items()) {
            if (!value.is_string()) return malformed(path, "the metadata \"{}\" is not a string", key);
            found.metadata[key] = value.get<std::string>();
        }
    }
    return found;
}

Status write_safetensors(const NamedTensors& what, const std::filesystem::path& path) {
    HeaderJson header = HeaderJson::object();
    if (!what.metadata.empty()) header[kMetadata] = what.metadata;
    int64_t at = 0;
    for (const auto& [name, t] : what.tensors) {
        const auto known = std::find_if(std::begin(kStoredTypes), std::end(kStoredTypes),
                                        [&, &t = t](const StoredType& s) { return s.dtype == t.dtype(); });
        if (known == std::end(kStoredTypes) || t.gpu() != kNoGpu)
            return Error(Code::E0213, "\"{}\" has element type {}, which the safetensors format does not support", name,
                         dtype_name(t.dtype()));
        header[name] = {{"dtype", known->name}, {"shape", t.sizes()}, {"data_offsets", {at, at + t.bytes()}}};
        at += t.bytes();
    }
    std::string text = header.dump(-1, ' ', false, HeaderJson::error_handler_t::replace);
    while ((kLengthBytes + text.size()) % kAlignment) text += ' ';
    std::string length;
    for (size_t i = 0; i < kLengthBytes; ++i) length += static_cast<char>(text.size() >> 8 * i & 0xff);
    OutputFile file = TRY(OutputFile::create(path));
    TRY(file.write(length));
    TRY(file.write(text));
    for (const auto& [name, t] : what.tensors)
        TRY(file.write({static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes())}));
    return file.commit();
}

}  // namespace tessera
