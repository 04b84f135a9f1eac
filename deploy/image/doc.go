// Command image writes an OCI image with static binaries, without a container runtime. The archive has the OCI image
// layout, which podman, skopeo and docker can load, and the name that the chart pulls. Binaries of several
// architectures make an index with an image for each. Equal binaries make equal images, because no clock, user or host
// enters the image.
//
// The image has no shell and no libraries. It runs as an ordinary user, and has the binaries in /usr/local/bin, as
// charts for Istio expect. It runs the first binary.
//
// # Guarantees
//
//   - The digests lead from the index to the binaries of each architecture, and the archive is the same twice:
//     [TestBuild].
//   - An image has the architecture that the headers of its binaries name: [TestArchitecture].
package main
