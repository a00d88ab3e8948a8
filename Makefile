# Verbs. Each runs through scripts/env: here, if this host has what deps/debian.txt lists, else in a Debian 14 root.
.PHONY: all demo check soak bench fmt lint coverage fuzz clean
E := scripts/env
BUILD := scripts/build

all:
	@$(E) $(BUILD) build
	@echo "build/src/cli/pqplane is built; run it with scripts/env build/src/cli/pqplane"

# The main job: builds, runs the short version of the shipped experiments, writes report.html.
demo:
	@$(E) scripts/demo

# Every test; the last line counts them.
check:
	@$(E) scripts/check

# The relay for SECONDS (1800) under all that operators do and much that happens to them; the last line counts.
soak:
	@$(E) scripts/soak $(or $(SECONDS),1800) $(ARGS)

# Us against peers, in one run.
bench:
	@$(E) scripts/bench $(ARGS)

fmt:
	@$(E) scripts/fmt

lint:
	@$(E) scripts/lint

coverage:
	@$(E) scripts/coverage

# Runs every fuzz target for SECONDS (60) and keeps what it finds new.
fuzz:
	@$(E) scripts/fuzz $(or $(SECONDS),60)

clean:
	rm -rf build build-* out report.html
