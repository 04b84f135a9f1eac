// Package samples holds meshes in plain YAML, to try the control plane with. The folder rollouts is for a cluster
// with Argo Rollouts. Each other folder is a configuration directory, complete without a cluster. So Services set the
// clusterIP that a cluster would allocate, in 10.96.0.0/12, which is kubeadm's range. A cluster with another range
// refuses them. A copy of gateway-api also has certificates.
//
// The package only writes the files. It has no state and runs no goroutine.
package samples
