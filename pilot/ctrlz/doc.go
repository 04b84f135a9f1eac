// Package ctrlz answers what Istio's ControlZ port answers: how the process was started, what it holds and what it
// logs. `istioctl admin log` reads and sets the levels of the log here.
//
// Each topic is a path that ends in j, such as /scopej/, and is JSON in the shapes that istioctl reads. The page at /
// links them. Who may ask is up to the caller, who guards the Handler. The package starts no goroutine, and sends the
// process no signals: whoever may read levels may not stop it. Of the environment, values are shown of those names
// alone that do not sound like secrets.
//
// # Guarantees
//
//   - ControlZ is guarded like a debug page of the whole mesh: [pilot/bootstrap.TestControlZ]. It shows no secret of
//     the environment and stops nothing: [TestTopics], [TestLevels].
package ctrlz
