"""Where programs look for ONNX Runtime's exceptions and compiled parts."""
