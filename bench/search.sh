#!/usr/bin/env bash
# Measures what the search over rewrites gains: bench/search.py, with the models that it needs.
exec "$(dirname "$0")/with_models.sh" search "$@"
