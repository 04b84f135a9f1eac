// Command limit is the least that any Go server could do for a fleet of proxies. It takes bytes from a feeder and fans
// them out to all its clients. It translates, compares, decides and encodes nothing, so that its CPU and memory are
// those of gRPC and the kernel; its latencies hold those of what it copies.
//
// With -feed it is that feeder, a process of its own, whose work is not counted: it connects to a control plane as one
// sidecar, drops what is the same message as before, has virtual hosts travel by themselves with -vhds, and hands on
// the rest as it stands in responses. State-of-the-world clients get types that they do not name as a whole, and of
// others what changed. A request that names what the last one named is taken for an acknowledgement.
//
// It is right for nothing but measuring: every client is sent what the one sidecar is sent. Either process listens once
// it has that. A client's stream runs two goroutines; its queue is the only thing that is shared, and the hub's lock
// guards all. The feeder's state is guarded by a lock of its own.
package main
