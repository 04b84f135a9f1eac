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
//   - Peers are the ready endpoints of the own cluster, at whatever port each has, without this replica: [TestPeers].
//   - Each peer that is asked has an answer or an error that says why not, whatever the peer does: [TestAsk].
//   - Nothing is sent to a peer that does not prove that it is a control plane: [TestImpostors].
//   - Without an identity no peer is asked: [TestNoIdentity].
package replicas
