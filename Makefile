# Each target is what .ci/run or a release does; nothing is done anywhere else.
GOFLAGS := -trimpath
export CGO_ENABLED := 0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: build test race lint bench bench-decode accuracy compare-timeline fuzz full
build:
	go build $(GOFLAGS) -ldflags='-s -w' -o vramscope ./cmd/vramscope
test:
	go test ./...
# The packages that start goroutines, or share what is computed once.
race:
	CGO_ENABLED=1 go test -race ./replay ./internal/diagnose ./internal/lint/... ./internal/remedy ./internal/gpu/...
lint:
	test -z "$$(gofmt -l $$(git ls-files '*.go') | tee /dev/stderr)"
	go vet ./...
	go run $(STATICCHECK) ./...
bench:
	go test -run '^$$' -bench . ./...
# Without the recordings outside of the repository their rows stay as they are.
RECORDINGS ?= $(wildcard ../shared/data/snapshots)
# Reading beside CPython's pickle.load: make bench-decode SNAPSHOT=../shared/data/snapshots/varlen_default.pickle.zst
bench-decode:
	go run ./torchsnap/internal/longer $(SNAPSHOT) /tmp/vramscope-bench.pickle 1200000
	go run ./torchsnap/internal/decodebench /tmp/vramscope-bench.pickle
	rm /tmp/vramscope-bench.pickle
accuracy:
	go test ./replay -run TestAccuracy -update -recordings '$(abspath $(RECORDINGS))'
	$(if $(RECORDINGS),go test ./internal/plan -run TestAccuracyReport -update -data '$(abspath $(firstword $(RECORDINGS))/..)')
	$(if $(RECORDINGS),go test ./internal/holders -run TestAccuracy -update -recordings '$(abspath $(firstword $(RECORDINGS)))')
# Where an estimate and a recording part: make compare-timeline MODEL=../shared/data/models/hf/gpt2 \
#   SNAPSHOT=../shared/data/snapshots/gpt2_b8_s512_amp.pickle.zst FLAGS='-batch 8 -seq 512 -precision amp-bf16'
compare-timeline:
	go run ./internal/plan/comparetimeline -model $(MODEL) -snapshot $(SNAPSHOT) $(FLAGS)
fuzz:
	@for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p | grep ^Fuzz); do \
	    echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzzminimizetime 10x -fuzztime $${FUZZTIME:-30s} $$p || exit 1; \
	  done; done
full:
	.ci/full
