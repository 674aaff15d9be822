# `make` lists the targets. Everything they need from outside is installed by
# `make setup` into $GRAPEVINE_CACHE, outside of the checkout.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Go and npm want a home folder, also where a build machine sets none.
ifeq ($(origin HOME),undefined)
export HOME := $(shell getent passwd "$$(id -u)" | cut -d: -f6)
endif

# Programs that ship have no cgo. Tests are built in the same way: some run in containers without a C library.
export CGO_ENABLED ?= 0

BUILD := build
BINARY := $(BUILD)/grapevine
LAB := $(BUILD)/grapevine-lab
CACHE := $(or $(GRAPEVINE_CACHE),$(HOME)/.cache/grapevine)
SETUP := internal/setup/setup.sh
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

PACKAGES ?= ./...
# Of a package, on a machine that is several times slower than a developer's.
TEST_TIMEOUT ?= 20m
RACE_TIMEOUT ?= 45m
FUZZTIME ?= 10s
BENCH ?= .
BENCHTIME ?= 1s
SOAK ?= 25m
QUEUE ?= 5m
LOG ?= 10m
MUTANTS ?= 100
MUTANTS_SEED ?= 1
# Folders that the race detector covers. Not replay, which runs policies in virtual time and becomes ten
# times slower; not demo and bench, which start programs that the detector does not see.
CONCURRENT := cluster events extproc indexer picker pd internal/multicluster internal/admin internal/budget internal/cli internal/kubeapi internal/listen internal/share internal/lab/conformance internal/lab/kvstream internal/lab/record internal/lab/sim internal/lab/workload internal/history internal/pools internal/sandbox internal/server internal/tracing internal/watchdog
# Their packages with goroutines, channels, locks or atomic values in code or tests.
RACE_PACKAGES ?= $(sort $(patsubst %/,./%,$(dir $(shell grep -rlE '^\s*go |\.Go\b|"sync|make.chan|<-|httptest\.New' --include='*.go' $(wildcard $(CONCURRENT))))))

.PHONY: help
help: ## list the targets
	@printf 'Usage: make TARGET [VARIABLE=value]\n\nTargets:\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nVariables:\n'
	@printf '  %-15s %s\n' \
		GRAPEVINE_CACHE 'folder for parts from outside ($(CACHE))' \
		ENVOY 'an Envoy binary to use instead of the installed one' \
		PACKAGES 'packages of test, fuzz, bench and cover ($(PACKAGES))' \
		FUZZTIME 'duration of each fuzz target ($(FUZZTIME))' \
		BENCH 'pattern of the benchmarks that bench runs ($(BENCH))' \
		BENCHTIME 'duration of each benchmark ($(BENCHTIME))' \
		REASON 'why bench-store may raise stored figures' \
		SOAK 'duration of soak ($(SOAK))' \
		LOG 'duration of test-log ($(LOG))' \
		MUTANTS 'random changes of test-mutants ($(MUTANTS))' \
		MUTANTS_SEED 'seed of these changes ($(MUTANTS_SEED))' \
		STRUCTURES 'structures of test-long in the FIFO model ($(STRUCTURES))' \
		SEARCH 'structures of test-long in the engine model ($(SEARCH))' \
		SEARCH_SEED 'seed of that search ($(SEARCH_SEED))'

.PHONY: setup
setup: ## install what tests and demo need into the cache folder
	@$(SETUP)

.PHONY: setup-demo
setup-demo:
	@$(SETUP) envoy

.PHONY: build
build: ## build the static binaries build/grapevine and build/grapevine-lab
	@mkdir -p $(BUILD)
	CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $(BUILD)/ ./cmd/grapevine ./cmd/grapevine-lab

.PHONY: release
release: ## build archives, wheels and images of linux amd64 and arm64 with sums and bills of materials, into build/release
	@python3 deploy/release/release.py --version $(VERSION) --out $(BUILD)/release

.PHONY: demo
demo: setup-demo build ## show the main job: engines, replicas and a real Envoy (90 s)
	@$(LAB) demo

.PHONY: demo-ha
demo-ha: setup-demo build ## show what clients notice when replicas die, restart and roll
	@$(LAB) demo --ha

.PHONY: demo-pd
demo-pd: setup-demo build ## show prefill and decode apart against the same engines together, at two loads (150 s)
	@$(LAB) demo --pd

.PHONY: demo-quality
demo-quality: setup-demo build ## compare hits and times of 1, 3 and 5 replicas, sharing or cut off, and one application on all engines (6 minutes)
	@$(LAB) demo --quality

.PHONY: demo-flow
demo-flow: setup-demo build ## show what tenants get of full engines over three replicas, one of which dies (80 s)
	@$(LAB) demo --flow

.PHONY: test-queue
test-queue: setup ## kill one of three replicas every 20 s for QUEUE (5m) while requests wait; check shares and permits
	go test ./internal/e2e -run TestQueueOutlivesReplicas -count=1 -timeout 20m -v -queue.long $(QUEUE)

.PHONY: demo-clusters
demo-clusters: setup-demo build ## show two clusters: one overloaded, the link cut and healed, the other killed (2 minutes)
	@$(LAB) demo --clusters

.PHONY: demo-batch
demo-batch: setup-demo build ## show interactive requests beside batch jobs, with and without a queue; draw build/batch.svg (4 minutes)
	@$(LAB) demo --batch --plot $(BUILD)/batch.svg

.PHONY: demo-faults
demo-faults: setup-demo build ## inject engine faults one after another and count their effects on clients (6 minutes)
	@$(LAB) demo --faults

.PHONY: test-log
test-log: setup ## block the log of one of three busy replicas behind Envoy for LOG (10m): no request fails, lost lines are counted
	go test ./internal/lab/demo -run '^TestBlockedLog$$' -count=1 -timeout 2h -v -log.long $(LOG)

.PHONY: soak
soak: setup-demo build ## watch memory and goroutines of three busy replicas for SOAK, and that they take no healthy engine out of service
	@$(LAB) bench --soak $(SOAK)

.PHONY: check
check: ## run unit tests and lint: no network, no Envoy, a minute once built
	GRAPEVINE_QUICK=1 go test -json -timeout 5m $(PACKAGES) | python3 internal/setup/check.py
	@$(MAKE) lint

.PHONY: quick
quick: ## run the unit tests of the packages that your change touches, and the architecture rules (a minute once built)
	GRAPEVINE_QUICK=1 go test -timeout 5m $$(internal/setup/changed.sh) ./internal/arch

.PHONY: golden
golden: ## rewrite all golden files and generated tables; review the diff
	go test ./internal/problems -rewrite
	go test ./internal/docs -rewrite
	go test ./internal/server -run TestMetricsPage -rewrite
	go test ./internal/commands -run TestFlagTable -rewrite
	go test ./extproc/envoyconf -rewrite
	go test ./internal/arch -run TestPublicAPI -rewrite

.PHONY: test
test: setup build ## run all tests
	go test -timeout $(TEST_TIMEOUT) $(PACKAGES)

.PHONY: test-steps
test-steps: ## count the statements that decoders run for each byte (4 minutes once built)
	go run ./internal/testkit/steps

.PHONY: test-oracle
test-oracle: setup ## compare what replicas say of caches with what engines made of libzmq say, under faults
	go test -tags oracle -timeout 10m -count 1 -v -run '^TestOracle$$' ./internal/server

.PHONY: test-continue
test-continue: setup ## kill engines while 1,000 streams run behind Envoy: other engines continue them, with the same answers (20 s once built)
	go test ./internal/e2e -run '^TestContinue$$' -timeout 10m -count 1 -v -args -continue.streams 1000

.PHONY: test-mixed
test-mixed: setup ## roll three replicas under load from the release in internal/e2e/testdata to this one, and back (2 minutes; builds that release once)
	go test -tags mixed -timeout 15m -count 1 -v -run '^TestReleases' ./internal/e2e

.PHONY: test-mutants
test-mutants: ## make small changes to the program, one at a time: tests must notice those of the list, and most of MUTANTS random ones
	go run ./internal/testkit/mutants
	go run ./internal/testkit/mutants -random $(MUTANTS) -seed $(MUTANTS_SEED) -for 4h

# The list has a block of about 20 changes for each part. CI tries one part and a sample chosen by the commit.
.PHONY: test-mutants-short
test-mutants-short: ## fail if a rule of trust, budgets or admission can be removed unnoticed; print what happens to a part of the listed changes and 40 random ones (10 minutes)
	go run ./internal/testkit/mutants -rules -for 5m
	-go run ./internal/testkit/mutants -part $$((16#$$(git rev-parse --short=4 HEAD) % 6 + 1))/6 -for 2m
	-go run ./internal/testkit/mutants -random 40 -seed $$(git rev-parse HEAD) -for 3m -caught 0.5

# How many structures the long tests of the routing rule try, and from which seed.
STRUCTURES ?= 200000
SEARCH ?= 400
SEARCH_SEED ?= 1

.PHONY: test-long
test-long: ## look longer for loads that break the default policy (STRUCTURES, SEARCH, SEARCH_SEED), and for faults that break a federation
	go test -timeout 4h ./picker/plugins -run 'TestLimitExact|TestCopiesSum' -structures $(STRUCTURES)
	go test -timeout 4h ./cluster/federation -run TestFaults -federation.seeds 1000
	go test -timeout 4h -v ./internal/lab/replay -run 'TestSearch' -search $(SEARCH) -search-seed $(SEARCH_SEED)

# What the protocol demands of a proxy, and what the shipped configurations promise.
# Not TestEnvoyStreams and TestEnvoyConnect: Envoy 1.39.3 does not pass on streams over
# HTTP/2 that have no end in full duplex (deploy/envoy/README.md).
ENVOY_TESTS := ^Test(EnvoyAccepts|EnvoyModes|EnvoyMovesWaitingRequests|EnvoyRename|EnvoyTrust|EnvoyRoutingHeaders|EnvoyAnswerModel|EnvoyRewriteUnseen|EnvoyStripsIntent|EnvoyUpgrade|EnvoyUpload|EnvoyUsage|GatewayShapes)$$

.PHONY: test-envoys
test-envoys: setup ## run the protocol tests on every supported version of Envoy
	@$(SETUP) envoys
	@go test -c -o $(BUILD)/extproc.test ./extproc && go test -c -o $(BUILD)/envoyconf.test ./extproc/envoyconf
	@failed=0; for envoy in $(CACHE)/envoys/envoy-* $(CACHE)/bin/envoy; do \
		version=$$($$envoy --version | grep -o '/[0-9][0-9.]*/' | tr -d /); \
		for package in extproc extproc/envoyconf; do \
			if (cd $$package && ENVOY=$$envoy $(CURDIR)/$(BUILD)/$${package##*/}.test -test.run '$(ENVOY_TESTS)' >$(CURDIR)/$(BUILD)/envoys.log 2>&1); then \
				printf 'ok    Envoy %-8s %s\n' "$$version" $$package; \
			else \
				printf 'FAIL  Envoy %-8s %s\n' "$$version" $$package; cat $(BUILD)/envoys.log; failed=1; \
			fi; \
		done; \
	done; exit $$failed

# Real nginx, HAProxy and Caddy with the examples of deploy/proxies, and Envoy with those of deploy/envoy.
# LiteLLM and LangChain with those of docs/examples.
.PHONY: test-proxies
test-proxies: ## run the examples for proxies and clients, unchanged (as root)
	@$(SETUP) envoy proxies clients
	go test -tags proxies -count 1 -timeout 10m ./internal/e2e/proxies

# The status page in a real browser, with faults in engines.
.PHONY: test-page
test-page: ## look at the status page in a browser; PAGE_ARGS=-rewrite makes the pictures of the documentation, PAGE_ARGS=-all opens all pages of the site
	@$(SETUP) envoy browser promtool
	go test -tags page -count 1 -timeout 15m ./internal/e2e/page -args $(PAGE_ARGS)

# A real API server: its parts take minutes to build once, so that they have a
# target of their own. The tests fail where the parts are missing.
.PHONY: setup-kube
setup-kube: ## build a Kubernetes API server and what tests do with it
	@$(dir $(SETUP))kube.sh >/dev/null

KUBE_PACKAGES := ./internal/kubeapi ./picker/discovery/kube ./cluster/federation/kube ./deploy

# The charts that other pickers publish, as far as they can be had.
.PHONY: setup-charts
setup-charts:
	@$(dir $(SETUP))gateways.sh charts >/dev/null

.PHONY: test-kube
test-kube: setup-kube setup-charts setup build ## run the tests on a real Kubernetes API server
	@$(SETUP) promtool
	KUBE_PARTS=$$($(dir $(SETUP))kube.sh --where) KUBE_CHARTS=$$($(dir $(SETUP))gateways.sh --where charts) go test -count=1 -timeout $(TEST_TIMEOUT) -tags kube $(KUBE_PACKAGES)

# The suite that certifies gateways, with Grapevine as the picker of all its pools.
.PHONY: setup-gateways
setup-gateways: setup-kube
	@$(dir $(SETUP))gateways.sh >/dev/null

.PHONY: test-gie
test-gie: setup-gateways setup ## run the conformance suite of the Gateway API inference extension behind a real Envoy
	KUBE_PARTS=$$($(dir $(SETUP))kube.sh --where) GIE_SUITE=$$($(dir $(SETUP))gateways.sh --where)/gie.test \
		go test -count=1 -timeout 30m -tags kube -v -run '^TestSuite$$' ./internal/e2e/kube

# Endpoint pickers of other projects, which only the conformance reports run.
.PHONY: setup-pickers
setup-pickers: setup-kube
	@$(dir $(SETUP))gateways.sh lwepp >/dev/null
	@$(dir $(SETUP))gateways.sh epp >/dev/null

REPORTS = KUBE_PARTS=$$($(dir $(SETUP))kube.sh --where) VERSION=$(VERSION) \
	LWEPP=$$($(dir $(SETUP))gateways.sh --where lwepp)/picker GIE_EPP=$$($(dir $(SETUP))gateways.sh --where epp)/picker \
	go test -count=1 -timeout 40m -tags kube -v -run '^TestReports$$' ./internal/e2e/kube

.PHONY: conformance-reports
conformance-reports: setup-pickers ## test the conformance of three endpoint pickers and store docs/conformance-reports (10 minutes; minutes to build once)
	$(REPORTS) -args -reports.write
	go test -count=1 ./internal/lab/conformance -run '^TestPages$$' -rewrite

.PHONY: test-conformance
test-conformance: setup-pickers ## test the conformance of three endpoint pickers and compare with docs/conformance-reports
	$(REPORTS)

.PHONY: setup-envoy-gateway
setup-envoy-gateway: setup-kube
	@$(dir $(SETUP))gateways.sh eg >/dev/null

.PHONY: test-envoy-gateway
test-envoy-gateway: setup-envoy-gateway setup ## send requests through Envoy Gateway to an InferencePool whose picker is Grapevine (minutes to build once)
	KUBE_PARTS=$$($(dir $(SETUP))kube.sh --where) ENVOY_GATEWAY=$$($(dir $(SETUP))gateways.sh --where eg)/harness \
		go test -count=1 -timeout 15m -tags kube -v -run '^TestEnvoyGateway$$' ./internal/e2e/kube

.PHONY: test-rolling
test-rolling: setup-kube setup ## replace all replicas and engines of a pool under load, pods of a real API server
	KUBE_PARTS=$$($(dir $(SETUP))kube.sh --where) go test -count=1 -timeout $(TEST_TIMEOUT) -tags kube -v -run '^TestRolling$$' ./internal/e2e/kube

# Real engines: 3 GB of packages, 7 GB on disk. Nothing else needs them.
.PHONY: setup-engines
setup-engines: ## install a vLLM for CPUs and the code of three versions, and SGLang's cache (3 GB, minutes)
	@$(dir $(SETUP))engines.sh >/dev/null
	@$(dir $(SETUP))sglang.sh >/dev/null

.PHONY: test-engines
test-engines: setup-engines setup ## compare predictions with the block managers of vLLM and SGLang, renderers, two whole engines and a prefill/decode pair
	ENGINE_PARTS=$$($(dir $(SETUP))engines.sh --where) go test -count=1 -timeout 40m -tags engines -v ./internal/e2e/engines

.PHONY: test-pair
test-pair: setup-engines setup ## play all faults of a real prefill/decode pair (11 minutes)
	ENGINE_PARTS=$$($(dir $(SETUP))engines.sh --where) go test -count=1 -timeout 40m -tags engines -v ./internal/e2e/engines -run '^TestRealPairFaults$$' -pair.full

.PHONY: race
race: setup ## run the tests of the concurrent packages with the race detector
	CGO_ENABLED=1 go test -race -vet=off -timeout $(RACE_TIMEOUT) $(RACE_PACKAGES)

.PHONY: fuzz
fuzz: setup ## run every fuzz target for FUZZTIME
	@internal/setup/fuzz.sh $(FUZZTIME) $(PACKAGES)

.PHONY: fuzz-short
fuzz-short: setup ## try systematic changes of all seeds, and run every fuzz target for 3 s from the kept corpus (8 minutes at most)
	@internal/setup/fuzz.sh --at-most 300 3s $(PACKAGES)

.PHONY: fuzz-long
fuzz-long: setup ## run every fuzz target for 5 minutes (6 hours)
	@internal/setup/fuzz.sh 5m $(PACKAGES)

.PHONY: fuzz-corpus
fuzz-corpus: ## replace the kept corpus by the smallest inputs that fuzzing on this machine found
	@internal/setup/fuzz.sh --keep

.PHONY: test-flood
test-flood: setup ## offer 50,000 requests of 100 KB to a full pool behind Envoy, buffered and full duplex; print what waited
	go test ./internal/e2e -run '^TestFlood$$' -count=1 -timeout 20m -v -args -flood.requests 50000

.PHONY: test-hostile
test-hostile: setup ## attack the program within 512 MiB, beside honest requests; print a table (11 minutes)
	go test -tags hostile ./internal/e2e/hostile -count=1 -timeout 25m -v

# A quarter of the attacks, chosen by the commit, within the same memory limits.
.PHONY: test-hostile-short
test-hostile-short: setup ## attack the program with a quarter of the attacks, chosen by the commit (5 minutes)
	go test -tags hostile ./internal/e2e/hostile -count=1 -timeout 15m -v -run '^(TestHostile|TestSidecar)$$' -args -hostile.part $$((16#$$(git rev-parse --short=4 HEAD) % 4 + 1))/4

.PHONY: bench
bench: setup build ## run benchmarks and load, print a table, write build/bench.json; then bench-ratios
	@go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 30m $(PACKAGES) >$(BUILD)/bench.txt \
		|| { cat $(BUILD)/bench.txt; exit 1; }
	@$(LAB) bench --go-bench $(BUILD)/bench.txt --json-file $(BUILD)/bench.json
	@$(LAB) gate --full

# The long form also measures through a real Envoy, in a group of three and with 10,000 endpoints.
.PHONY: bench-ratios
bench-ratios: setup build ## measure what requests cost next to a no-op server, all rows, and compare with the stored figures (20 minutes)
	@$(LAB) gate --full

.PHONY: bench-gate
bench-gate: setup build ## fail if a request costs 10% more than stored in internal/lab/gate/baseline.json (short form, 3-6 minutes)
	@$(LAB) gate

# Run it at a commit that stays in the history: the gate builds that commit to compare with it.
.PHONY: bench-store
bench-store: setup build ## measure all rows and store them; figures that rise need REASON (20 minutes, calm machine)
	@$(LAB) gate --full --store --reason '$(REASON)'

.PHONY: lint
lint: ## check format, vet, lint and architecture
	@$(SETUP) lint
	@unformatted=$$(gofmt -l .); \
		if [[ -n $$unformatted ]]; then printf 'not formatted (gofmt -w):\n%s\n' "$$unformatted"; exit 1; fi
	go vet ./...
	GOOS=linux GOARCH=arm64 go vet ./cmd/grapevine ./cmd/grapevine-lab
	go vet -tags engines,hostile,kube,mixed,oracle,page,proxies ./internal/e2e ./internal/e2e/engines ./internal/e2e/kube ./internal/e2e/hostile ./internal/e2e/page ./internal/e2e/proxies ./internal/server ./internal/kubeapi ./picker/discovery/kube ./cluster/federation/kube ./deploy
	$(CACHE)/bin/golangci-lint run --allow-parallel-runners ./...
	$(CACHE)/bin/actionlint -shellcheck= -pyflakes=
	go test ./internal/arch

.PHONY: lint-locks
lint-locks: ## find I/O, logging and callbacks under a mutex or on the path of a request
	go run ./internal/testkit/locks

.PHONY: stats
stats: ## print the number of packages, their sizes and the longest import chain
	@go test -count=1 -v -run '^TestRepository$$' ./internal/arch | sed -n 's/^    *//; /^packages:/,/^largest/p'

.PHONY: cover
cover: setup ## measure the coverage of all tests together
	@mkdir -p $(BUILD)
	go test -timeout $(TEST_TIMEOUT) -coverpkg=./... -coverprofile=$(BUILD)/cover.out $(PACKAGES)
	@go tool cover -html=$(BUILD)/cover.out -o $(BUILD)/cover.html
	@go tool cover -func=$(BUILD)/cover.out | tail -n 1

.PHONY: docs
docs: ## build the documentation site into build/site; broken links fail it
	@site=$$($(dir $(SETUP))site.sh) && NO_MKDOCS_2_WARNING=1 "$$site/venv/bin/mkdocs" build --strict
	@echo "docs: $(BUILD)/site/index.html"

.PHONY: docs-serve
docs-serve: ## serve the documentation site on http://127.0.0.1:8000 and rebuild it on changes
	@site=$$($(dir $(SETUP))site.sh) && NO_MKDOCS_2_WARNING=1 "$$site/venv/bin/mkdocs" serve --strict

.PHONY: clean
clean: ## remove what was built (the cache folder stays)
	rm -rf $(BUILD)
