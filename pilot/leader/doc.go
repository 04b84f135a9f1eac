// Package leader elects one of several replicas to do what only one may do: write. Reading and serving need no leader.
//
// A Lease is an object of coordination.k8s.io in the API server. These are its times, measured from the last renewal:
//
//   - after 1.5 seconds its holder renews it.
//   - after 8 seconds the holder regards itself as deposed.
//   - after 12 seconds another replica may take over. It does so by 20 seconds, because it notices a renewal, and the
//     lack of one, up to 3.3 seconds late.
//
// The time between 8 and 12 seconds allows for clocks that run at different speeds, and for writes in flight.
//
// Canceling a function's context when leadership is lost is not enough: a process that was stopped or starved continues
// where it was. So Valid checks the clock, and Guard checks it for each request that writes, right before it is sent.
// Such writes should also carry a resourceVersion, for the cases that no clock can rule out.
//
// The election is written here, over two requests. client-go's is not used: after a pause of the process it may release
// a Lease that another replica holds by then.
//
// Other processes cannot see that a process runs which is no pod. Such a process has a Presence, a Lease of its own,
// and an Observer finds presence Leases that are no longer renewed.
//
// State: a Lease guards its own state and may be used from any goroutine. Run calls its function in a goroutine of its
// own, one at a time.
//
// # Guarantees
//
//   - A leader that is stopped and resumed writes nothing more: [TestGuardStopsWritesOfTheDeposed],
//     [deploy/e2e/kube.TestLeaderIsStoppedAndResumed]. A presence ends with its Lease:
//     [TestPresenceLastsAsLongAsItsLease].
//   - A request for a Lease that the API server refuses is a finding that names the Lease and the missing rule, or the
//     other reason: [TestForbidden], [TestRefused], [pilot/bootstrap.TestForbiddenLeases].
//   - A duration that another client has written excludes other holders for at most a minute: [TestEdited].
package leader
