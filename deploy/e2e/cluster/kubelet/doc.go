// Package kubelet does for a test what a kubelet would with the pod of a Deployment: it runs the container's command
// with the container's environment, and with the rights of the pod's ServiceAccount. The image is the program under
// test; volumes, probes and limits are left out.
//
// A Container belongs to whoever started it. It runs one goroutine, which waits for the process; the process ends with
// this one, whatever ends it. Its methods may be called from any goroutine.
package kubelet
