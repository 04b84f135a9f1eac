// Package templates decides which templates of injection are in force: the templates in files, else those in the
// ConfigMap istio-sidecar-injector of the configuration, else those in that ConfigMap of the cluster.
//
// Templates that cannot be used leave the last version in force. A server that starts with unusable templates is not
// ready: Wait does not return. The package also determines whether every node can run native sidecars.
//
// State: the texts of each place, under a lock. The caller runs Run in a goroutine.
package templates
