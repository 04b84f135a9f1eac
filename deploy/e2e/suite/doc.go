// Package suite is what the suites of end-to-end tests share. Main runs a test binary again inside network namespaces
// of its own, as each user that counts. StartMesh runs a control plane that follows a directory, and the directory's
// pods. Eventually waits for a condition, and LogTails says what the processes said. It owns the folder that all users
// read, for as long as Main runs.
package suite
