# Two commands do everything on a fresh Debian machine with make and Rust: `make demo` and `make test`.

LINERATE := target/release/linerate
GUEST_TOOLS := qemu-system-x86 busybox-static cpio kmod xz-utils

.PHONY: demo test bench truth deciders tunings mtu-faults lab-fidelity prove-power bpf prove-known situations flood kills mutants mesh-lab mesh-calendar guests test-kernels power two-machines sbom fuzz build setup setup-test install install-files dist

# Three minutes on this machine: a path that is slow one way, why, what helps, what does not, and a page of it. As root, or as a
# user who may make user namespaces.
demo: build
	@scripts/need iproute2 nftables
	$(LINERATE) demo

# Tests mostly wait, for labs, timers and peers: two for each processor.
test: setup-test
	scripts/words
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUST_TEST_THREADS=$$((2 * $$(nproc))) cargo test --workspace --locked

bench: build setup-test
	scripts/need sockperf
	bench/run
	bench/trace
	bench/capture
	bench/requests

# How true the labs are: half an hour, best on an idle machine, as root; writes docs/lab-fidelity.md.
lab-fidelity: build setup-test
	@scripts/need tcpdump $(GUEST_TOOLS)
	bench/lab-fidelity > docs/lab-fidelity.md.new
	mv docs/lab-fidelity.md.new docs/lab-fidelity.md

# What the verdicts keep of what they promise, simulated: some minutes; writes docs/prove-power.md.
prove-power: setup
	LINERATE_PROVE_POWER=$(CURDIR)/docs/prove-power.md.new cargo test --quiet --locked --package linerate-prove --lib table_of_power
	mv docs/prove-power.md.new docs/prove-power.md

# The probes of 'linerate trace'. The object is committed: nobody else needs clang.
bpf:
	@scripts/need clang-14 llvm-14
	bpf/build

# Experiments whose answer is known, five of each: half an hour, best on an idle machine; writes docs/prove-known.md.
prove-known: build setup-test
	bench/prove-known > docs/prove-known.md.new
	mv docs/prove-known.md.new docs/prove-known.md

# What 'linerate explain' names on paths drawn at random: 'make truth SEED=2 CASES=300', or CASE=17 for one of them. Twenty
# seconds a case, on an idle machine; prints a page.
SEED ?= 1
CASES ?= 300
truth: setup-test
	@bench/truth --seed $(SEED) --cases $(CASES) $(addprefix --case ,$(CASE))

# The experiments that 'linerate explain' proposes between causes of loss, made on paths drawn at random that lose:
# 'make deciders SEED=2 CASES=30'. Two minutes an experiment, ten seconds a case without one; prints a page.
deciders: setup-test
	@bench/truth --deciders --seed $(SEED) --cases $(CASES) $(addprefix --case ,$(CASE))

# Paths drawn at random, tuned, and what was kept tried afresh: 'make tunings SEED=2 CASES=40'. A minute a case; prints a page.
tunings: setup-test
	@bench/truth --tune --seed $(SEED) --cases $(CASES) $(addprefix --case ,$(CASE))

# The five situations that linerate comes from, recreated in labs: ten minutes, best on an idle machine; writes target/situations.
situations: build setup-test
	bench/situations target/situations

# Every fault of a path's MTU, ours beside common tools: a minute; writes docs/mtu-faults.md.
mtu-faults: setup-test
	LINERATE_MTU_FAULTS=$(CURDIR)/docs/mtu-faults.md.new cargo test --locked --package linerate --test together every_fault
	mv docs/mtu-faults.md.new docs/mtu-faults.md

# Whether measurements get in while others flood 'linerate serve', and a thousand at once: six minutes, as root.
flood: build setup-test
	bench/flood

# Whether every setting is as before, whoever is killed: 'make kills SEED=2 COUNT=200', half an hour, as root.
COUNT ?= 200
kills: build setup-test
	bench/kills --count $(COUNT) $(if $(filter command,$(origin SEED)),--seed $(SEED))

# Whether the tests notice a wrong line: mutants of these packages drawn by SEED, with the tests that pass them; half an hour for
# three packages, as root, with 'cargo install --locked cargo-mutants'.
PACKAGES ?= linerate-wire linerate-prove linerate-tune linerate-measure linerate-engine
mutants: setup-test
	@scripts/need python3 rsync util-linux
	bench/mutants $(if $(filter command,$(origin SEED)),--seed $(SEED)) $(PACKAGES) $(addprefix --with linerate:,together tune \
		measure serve prove copy requests iperf3_interop)

# Whether a mesh of two sites is measured by its plan and the bad host and uplink are named, whoever is killed: seven minutes, as root.
mesh-lab: build
	@scripts/need python3 iproute2 nftables ethtool procps
	bench/mesh $(LINERATE)

# Slots granted a second to fifty clients of a mesh's calendar, in SQLite and PostgreSQL: a minute.
mesh-calendar: setup
	@scripts/need util-linux postgresql postgresql-common
	cargo bench --locked --package linerate-calendar

# What needs systemd or a suspend, in QEMU guests: ten minutes, as root; Debian's kernels are fetched once.
guests: build setup-test
	@scripts/need $(GUEST_TOOLS)
	bench/guests $(LINERATE)

# Every command, and the tests that need a kernel, on Debian's kernels 5.10, 6.1 and 6.12, in QEMU guests: half an hour, best
# on an idle machine, as root; writes docs/kernels.md.
test-kernels: build setup-test
	@scripts/need $(GUEST_TOOLS)
	bench/kernels $(LINERATE) > docs/kernels.md.new
	mv docs/kernels.md.new docs/kernels.md

# Two machines in QEMU: whether a host whose power is cut while it is tuned is as before or as kept ('make power SEED=2 CUTS=60', an
# hour, as root); and drivers, clocks, the kernel's NFS and virtual cards (half an hour; writes docs/two-machines.md).
CUTS ?= 60
power: setup-test
	@scripts/need $(GUEST_TOOLS) e2fsprogs ethtool
	cargo build --locked --config profile.dev.opt-level=1 --config profile.dev.debug=false --target-dir target/guest/build
	bench/power target/guest/build/debug/linerate --count $(CUTS) $(if $(filter command,$(origin SEED)),--seed $(SEED))
two-machines: build setup-test
	@scripts/need $(GUEST_TOOLS) ethtool nfs-kernel-server
	bench/two-machines $(LINERATE) > docs/two-machines.md.new
	mv docs/two-machines.md.new docs/two-machines.md

# Every decoder fuzzed, guided by coverage, with a new seed each: 'make fuzz SECONDS=600'.
SECONDS ?= 600
fuzz: setup
	@scripts/need g++
	fuzz/guided $(SECONDS)

# What the binary is made of, as CycloneDX.
sbom: setup
	@scripts/need python3-minimal
	mkdir -p target
	scripts/sbom > target/linerate.cdx.json

build: setup
	cargo build --release --locked

# A C compiler and linker: for the bundled SQLite and for the cryptography (aws-lc).
setup:
	@scripts/need gcc libc6-dev

setup-test: setup
	@scripts/need binutils python3 procps iperf3 iproute2 nftables iputils-ping ethtool openssl jq python3-scipy python3-prometheus-client python3-jsonschema prometheus prometheus-node-exporter python3-matplotlib flent clang-14 llvm-14 bpftool tcpdump tshark tcptrace iputils-tracepath scamper python3-minimal nfs-ganesha nfs-ganesha-mem nfs-ganesha-vfs rpcbind libnfs-utils openssh-server openssh-client librsvg2-bin chromium systemd util-linux postgresql postgresql-common

# The command, its manual pages, completions and examples of units, below PREFIX.
PREFIX ?= /usr/local
install: build install-files

install-files:
	install -Dm755 $(LINERATE) $(DESTDIR)$(PREFIX)/bin/linerate
	mkdir -p $(addprefix $(DESTDIR)$(PREFIX)/share/,man/man1 bash-completion/completions fish/vendor_completions.d zsh/site-functions)
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/doc/linerate/systemd dist/systemd/*
	$(LINERATE) man --dir $(DESTDIR)$(PREFIX)/share/man/man1
	$(LINERATE) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/linerate
	$(LINERATE) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/linerate.fish
	$(LINERATE) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_linerate

# A static binary, and what it is given away as: a Debian package, a tar, an OCI image, each installed and used; in target/packages.
STATIC := $(shell uname -m)-unknown-linux-gnu
# Relocations in the short form; and equal code once, where rustc links with lld.
SMALL := -C link-arg=-Wl,-z,pack-relative-relocs $(if $(filter x86_64%,$(STATIC)),-C link-arg=-Xlinker -C link-arg=--icf=safe)
dist: setup sbom
	@scripts/need python3 binutils jq iproute2
	RUSTFLAGS="-C target-feature=+crt-static $(SMALL)" cargo build --profile dist --locked --target $(STATIC)
	scripts/package target/$(STATIC)/dist/linerate target/packages
	cp target/linerate.cdx.json target/packages/
	scripts/check-package target/packages
	ls -l target/packages
