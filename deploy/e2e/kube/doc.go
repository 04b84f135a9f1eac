// Package kube tests the server on a real kube-apiserver and etcd, as the chart's Deployment would run it, with the
// rights of the chart's ServiceAccount. It has no code besides its tests:
//
//   - what the server sends is what it would send from files, and stays so while the API server is away, frozen, slow,
//     forgetful or unwilling; two proxies' streams notice what is taken away from them;
//   - certificates*: how workloads get theirs by tokens of their service accounts;
//   - webhooks*: what is refused and in which words, and that no valid object is refused while servers come and go;
//   - writers*: the registration of workloads and the election of a leader, each with no more rights than it needs;
//   - migrate: the values of control planes that run, and of releases of Helm;
//   - what the server writes besides: statuses, and the objects of Gateways.
//
// Each test has a cluster for itself. Package installed empties it for the next test. TestMain makes the test binary a
// replica of an election, for a test that stops and resumes a leader.
//
// # Guarantees
//
//   - A gap of an API server removes nothing that proxies have: [TestOutages].
package kube
