// Package suite holds helpers of the end-to-end tests. Main runs a test binary again inside network namespaces, as each
// user to test. StartMesh runs a control plane with a configuration directory, and the pods of the directory.
// Run starts programs of other projects in its pods. Eventually waits for a condition, and LogTails prints the ends of
// logs. While Main runs, it owns the folder that all
// users read.
package suite
