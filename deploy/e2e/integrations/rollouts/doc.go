// Package rollouts tests deploy/samples/rollouts with the real controller of Argo Rollouts, on a real API server with a
// node of package node: the control plane and the controller are pods, sidecars are real Envoys, and Jobs run.
//
// # Guarantees
//
//   - Argo Rollouts goes from step to step by both forms of the analysis. A proxy that is held back holds the step, and
//     no request meets the old version once the last weight is in force: [TestSample].
//   - The routes for a header and the mirrors that Argo Rollouts adds to a VirtualService have an effect, and are gone
//     after the rollout: [TestSample].
package rollouts
