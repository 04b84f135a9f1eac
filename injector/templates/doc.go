// Package templates decides which templates of injection are in force: those in files, else those of the ConfigMap
// istio-sidecar-injector in the configuration, else those of that ConfigMap in the cluster.
//
// Templates that cannot be used leave the last version in force. A server that starts with such templates is not ready:
// Wait does not return. It also knows whether every node can run native sidecars.
//
// State: the texts of each place, under a lock. Run is a goroutine of the caller.
package templates
