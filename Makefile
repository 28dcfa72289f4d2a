# Everything here may be repeated: what is there already is found and left alone.

# git refuses to read a tree of somebody else's, and go build then refuses to stamp the revision.
stamp := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

.PHONY: help build run stop images test compose-test clean

help:
	@echo 'make run           set up, build, and run the examples (a second time takes seconds)'
	@echo 'make stop          end the daemon that make run started'
	@echo 'make test          set up, build, and run every test, against a real engine too'
	@echo 'make build         bin/mcpx and bin/mcpx-init'
	@echo 'make images        the interpreter images, those that are missing or out of date'
	@echo 'make compose-test  the daemon as a container, from up to down'
	@echo 'make clean         remove bin/'

# mcpx-init bears no revision: it lies in every image, and a commit elsewhere shall not change those.
build:
	@./setup.sh go
	go build -buildvcs=$(stamp) -o bin/mcpx ./cmd/mcpx
	CGO_ENABLED=0 go build -buildvcs=false -ldflags '-s -w' -o bin/mcpx-init ./cmd/mcpx-init

images: build
	@./setup.sh docker
	bin/mcpx images build --missing

run: images
	@examples/quickstart.sh

stop:
	@examples/daemon.sh stop

test: export RUN_ENGINE = docker,oci
test: images
	@./setup.sh crun
	@./setup.sh chromium
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt would change:" $$unformatted; exit 1; }
	go vet ./...
	go test -race -timeout 20m ./...
	examples/check.sh --local
	examples/tools/run.sh --local
	examples/compose-test.sh

compose-test: images
	examples/compose-test.sh

clean:
	rm -rf bin
