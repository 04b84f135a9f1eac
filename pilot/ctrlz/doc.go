// Package ctrlz serves the pages of Istio's ControlZ: how the process was started, its memory and metrics, and its log
// levels. `istioctl admin log` reads and sets log levels here.
//
// Each topic is a path that ends in j, such as /scopej/, and is JSON in the shapes that istioctl reads. The page at /
// links them. The Handler does not authorize requests; its caller must. The package starts no goroutine. It sends the
// process no signals, because permission to read log levels is no permission to stop the process. Values of environment
// variables whose names suggest a secret are redacted.
//
// # Guarantees
//
//   - ControlZ is guarded like a debug page of the whole mesh: [pilot/bootstrap.TestControlZ]. It shows no secret of
//     the environment and stops nothing: [TestTopics], [TestLevels].
package ctrlz
