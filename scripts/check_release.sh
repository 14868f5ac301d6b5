#!/usr/bin/env bash
# Build the sdist and the wheel into dist/, check them, and try the wheel where nothing else is installed.
# PYTHON names the interpreter; the tools and the libraries come from the package index.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(command -v "${PYTHON:-python3}")
dist=$PWD/dist
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
rm -rf "$dist"

"$python" -m venv "$scratch/tools"
"$scratch/tools/bin/python" -m pip install --quiet --disable-pip-version-check build twine
"$scratch/tools/bin/python" -m build --outdir "$dist"  # the wheel is built from the sdist, so the sdist is whole
"$scratch/tools/bin/python" -m twine check --strict "$dist"/*

"$python" -m venv "$scratch/installed"
"$scratch/installed/bin/python" -m pip install --quiet --disable-pip-version-check "$dist"/*.whl
export HOME="$scratch/home" PATH="$scratch/installed/bin:$PATH"
mkdir "$HOME"
cd "$scratch"
composer-hub --version
composer-hub train --list
composer-hub doctor --offline
composer-hub demo
python -c "from composer_hub.hub.spaces import app_folder; assert (app_folder() / 'app.py').is_file()"
