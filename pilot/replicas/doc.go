// Package replicas knows which other replicas of this control plane serve, and asks them for debug pages.
//
// The peers of a replica are the ready endpoints of its own Service, as the last snapshot has them, without the replica
// itself. So nothing is watched and nothing is kept: without a question the package costs nothing.
//
// A question goes to the secure port, as one of istioctl's does. The peer proves by its certificate that it is a
// control plane: the roots of the mesh verify it for the name of the Service, which no workload is certified for. Only
// then does the asking replica show its own certificate, with an identity of the system namespace, by which the peer
// allows it to read debug pages. No token is ever sent. A Pod that gets into the Service's endpoints therefore learns
// that a question is asked, and no more. Its answer is an error that names it.
//
// A peer answers for itself alone: the page that shows all replicas is not served over xDS. What an answer may cost is
// bounded: its time, its size, how many peers are asked at a time, and how many peers there are.
//
// # Guarantees
//
//   - Peers are the ready endpoints of the control plane's own Service in its own cluster, without the replica itself:
//     [TestPeers]. Nothing is watched or kept for it.
//   - Questions about what is in force go to replicas that are not ready too, because they may have streams, unless
//     they refuse connections: [TestMembers].
//   - Each peer has an answer or an error with the reason, within bounds of time, size and number: [TestAsk],
//     [TestSlow], [TestManyPeers]. A peer answers for itself alone, and changes nothing: [pilot/debug.TestReplicas].
//   - A peer that does not prove by its certificate that it is a control plane is sent nothing, and sees no
//     certificate of this replica: [TestImpostors]. Without an identity no peer is asked: [TestNoIdentity],
//     [citadel/authority.TestClient], [citadel/authority.TestClientOfOthers].
//   - proxy-status, pushes and check show what all replicas serve, and name a replica that is stopped, dead or of
//     another version: [deploy/e2e/clusters.TestReplicas]. So does the live page: [pilot/ui.TestElsewhere].
package replicas
