#!/usr/bin/env bash
# Compares compiled models with ONNX Runtime: bench/speed.py, with the models that it needs.
exec "$(dirname "$0")/with_models.sh" speed "$@"
