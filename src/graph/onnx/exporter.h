// The work of to_onnx: one attempt to write a graph in given versions of the domains.
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "graph/onnx/to_onnx.h"

namespace tessera {

class OnnxExporter {
  public:
    using Versions = std::map<std::string, int>;  // by domain
    OnnxExporter(const Graph& graph, const ToOnnxOptions& options, Versions versions)
        : options_(options), graph_(graph.clone()), versions_(std::move(versions)) {}

    Result<onnx::Model> run();
    // After an error: the domain and version without which it cannot be.
    const std::string& needed_domain() const { return needed_domain_; }
    int needed_version() const { return needed_version_; }

  private:
    Status write_graph(Graph& graph, onnx::Graph& out);
    Status write_outputs(Graph& graph, onnx::Graph& out);
    void write_constants(const Graph& graph, onnx::Graph& out);
    onnx::Type written_type(const Value& value);
    void write_types(const Graph& graph, onnx::Graph& out);
    Status write_node(Node& node, onnx::Graph& out);
    Status write_expansion(Node& node, onnx::Graph& out);
    Status write_made_since(Graph& graph, size_t first, onnx::Graph& out);  // nodes that adapting another one made
    Result<onnx::Attribute> attribute(const std::string& name, const Attr& attr);
    onnx::Node identity(const std::string& from, std::string to) const;
    Error needs(const std::string& domain, int version, Error error);
    const std::string& name(const Value& value);  // as written
    std::string fresh_name(const Graph& graph, const std::string& wanted);
    int version(const std::string& domain) const;

    const ToOnnxOptions& options_;
    std::unique_ptr<Graph> graph_;  // a copy: adapting nodes adds to it
    Versions versions_;
    std::set<std::string> domains_;
    std::unordered_map<const Value*, std::string> names_;  // other than their own
    std::unordered_set<const Value*> used_;
    std::unordered_set<std::string> made_names_;
    std::string needed_domain_;
    int needed_version_ = 0;
};

}  // namespace tessera
