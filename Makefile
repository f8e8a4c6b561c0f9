# Two commands do everything on a fresh Debian machine with make and Rust: `make demo` and `make test`.

LINERATE := target/release/linerate

.PHONY: demo test bench build setup setup-test install

# Against an agent on this machine: a path without a network, to see what is shown.
demo: build
	$(LINERATE) measure local --time 5s
	$(LINERATE) measure local --workload request --time 3s
	$(LINERATE) runs list -n 2

test: setup-test
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --locked

bench: build setup-test
	scripts/need sockperf
	bench/run

build: setup
	cargo build --release --locked

# A C compiler and linker: for the bundled SQLite and for ring.
setup:
	@scripts/need gcc libc6-dev

setup-test: setup
	@scripts/need iperf3 iproute2 nftables iputils-ping ethtool openssl jq

# The command, its manual pages and completions, below PREFIX.
PREFIX ?= /usr/local
install: build
	install -Dm755 $(LINERATE) $(DESTDIR)$(PREFIX)/bin/linerate
	mkdir -p $(addprefix $(DESTDIR)$(PREFIX)/share/,man/man1 bash-completion/completions fish/vendor_completions.d zsh/site-functions)
	$(LINERATE) man --dir $(DESTDIR)$(PREFIX)/share/man/man1
	$(LINERATE) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/linerate
	$(LINERATE) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/linerate.fish
	$(LINERATE) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_linerate
