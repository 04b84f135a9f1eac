// Command image writes an OCI image with one static binary in it, without a container runtime: an archive in the OCI
// image layout, that podman, skopeo and docker load, under the name that the chart pulls. Equal binaries make equal
// images: no clock, user or host gets into it.
//
// The image has no shell and no libraries, runs as an ordinary user and has the binary at
// /usr/local/bin/pilot-discovery, as charts for Istio expect.
package main
