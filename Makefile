# Two commands do everything on a fresh machine: `make demo` and `make test`.
.PHONY: demo test setup build verify clean

demo: setup
	cargo build --locked -p ebb -p ebb-java
	scripts/demo.sh

test: setup
	cargo xtask ci

setup:
	scripts/setup.sh

build: setup
	cargo build --locked

verify:
	cargo xtask verify

clean:
	cargo clean
