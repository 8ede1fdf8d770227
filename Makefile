# SPDX-License-Identifier: Apache-2.0
#
# `make help` lists what there is. Only Go, make and, for what is not there yet,
# root on Debian are needed: each target installs what it misses and says so.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VERSION ?= $(shell git describe --tags --always --dirty --match 'v*' 2>/dev/null || echo dev)
FUZZTIME ?= 30s
BENCHTIME ?= 1s
# For make chaos: how long, and how many times longer than in make test the floods are.
# One discovery service and several have a quarter each, or what CHAOS_FLAGS says.
CHAOS ?= 20m
FLOODS ?= 10
# For make bench and bench-quick: PROFILE=1, COMPARE=results.jsonl of an earlier
# run, BENCH_FLAGS='-only bulk1,ping -transports tls,mux2 -rounds 3'.
BENCH_ARGS = $(if $(PROFILE),-profile) $(if $(COMPARE),-compare '$(COMPARE)') $(BENCH_FLAGS)
# For make scale and scale-quick: SOAK=1h, PROFILE=1, SCALE_FLAGS='-only sessions,storm'.
SCALE_ARGS = $(if $(PROFILE),-profile) $(if $(SOAK),-soak '$(SOAK)') $(SCALE_FLAGS)
# The minor versions of Kubernetes that we promise, and the one of every day.
KUBE ?= 1.35
KUBE_ALL := 1.33,1.34,1.35,1.36

GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

##@ Use

.PHONY: build
build: ## Build bin/tombolo, one static binary, and bin/tombolo-controller
	@tools/deps build
	@mkdir -p bin
	$(GO_BUILD) -o bin/tombolo ./cmd/tombolo
	$(GO_BUILD) -o bin/tombolo-controller ./cmd/tombolo-controller

.PHONY: demo
demo: build ## Show what Tombolo does, in networks of its own (root; DEMO_FLAGS=--rootless without)
	@exec bin/tombolo demo $(DEMO_FLAGS)

.PHONY: demo-mesh
demo-mesh: build ## Show nodes behind three kinds of NAT that become one network (root)
	@exec bin/tombolo demo --mesh $(DEMO_FLAGS)

.PHONY: demo-kube
demo-kube: build image ## The same with a real Kubernetes, and a kubectl for you at the end (root)
	@tools/deps kube
	@echo "building Kubernetes $(KUBE): minutes for the first time, cached afterwards"
	@go run ./test/kube/tools/build $(KUBE)
	@mkdir -p bin
	@go build -buildvcs=false -o bin/demo-kube ./test/kube/demo
	@TOMBOLO_KUBE_VERSION=$(KUBE) exec bin/demo-kube $(DEMO_FLAGS)

.PHONY: image
image: ## Build the OCI image as bin/tombolo-image.tar, without a container engine
	@mkdir -p bin
	@go run -buildvcs=false ./deploy/image --version '$(VERSION)' --out bin/tombolo-image.tar $(IMAGE_FLAGS)

##@ Test

.PHONY: suite
suite:
	@mkdir -p bin
	@go build -C tools -buildvcs=false -o ../bin/suite ./suite

.PHONY: test
test: suite ## Everything: lint, house, unit with race, full counts, Istio's pilot, namespace lab, a kernel in QEMU, real Kubernetes (root on Debian)
	@exec bin/suite -kube $(KUBE) all

.PHONY: test-unit
test-unit: suite ## Unit tests with the race detector
	@tools/deps unit
	@exec bin/suite $(SUITE_FLAGS) unit

.PHONY: test-counts
test-counts: suite ## In full, and without the race detector, what counts less with it
	@exec bin/suite $(SUITE_FLAGS) counts

.PHONY: test-pilot
test-pilot: suite ## What Istio's own pilot makes of access lists, and gRPC's RBAC engine decides
	@exec bin/suite $(SUITE_FLAGS) pilot

.PHONY: test-lab
test-lab: suite build ## Tests in network namespaces (root)
	@tools/deps lab
	@exec bin/suite $(SUITE_FLAGS) lab

.PHONY: test-qemu
test-qemu: suite ## Tests that need a kernel of their own, as for WireGuard: Debian's, booted in QEMU
	@tools/deps qemu
	@exec bin/suite $(SUITE_FLAGS) qemu

.PHONY: test-renewal
test-renewal: suite ## The same, while the kernel's WireGuard renews its keys twice, which takes 5 minutes
	@tools/deps qemu
	@TOMBOLO_QEMU_RENEWAL=1 exec go test -count=1 -timeout 15m -tags qemu -run '^TestKernelEngine$$' -v ./test/qemu

.PHONY: lab
lab: suite build ## Every pair of kinds of networks, and whether it is direct or relayed as theory says (root)
	@tools/deps lab
	@TOMBOLO_LAB_GRID=whole exec bin/suite -run 'TestKindsAreWhatTheySay|TestTheoryHolds|TestMeshGrid' $(SUITE_FLAGS) lab

.PHONY: test-kube
test-kube: suite build ## Tests with a real Kubernetes (root; KUBE=1.36 for another version)
	@tools/deps kube
	@exec bin/suite $(SUITE_FLAGS) -kube $(KUBE) kube

.PHONY: test-kube-all
test-kube-all: suite build ## The same with every version that we promise
	@tools/deps kube
	@exec bin/suite $(SUITE_FLAGS) -kube $(KUBE_ALL) kube

.PHONY: lint
lint: suite ## gofmt, go vet, staticcheck and the law of the house
	@tools/deps generate
	@exec bin/suite lint house

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (30s; FUZZ=internal/stream/wire for some), a line each at the end
	@tools/each-fuzz '$(FUZZTIME)' '$(or $(FUZZ),.)'

.PHONY: chaos
chaos: build ## Let everything go wrong under load and check every byte (CHAOS=20m, FLOODS=10, CHAOS_FLAGS='-discovery 1h -replicas 1h -seed 7 -logs DIR')
	@go build -buildvcs=false -o bin/chaos ./test/chaos
	@exec bin/chaos -for '$(CHAOS)' -floods '$(FLOODS)' -tombolo bin/tombolo $(CHAOS_FLAGS)

##@ Measure

.PHONY: bench
bench: bench-program ## Measure the data path beside TLS, yamux, relays and front doors, 42 minutes (PROFILE=1, COMPARE=FILE)
	@exec bin/bench $(BENCH_ARGS)

.PHONY: bench-quick
bench-quick: bench-program ## The targets only, a line each, 9 minutes; fails when one is short
	@exec bin/bench -quick $(BENCH_ARGS)

.PHONY: bench-mesh
bench-mesh: build ## Carry bytes by the mesh, by its relay and by wireguard-go's own program, in turns (root; ROUNDS=5)
	@tools/deps lab
	@TOMBOLO_LAB_ROUNDS='$(or $(ROUNDS),5)' go test -count=1 -tags lab -run TestMeshRate -v ./test/lab/mesh

.PHONY: bench-route
bench-route: build ## Carry bytes by a routed connection, by a CONNECT and by OpenVPN, in turns (root; ROUNDS=5, LOSS=100)
	@tools/deps lab
	@TOMBOLO_LAB_LOSS='$(LOSS)' TOMBOLO_LAB_ROUNDS='$(or $(ROUNDS),5)' go test -count=1 -timeout 30m -tags lab -run TestRouteRate -v ./test/lab/product

.PHONY: bench-failover
bench-failover: build ## Kill the gateway that carries packets between linked clusters, again and again (root; KILLS=30)
	@tools/deps lab
	@TOMBOLO_LAB_KILLS='$(or $(KILLS),30)' go test -count=1 -timeout 30m -tags lab -run 'TestLinkedClusters$$' -v ./test/lab/mesh

.PHONY: bench-mesh-large
bench-mesh-large: build ## What a node of a large mesh costs, each size for 4 minutes and 1,000 for 15 (root; MEMBERS='10 1000')
	@tools/deps lab
	@for n in $(or $(MEMBERS),10 1000); do TOMBOLO_LAB_MEMBERS=$$n go test -count=1 -timeout 30m -tags lab -run TestMeshLarge -v ./test/lab/mesh || exit 1; done

.PHONY: scale
scale: scale-program ## Measure what grows with the number of agents, 30 minutes with its soak (SOAK=20m, PROFILE=1)
	@exec bin/scale $(SCALE_ARGS)

.PHONY: scale-quick
scale-quick: scale-program ## The same lines with smaller steps, under 3 minutes; fails when one is short
	@exec bin/scale -quick $(SCALE_ARGS)

.PHONY: bench-go
bench-go: ## The benchmarks of single packages, BENCHTIME (1s) each
	go test -run '^$$' -bench . -benchtime $(BENCHTIME) -benchmem ./...

.PHONY: bench-program
bench-program: build
	@tools/deps bench || echo 'the lines that need HAProxy, nginx and OpenVPN are skipped'
	@go run -buildvcs=false ./test/kube/tools/build konnectivity >/dev/null || echo 'the lines that need konnectivity are skipped'
	@mkdir -p bin
	@go build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/bench ./test/bench

.PHONY: scale-program
scale-program:
	@mkdir -p bin
	@go build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/scale ./test/scale

##@ Change

.PHONY: fmt
fmt: ## Format Go files and add the licence line where it is missing
	@go run -C tools -buildvcs=false ./licence
	@gofmt -l -s -w $$(find . -name '*.go' -not -path '*/testdata/*' -not -path './bin/*')

.PHONY: generate
generate: ## Generate protobuf code and the reference of the command line
	@tools/deps generate
	@tools/generate

.PHONY: deps
deps: ## Install the Debian packages that the tests need
	@tools/deps unit lab qemu kube

.PHONY: clean
clean: ## Remove what the build left in the checkout (the cache stays: see make clean-cache)
	rm -rf bin bench-out

.PHONY: clean-cache
clean-cache: ## Remove the cached Kubernetes programs and tools
	rm -rf "$${TOMBOLO_CACHE:-$$HOME/.cache/tombolo}"/{kube,pilot,qemu,tools}

.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## "; print "usage: make TARGET" } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
