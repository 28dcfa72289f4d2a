# The daemon as a container: see compose.yaml. Its programs are built on the host (make build) and
# linked against the C library that the base image has, too.
ARG BASE=mcpx/bash
FROM ${BASE}
USER 0:0
COPY bin/mcpx bin/mcpx-init /usr/local/bin/
WORKDIR /
ENTRYPOINT ["mcpx"]
CMD ["serve"]
