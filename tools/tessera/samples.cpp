#include "samples.h"

#include <filesystem>

#include "graph/npy.h"
#include "help.h"
#include "onnx/file.h"
#include "training_data.h"

namespace tessera::cli {
namespace {

uint32_t little_endian(std::string_view bytes, size_t at, size_t count) {
    uint32_t n = 0;
    for (size_t i = count; i-- > 0;) n = n << 8 | static_cast<unsigned char>(bytes[at + i]);
    return n;
}

Error bad_archive(const std::filesystem::path& path, std::string_view what) {
    return Error(Code::E0110, "\"{}\" is not a readable .npz file: {}", path.string(), what)
        .hint("write it with numpy.savez, which does not compress");
}

// The arrays of an uncompressed .npz file, an archive of .npy files, by its central directory.
Result<NamedData> read_npz(const std::filesystem::path& path, const std::vector<Port>& ports) {
    constexpr size_t kEndBytes = 22, kEntryBytes = 46, kHeaderBytes = 30;
    const auto file = TRY(onnx::MappedFile::open(path));
    const std::string_view bytes = file->bytes();
    const size_t end = bytes.rfind("PK\5\6");
    if (end == std::string_view::npos || end + kEndBytes > bytes.size())
        return bad_archive(path, "it has no directory");
    const size_t entries = little_endian(bytes, end + 10, 2);
    size_t at = little_endian(bytes, end + 16, 4);
    NamedData sample;
    for (size_t i = 0; i < entries; ++i) {
        if (at + kEntryBytes > bytes.size() || bytes.substr(at, 4) != "PK\1\2")
            return bad_archive(path, "its directory is damaged");
        const size_t method = little_endian(bytes, at + 10, 2), size = little_endian(bytes, at + 24, 4);
        const size_t name_size = little_endian(bytes, at + 28, 2), header = little_endian(bytes, at + 42, 4);
        std::string name(bytes.substr(at + kEntryBytes, name_size));
        at += kEntryBytes + name_size + little_endian(bytes, at + 30, 2) + little_endian(bytes, at + 32, 2);
        if (method != 0) return bad_archive(path, "it is compressed");
        if (header + kHeaderBytes > bytes.size()) return bad_archive(path, "it is truncated");
        const size_t begin =
            header + kHeaderBytes + little_endian(bytes, header + 26, 2) + little_endian(bytes, header + 28, 2);
        if (size > bytes.size() || begin > bytes.size() - size) return bad_archive(path, "it is truncated");
        if (name.ends_with(".npy")) name.resize(name.size() - 4);
        const auto port = std::find_if(ports.begin(), ports.end(), [&](const Port& p) { return p.name == name; });
        if (port == ports.end())
            return Error(Code::E0401, "the model has no input \"{}\", which is in \"{}\"", name, path.string());
        sample[name] = TRY(read_npy(bytes.substr(begin, size), port->dtype));
    }
    return sample;
}

Result<std::vector<NamedData>> read_folder(const std::string& folder, const std::vector<Port>& ports, int64_t limit) {
    std::vector<std::filesystem::path> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
        if (entry.path().extension() == ".npz") files.push_back(entry.path());
    if (error) return Error(Code::E0101, "cannot read the folder \"{}\": {}", folder, error.message());
    if (files.empty())
        return Error(Code::E0501, "--data: there is no .npz file in \"{}\"", folder)
            .hint("numpy.savez(file, NAME=array, ...) writes the inputs of one run");
    std::sort(files.begin(), files.end());
    if (limit > 0 && files.size() > size_t(limit)) files.resize(size_t(limit));
    std::vector<NamedData> samples;
    for (const auto& file : files) samples.push_back(TRY(read_npz(file, ports)));
    return samples;
}

Result<std::vector<NamedData>> read_arrays(const GivenSamples& given, const std::vector<Port>& ports) {
    const TrainingData all = TRY(TrainingData::read(given.data, ports));
    int64_t size = given.batch;
    if (size == 0) size = !ports.empty() && !ports[0].sizes.empty() ? std::max<int64_t>(ports[0].sizes[0], 1) : 1;
    TRY(all.check_batch(size));
    const auto order = all.order({}, 0);
    std::vector<NamedData> samples;
    for (int64_t k = 0; k < all.batches(size) && (given.limit == 0 || k < given.limit); ++k)
        samples.push_back(TRY(all.batch(order, k, size)));
    return samples;
}

}  // namespace

void GivenSamples::add_options(CLI::App& c) {
    c.add_option("--data", data,
                 "Arrays for the model's inputs, in order, or NAME=FILE; the first dimension counts examples. Or a "
                 "folder of .npz files, one for each run")
        ->option_text("X.npy,... | DIR");
    c.add_option("--random", random, "Use N random inputs instead of data")->option_text("N")->check(at_least(1));
    c.add_option("--batch", batch, "Examples per run (the model's batch size, or 1)")
        ->option_text("N")
        ->check(at_least(1));
    c.add_option("--limit", limit, "Use at most N runs")->option_text("N")->check(at_least(1));
    c.add_option("--dim", dims, "Size of a symbolic dimension in random inputs")
        ->option_text("NAME=SIZE ...")
        ->allow_extra_args(false);
    c.add_option("--seed", seed, "Seed for random inputs (0)")->option_text("N");
}

Result<std::vector<NamedData>> GivenSamples::read(const Model& model) const {
    if (!data.empty() && random > 0) return Error(Code::E0501, "--data and --random exclude each other");
    if (!given())
        return Error(Code::E0501, "there is no data to run the model on")
            .hint("give inputs with --data x.npy, or use --random 8 for a first look");
    const std::vector<Port> ports = model.inputs();
    if (random == 0)
        return std::filesystem::is_directory(data) ? read_folder(data, ports, limit) : read_arrays(*this, ports);
    const SymbolValues sizes = TRY(parse_dims(dims));
    TRY(check_dims(sizes, model));
    auto all = model.suggested_sizes();
    for (const auto& [name, size] : sizes) all[name] = size;
    std::vector<NamedData> samples;
    for (int64_t i = 0; i < random; ++i) samples.push_back(TRY(model.random_inputs(seed + uint64_t(i), all)));
    return samples;
}

}  // namespace tessera::cli
