# SPDX-License-Identifier: Apache-2.0

# The image for 'tombolo vpn': the program, OpenVPN 2.6, and a shell for the init container of clients. The image of
# this folder's program has neither OpenVPN nor a shell. After 'make build':
#
#   docker build -f deploy/image/vpn.Dockerfile -t registry.example/tombolo-vpn:v1 bin
FROM debian:trixie-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends openvpn \
 && rm -rf /var/lib/apt/lists/*
COPY tombolo /usr/local/bin/tombolo
ENTRYPOINT ["/usr/local/bin/tombolo"]
