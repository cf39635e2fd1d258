// Inputs and outputs of a run as files (.npy, or .pb as ONNX writes values) and as text.
#pragma once

#include <filesystem>

#include "base/output_file.h"
#include "command.h"

namespace tessera::cli {

// A value for a port, from a file whose suffix says what it is.
Result<Datum> read_value(const std::filesystem::path& path, const Type& expected);

// "name=file" for one of the ports, or "file" alone where there is but one. E0401, E0501.
struct Assignment {
    size_t port;
    std::filesystem::path file;
};
Result<Assignment> parse_assignment(const std::string& text, const std::vector<Port>& ports, const char* option);

// A file that is opened before the run, so that a run does not end with nowhere to put its result.
class ValueFile {
  public:
    static Result<ValueFile> create(const std::filesystem::path& path);
    static Status check_ending(const std::filesystem::path& path);  // .npy or .pb. E0501
    Status write(const Datum& value, const std::string& name);      // by the suffix, .npy or .pb
    Status commit() { return file_.commit(); }
    const std::filesystem::path& path() const { return path_; }

  private:
    ValueFile(std::filesystem::path path, OutputFile file) : path_(std::move(path)), file_(std::move(file)) {}
    std::filesystem::path path_;
    OutputFile file_;
};

// The name under which --output-dir stores an output.
std::string file_name(const Port& port);

Json value_json(const Datum& value);
std::string value_text(const Datum& value);  // f32[2,3]  min -1.2  max 3.4  mean 0.1  [0.5, 1.5, ...]

// The largest difference, relative to the largest element of `a`; infinite where types or sizes differ.
double difference(const Datum& a, const Datum& b);

}  // namespace tessera::cli
