#!/usr/bin/env bash
# Measures what corrected mutants gain over the search without them: bench/mutate.py, with the models that it needs.
exec "$(dirname "$0")/with_models.sh" mutate "$@"
