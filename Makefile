# Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0
#
# `make` alone lists the targets. Everything that needs set-up does it itself.

PREFIX   ?= /usr/local
DESTDIR  ?=
FUZZTIME ?= 5m
BENCH    ?= .

VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT   := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS  := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# The program is static and no other toolchain is downloaded unasked. One way of compiling
# for program, vet and tests, so that each takes what another made, in whatever folder.
export CGO_ENABLED ?= 0
export GOTOOLCHAIN ?= local
export GOFLAGS += -trimpath -buildvcs=false

.DEFAULT_GOAL := help
.PHONY: help setup setup-all differ generate peers build check lint test test-kernel test-kernel-sctp demo bench fuzz install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## see a call move between networks: set up, build, run the tour
	@scripts/setup --go
	@# Peers come down while the compiler works.
	@scripts/peers --optional & peers=$$!; \
	$(MAKE) --no-print-directory build && wait $$peers || { kill $$peers 2>/dev/null; exit 1; }
	@scripts/asroot "the lab makes network namespaces" bin/isthmus lab run call

build: ## build bin/isthmus, one static program
	@scripts/setup --go
	go build -ldflags '$(LDFLAGS)' -o bin/isthmus ./cmd/isthmus

check: lint ## format, vet, staticcheck, and the tests that need no root
	scripts/gotest unprivileged

lint: ## format, vet and staticcheck alone
	@scripts/setup --go
	scripts/lint

test: ## set up, then every test: unit, fuzz seeds, namespaces, interop
	@scripts/setup
	scripts/gotest all

test-kernel: ## test the fast path under Debian's own kernel in QEMU; KERNEL=image
	@scripts/setup --go
	@scripts/peers
	@$(if $(KERNEL),command -v qemu-system-x86_64 >/dev/null ||) scripts/peers kernel
	go run ./lab/vm $(if $(KERNEL),-kernel '$(KERNEL)')

test-kernel-sctp: ## test our SCTP against that of Debian's kernel in QEMU; minutes
	@scripts/setup --go
	@scripts/peers
	@scripts/peers kernel
	go run ./lab/vm -sctp

bench: ## run the benchmarks; BENCH=regexp chooses
	@scripts/setup --go
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

fuzz: ## fuzz each parser and engine for FUZZTIME (5m)
	@scripts/setup --go
	FUZZTIME=$(FUZZTIME) scripts/fuzz

differ: ## ten million random packets through fast paths and engines; ten minutes
	@scripts/setup --go
	ISTHMUS_DIFFER_PACKETS=10000000 ISTHMUS_REQUIRE_ROOT=1 go test -count=1 -timeout 1h -v \
		-exec "$(CURDIR)/scripts/asroot test" -run TestDiffer ./fastpath/differ ./gprs/ggsn/ggsnbpf

generate: ## compile the eBPF programs again, by clang-14; they are committed
	@scripts/setup --go
	@scripts/generate

setup: ## check Go and fetch what tests and lab need, into .cache only
	@scripts/setup

setup-all: ## fetch every private program there is, and start each
	@scripts/setup --all

peers: ## fetch Miredo, tshark and the lab's tools into .cache/peers
	@scripts/peers

# Only if there is none: sudo leaves out where Go usually lies, and what root compiles is root's.
bin/isthmus:
	@$(MAKE) --no-print-directory build

install: bin/isthmus ## install what was built, unit and user below DESTDIR and PREFIX
	install -D -m 0755 bin/isthmus '$(DESTDIR)$(PREFIX)/bin/isthmus'
	install -D -m 0644 dist/systemd/isthmus.service '$(DESTDIR)$(PREFIX)/lib/systemd/system/isthmus.service'
	sed -i 's|/usr/bin/isthmus|$(PREFIX)/bin/isthmus|g' '$(DESTDIR)$(PREFIX)/lib/systemd/system/isthmus.service'
	install -D -m 0644 dist/sysusers.d/isthmus.conf '$(DESTDIR)$(PREFIX)/lib/sysusers.d/isthmus.conf'
	install -D -m 0644 dist/tmpfiles.d/isthmus.conf '$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/isthmus.conf'

clean: ## remove what was built; the peers stay (rm -r .cache for those)
	rm -rf bin
