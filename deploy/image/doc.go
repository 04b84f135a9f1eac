// Command image writes an OCI image with static binaries in it, without a container runtime: an archive in the OCI
// image layout, that podman, skopeo and docker load, under the name that the chart pulls. Equal binaries make equal
// images: no clock, user or host gets into it.
//
// The image has no shell and no libraries, runs as an ordinary user and has the binaries in /usr/local/bin, as charts
// for Istio expect. It runs the first of them.
package main
