// Package kubelet runs the pod of a Deployment for a test as a kubelet would: it runs the container's command with the
// container's environment, and with the rights of the pod's ServiceAccount. The image is the program under test.
// Volumes, probes and limits are left out.
//
// The caller of Start owns the Container. It runs one goroutine, which waits for the process. The process always ends
// with this one. Its methods may be called from any goroutine.
package kubelet
