// Package leader elects one of several replicas to do what only one may do: write. Reading and serving need no leader.
//
// A Lease is an object of coordination.k8s.io in the API server. These are its times, counted from the last renewal:
//
//   - after 1.5 seconds its holder renews it.
//   - after 8 seconds the holder counts itself as deposed.
//   - after 12 seconds another replica may take over. It does by 20 seconds, since it learns of a renewal, and acts on
//     the lack of one, up to 3.3 seconds late.
//
// The time between 8 and 12 seconds is for clocks that run at different speeds, and for writes on their way.
//
// That a function's context ends when leadership is lost is not enough: a process that was stopped, or starved, goes on
// where it was. So Valid looks at the clock, and Guard looks at it for each request that writes, right before it is
// sent. Such writes should also carry a resourceVersion, for what no clock can rule out.
//
// The election is written here, over two requests, and is not that of client-go, which releases a Lease by what it
// believed before it was stopped.
//
// A process that is no pod has nothing by which others could see that it runs. A Presence is a Lease that it holds for
// that alone, and an Observer finds those that are not renewed any more.
//
// State: a Lease belongs to itself and may be used from any goroutine. Run calls its function in a goroutine of its
// own, one at a time.
//
// # Guarantees
//
//   - A leader that is stopped and resumed writes nothing more: [TestGuardStopsWritesOfTheDeposed],
//     [deploy/e2e/kube.TestLeaderIsStoppedAndResumed]. A presence ends with its Lease:
//     [TestPresenceLastsAsLongAsItsLease].
//   - A request for a Lease that the API server forbids is a finding that names the Lease and the missing rule:
//     [TestForbidden], [pilot/bootstrap.TestForbiddenLeases].
package leader
