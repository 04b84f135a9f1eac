// Command image writes an OCI image with static binaries, without a container runtime. The archive has the OCI image
// layout, which podman, skopeo and docker can load, and the name that the chart pulls. Equal binaries make equal
// images, because no clock, user or host enters the image.
//
// The image has no shell and no libraries. It runs as an ordinary user, and has the binaries in /usr/local/bin, as
// charts for Istio expect. It runs the first binary.
package main
