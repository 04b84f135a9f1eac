// Package samples holds meshes in plain YAML, to try the control plane on: each folder is a configuration directory,
// complete without a cluster. So Services have their clusterIP written, which a cluster would allocate: all are of
// 10.96.0.0/12, the range that kubeadm gives clusters. One with another range refuses them. A copy of gateway-api has
// certificates beside what is in the folder.
//
// It only hands the files out; what they mean and who runs their Pods is for others to say. It owns no state and runs
// no goroutine.
package samples
