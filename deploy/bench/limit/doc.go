// Command limit is the least that any Go server could do for a fleet of proxies: it connects once to a control plane, as one sidecar, keeps what it is sent
// as bytes, and fans that out to all its own clients. It translates, decides and encodes nothing, so that its CPU and memory are those of gRPC and the kernel;
// its latencies hold those of the control plane for that one sidecar. With -vhds, virtual hosts travel by
// themselves to delta clients. State-of-the-world clients get types that they do not name as a whole, and of others what changed.
//
// It is right for nothing but measuring: every client is sent what the one sidecar is sent. It listens once it has that. A stream runs two goroutines; its queue
// is the only thing that is shared, and the hub's lock guards all.
package main
